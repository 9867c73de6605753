"""`decider` as a command: in a process of its own, many calls in one process without torch, or here, in the test's own.

A process costs seconds as soon as it imports torch, so it is for what only a process has: its streams as the system
gives them, its locale, its end, and what a library says when it is first imported. Refuses to hide an exit: `here`
takes the status that `sys.exit` would. Trap: `here` sees what goes through `sys.stdout`, and nothing below it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Call:
    """The words after `decider`, standard input, and variables; no other `DECIDER_…` variable is set."""

    arguments: Sequence[str]
    stdin: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Done:
    """How a call ended."""

    status: object
    """An exit status, or what `sys.exit` was called with."""
    stdout: str
    stderr: str


def environment(**variables: str) -> dict[str, str]:
    """This one, with `variables` and no other `DECIDER_…`."""
    return {name: value for name, value in os.environ.items() if not name.startswith("DECIDER_")} | variables


def process(*arguments: str, stdin: str | None = None, **variables: str) -> Done:
    """In a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "decider.cli", *arguments],
        input=stdin, env=environment(**variables), capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


def here(*arguments: str, stdin: str = "", **variables: str) -> Done:
    """In this process."""
    from decider.cli import main

    written = io.BytesIO(), io.BytesIO()
    out, err = (io.TextIOWrapper(stream, encoding="utf-8", write_through=True) for stream in written)
    read = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    status: object
    with _standing_in(read, environment(**variables)), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(arguments)
        except SystemExit as end:
            status = end.code
    return Done(status, *(stream.getvalue().decode() for stream in written))


@contextlib.contextmanager
def _standing_in(stdin: io.TextIOWrapper, environ: Mapping[str, str]) -> Iterator[None]:
    before, before_environ = sys.stdin, dict(os.environ)
    sys.stdin = stdin
    os.environ.clear()
    os.environ.update(environ)
    try:
        yield
    finally:
        sys.stdin = before
        os.environ.clear()
        os.environ.update(before_environ)


def without_torch(calls: Sequence[Call]) -> list[Done]:
    """One after the other in one process, in which a torch that cannot be imported proves that nothing tried."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "torch.py").write_text("raise SystemExit('torch was imported')")
        done = subprocess.run(
            [sys.executable, __file__],
            input=json.dumps([asdict(call) for call in calls]),
            env=environment(PYTHONPATH=folder), capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return [Done(**one) for one in json.loads(done.stdout)]


def assert_fault(done: Done, said: str) -> None:
    """Exit status 2, nothing on standard output, and one line that says `said`."""
    assert done.status == 2, done
    assert done.stdout == ""
    assert done.stderr.startswith("decider: error: ")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


if __name__ == "__main__":
    given = [Call(**one) for one in json.load(sys.stdin)]
    print(json.dumps([asdict(here(*call.arguments, stdin=call.stdin, **call.variables)) for call in given]))
