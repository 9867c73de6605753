"""`decider serve`: answer wire requests over HTTP until it is told to stop.

It refuses to know HTTP; `decider.serve` does. Trap: words, files, packages and the address are checked before torch is
imported, since a supervisor that starts a bad configuration again and again should not pay seconds each time.
"""

from __future__ import annotations

import argparse
import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from decider.cli import add_model_options, model_arguments, say, settings_of
from decider.errors import MissingDependencyError
from decider.serve.config import KEYS_FILE, load_serve_config

if TYPE_CHECKING:
    from decider.serve.brain import Brain
    from decider.serve.service import Say

PACKAGES = ("starlette", "uvicorn", "httptools", "prometheus_client")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the subcommand."""
    parser = commands.add_parser(
        "serve",
        help="answer requests over HTTP",
        description="Answer requests over HTTP, as the wire format's clients send them. Settings without an option are "
        "variables (DECIDER_SERVE_DEADLINE_S=5) or lines below [serve] in the --config file; docs/serving.md lists "
        "them. Exit status 0: told to stop and drained, 2: it could not start, 3: the engine died.",
    )
    add_model_options(parser)
    parser.add_argument("--host", help="the address to listen on (default: 127.0.0.1, this machine alone)")
    parser.add_argument("--port", type=int, help="the port; 0 takes a free one (default: 8000)")
    parser.add_argument(
        "--api-keys", metavar="FILE", help="a file with one API key a line; without keys everyone is let in"
    )
    parser.add_argument("--log-content", action="store_true", default=None, help="write what is asked to the log, too")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Serve. Raises what settings, packages, the address and loading raise."""
    settings_of(parsed)
    file = None if parsed.config is None else Path(parsed.config)
    given = {name: getattr(parsed, name) for name in ("host", "port", "log_content")} | {KEYS_FILE: parsed.api_keys}
    config = load_serve_config(given, environ=os.environ, file=file)
    missing = [package for package in PACKAGES if find_spec(package) is None]
    if missing:
        raise MissingDependencyError(
            f"decider serve needs {', '.join(missing)}, not installed here; run, in a checkout: pip install '.[serve]'"
        )

    from decider.serve.service import serve

    def load(say: Say) -> Brain:
        from decider.api import Decider
        from decider.serve.brain import DeciderBrain

        return DeciderBrain(Decider(**model_arguments(parsed), limits=config.limits, say=say))

    return serve(load, config, say=say)
