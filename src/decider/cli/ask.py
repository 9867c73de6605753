"""`decider ask FILE|-`: answer one wire request, as a table or as the wire response.

It refuses to know how an answer comes about. Trap: the request is read and checked before `decider.api` is imported,
since that imports torch.
"""

from __future__ import annotations

import argparse
import codecs
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

from decider.cli import add_model_options, model_arguments
from decider.errors import SchemaError, TooLargeError
from decider.questions.limits import Limits
from decider.questions.request import check_error_rate
from decider.questions.wire import MODEL_ALIAS, parse_request
from decider.settings import load_settings

# A request may name the model to load; these names mean "whatever is served", as does what answers call decider-mini.
SERVED_NAMES = (MODEL_ALIAS, "decider-dev")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the subcommand."""
    parser = commands.add_parser("ask", help="answer a wire request", description="Answer one wire request.")
    parser.add_argument(
        "file", metavar="FILE", help="a JSON file with `state` and `questions`, or - for standard input"
    )
    add_model_options(parser)
    parser.add_argument("--temperature", type=float, help="override the model's temperatures")
    parser.add_argument(
        "--permutations", type=int, metavar="K", help="ask each Choice in K orders of its options, and average"
    )
    parser.add_argument(
        "--error-rate", type=float, metavar="RATE", help="add prediction sets and abstention at this rate of errors"
    )
    parser.add_argument("--truncate", action="store_true", default=None, help="cut a state over the cap, and report it")
    parser.add_argument(
        "--json", action="store_true", help="print the wire response and nothing else on standard output"
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Print the answers. Raises what reading, checking, loading and answering raise."""
    limits = Limits()
    request = parse_request(_read(parsed.file, limits.max_body_bytes), limits)
    if parsed.error_rate is not None:
        request = replace(request, error_rate=check_error_rate(parsed.error_rate))

    from decider.api import Decider
    from decider.cli.table import print_table
    from decider.model.mini import answers_name

    file = None if parsed.config is None else Path(parsed.config)
    configured = load_settings({}, environ=os.environ, file=file).model
    served = (*SERVED_NAMES, answers_name())
    named = None if request.model in served or configured is not None else request.model
    given = model_arguments(parsed) | {"temperature": parsed.temperature, "truncate": parsed.truncate}
    given["permutations"] = parsed.permutations
    if parsed.model is None:
        given["model"] = named
    decider = Decider(**given)
    # --model wins over whatever the request names; a configured model must be the one that is asked for.
    if parsed.model is None:
        decider.check_model(request)
    answers = decider.answer(request)
    if parsed.json:
        print(json.dumps(answers.to_wire(), ensure_ascii=False, allow_nan=False))
    else:
        print_table(request, answers)
    return 0


def _read(name: str, max_bytes: int) -> bytes:
    """The file's bytes, or standard input's; never more than one over the limit is read."""
    if name == "-" and sys.stdin is None:
        raise SchemaError("standard input is closed; pipe a JSON request into it, or give a JSON file")
    try:
        if name == "-":
            body = sys.stdin.buffer.read(max_bytes + 1)
        else:
            with Path(name).open("rb") as file:
                body = file.read(max_bytes + 1)
    except OSError as error:
        raise SchemaError(
            f"cannot read {name!r}: {error.strerror}; give a JSON file, or - for standard input"
        ) from error
    if len(body) > max_bytes:
        raise TooLargeError(
            f"{name!r} is over the limit of {max_bytes:,} bytes (max_body_bytes), far over any maximum context length; "
            "shorten the state or the questions"
        )
    # Some editors write a byte-order mark in front of a file; JSON has none.
    return body.removeprefix(codecs.BOM_UTF8)
