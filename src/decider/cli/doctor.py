"""`decider doctor`: what was detected on this machine, which choices were made, and why.

It refuses to repair anything. Trap: it prints the facts before it loads a model, so that they are there when loading
fails.
"""

from __future__ import annotations

import argparse
import os
import platform

from decider.cli import add_model_options, model_arguments

PACKAGES = ("decider-engine", "torch", "transformers", "tokenizers", "safetensors", "gguf", "numpy", "huggingface-hub")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the subcommand."""
    parser = commands.add_parser("doctor", help="show what was detected and chosen, and why")
    add_model_options(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Print facts, load the model, print the choices. Raises what loading raises."""
    from decider.api import Decider
    from decider.model.cache import cache_dir
    from decider.run.device import available_devices, torch_facts, version_of

    print("Detected")
    _line("python", f"{platform.python_version()} on {platform.platform()}, {os.cpu_count()} processors")
    for package in PACKAGES:
        _line(package, version_of(package) or "not installed")
    _line("devices", ", ".join(available_devices()))
    for name, value in torch_facts():
        _line(name, value)
    _line("cache", str(cache_dir()))

    decider = Decider(**model_arguments(parsed))
    print("Chosen")
    for pick in decider.picks:
        _line(pick.name, f"{pick.value}  ({pick.reason})")
    return 0


def _line(name: str, value: str) -> None:
    print(f"  {name:<16} {value}")
