"""`decider models`: the models this machine has, and how to name others.

It refuses to load any. Trap: it must work offline and before anything was fetched, so it only looks at folders.
"""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table

PUBLISHED = (
    ("Mapika/decider-2b", "Qwen3.5-2B trained for decisions"),
    ("Mapika/decider-4b", "Qwen3.5-4B trained for decisions"),
    ("Mapika/decider-12b", "Gemma-4-12B trained for decisions, chat layout"),
    ("Qwen/Qwen3.5-2B", "a stock instruct model: use --layout chat"),
)


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the subcommand."""
    parser = commands.add_parser("models", help="show the models on this machine, and how to name others")
    parser.set_defaults(run=run)


def run(_parsed: argparse.Namespace) -> int:
    """Print the table."""
    from decider.model.cache import cache_dir
    from decider.model.source import list_models

    table = Table(box=None, pad_edge=False)
    for column in ("--model", "what it is", "on this machine"):
        table.add_column(column, overflow="fold")
    for found in list_models(cache_dir()):
        table.add_row(found.name, found.origin, found.state)
    for name, what in PUBLISHED:
        table.add_row(name, what, "fetched from the Hugging Face Hub on first use")
    table.add_row("a folder or .gguf file", "any causal language model with a fast tokenizer", "")
    console = Console(highlight=False)
    console.print(table)
    console.print(f"cache: {cache_dir()}", markup=False)
    return 0
