"""The command line: `decider ask`, `serve`, `models`, `doctor`, `verify`, `bench`, `data`, `train`, `calibrate` and
`eval`.

Thin: it parses words and prints results. It refuses to know models. Trap: standard output belongs to the answer.
Progress, reasons and errors go to standard error, and a request is checked before torch is imported, so that a typing
error costs milliseconds.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from decider.errors import ConfigError, DeciderError, printable
from decider.questions.request import LAYOUT_NAMES
from decider.settings import DTYPES, EXECUTORS, Settings, load_settings

EXIT_FAULT = 2
EXIT_INTERRUPTED = 130


class _OneLineParser(argparse.ArgumentParser):
    """Usage faults are one line, as every other error."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_FAULT, f"decider: error: {message} (see `{self.prog} --help`)\n")


def build_parser() -> argparse.ArgumentParser:
    """The parser; each subcommand stores its function as `run`."""
    from decider.cli import ask, bench, calibrate, data, doctor, eval, models, serve, train, verify  # noqa: A004 - the command's name

    parser = _OneLineParser(prog="decider", description="Typed decisions with probabilities, in one forward pass.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (ask, serve, models, doctor, verify, bench, calibrate, data, train, eval):
        module.add(commands)
    return parser


MODEL_OPTIONS = (
    "model", "gguf_file", "device", "executor", "dtype", "compile", "fp8", "layout", "decider_config", "config"
)  # fmt: skip


def add_model_options(
    parser: argparse.ArgumentParser,
    *,
    executors: Sequence[str] = EXECUTORS,
    executor: str = "auto",
    several_devices: bool = True,
) -> None:
    """The options that say which model runs, where, and by which of `executors`; see `model_arguments`.

    `executor` is only what the help calls the default; so is what it says of `several_devices`.
    """
    parser.add_argument("--model", help="a Hub id, a folder or a .gguf file (default: decider-mini)")
    parser.add_argument("--gguf-file", metavar="NAME", help="the GGUF file inside the folder given as --model")
    more = "; for an engine on each of several, cuda:0,cuda:1 or cuda:all" if several_devices else ""
    parser.add_argument("--device", help=f"auto, cpu, cuda, cuda:N or mps{more}")
    parser.add_argument("--executor", choices=executors, help=f"how rows are run (default: {executor})")
    parser.add_argument("--dtype", choices=DTYPES, help="precision of the weights (default: auto)")
    parser.add_argument(
        "--compile", action="store_true", default=None, help="with --executor grid on CUDA: fuse what is captured"
    )
    parser.add_argument("--fp8", action="store_true", default=None, help="on Hopper and later: large layers in e4m3")
    parser.add_argument("--layout", choices=LAYOUT_NAMES, help="how the prompt is laid out")
    parser.add_argument(
        "--decider-config", metavar="FILE", help="a decider_config.json to read in place of the model's own"
    )
    parser.add_argument("--config", metavar="FILE", help="a TOML file of settings")


def model_arguments(parsed: argparse.Namespace) -> dict[str, Any]:
    """What was given for `add_model_options`, as keyword arguments of `Decider`."""
    return {name: getattr(parsed, name) for name in MODEL_OPTIONS}


def settings_of(parsed: argparse.Namespace, **overrides: object) -> Settings:
    """The settings of a command that makes no `Decider`; `overrides` win. Raises ConfigError."""
    given = model_arguments(parsed)
    file = given.pop("config")
    return load_settings(given | overrides, environ=os.environ, file=None if file is None else Path(file))


def settings_with_executor(parsed: argparse.Namespace, *, executors: Sequence[str], executor: str) -> Settings:
    """`settings_of`, with `executor` where nothing names one. Raises ConfigError for one that is not of `executors`."""
    settings = settings_of(parsed)
    if settings.sources["executor"] == "default":
        return replace(settings, executor=executor)
    if settings.executor not in executors:
        raise ConfigError(
            f"executor is {settings.executor!r:.60} ({settings.sources['executor']}); this command takes one of "
            f"{', '.join(executors)}"
        )
    return settings


def check_json_file(path: Path | None, option: str = "--json") -> None:
    """Raises ConfigError if `option` names what cannot be written, before a run of minutes ends there."""
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        raise ConfigError(f"{option} {str(path)!r:.120} cannot be written; name a file in a folder that is there")


def check_paths(read: Mapping[str, Path | None], written: Mapping[str, Path | None]) -> None:
    """Every path a command reads and writes, by its option; None is one that is not given.

    Raises ConfigError unless all that is read is regular files, which can be read twice, and whatever is written can be
    and is nothing else that is read or written, links followed.
    """
    for option, path in read.items():
        if path is not None and not os.path.exists(path):
            raise ConfigError(f"{option}: there is no file {str(path)!r:.120}; name one that is there")
        if path is not None and not os.path.isfile(path):
            raise ConfigError(f"{option} {str(path)!r:.120} is no regular file; save it as one, and name that")
    taken = {os.path.realpath(path) for path in read.values() if path is not None}
    for option, path in written.items():
        if path is None:
            continue
        check_json_file(path, option)
        if os.path.exists(path) and not os.path.isfile(path):
            raise ConfigError(f"{option} {str(path)!r:.120} is no regular file; name one, or a new one")
        place = os.path.realpath(path)
        if place in taken:
            raise ConfigError(f"{option} {str(path)!r:.120} is read or written otherwise too; name another file")
        taken.add(place)


def say(line: str) -> None:
    """Progress, on standard error."""
    print(f"decider: {line}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0, 2 for any fault, 130 when interrupted."""
    # Read when torch is loaded, so set before. Threads that spin while they wait slow each other many times over on a
    # machine that does anything else (measured: docs/log.md).
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Option names are any Unicode, and JSON is UTF-8 whatever the locale says.
        sys.stdout.reconfigure(encoding="utf-8")
    parsed = build_parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = parsed.run
    try:
        status = run(parsed)
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except DeciderError as error:
        return _fault(str(error))
    except BrokenPipeError:
        # The reader of a pipe has gone; pointing stdout at nothing keeps the interpreter's last flush from failing too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _fault(f"cannot write the output: {error.strerror or error}; free some space, or write elsewhere")
    except KeyboardInterrupt:
        print("decider: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


def _fault(message: str) -> int:
    if sys.stderr is not None:
        print(f"decider: error: {printable(' '.join(message.split()))}", file=sys.stderr)
    return EXIT_FAULT
