"""One side's part of `beside_published.py`: a child process under a time limit, and what it told, kept as JSON.

It refuses to know engines: a child prints a JSON object a line, `{"facts": {…}}`, `{"row": name, "figures": {…}}`,
`{"failed": name, "why": "…"}` or `{"said": "…"}`. Trap: compilers fork, and their processes hold the pipe open after
the child is gone. So a child leads a process group of its own, and the whole of it is ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

GRACE_S = 3.0
"""Between the signal that leaves a traceback and the one that leaves nothing."""
LAST_LINES = 20
"""Of a child's standard error, told where it ended early."""
SIDES = ("ours", "published")
_SAID = ("ms", "replay_ms", "products_ms", "rows_ms", "shared_ms", "padded_tokens")


@dataclass(frozen=True, slots=True)
class Part:
    """What one side was asked and what it told."""

    side: str
    shape: str
    precision: str
    """`bf16` or `fp8`; the published engine has bf16 alone."""
    date: str
    """When it began, UTC."""
    command: str
    names: tuple[str, ...]
    """The rows that were asked for, in order."""
    facts: Mapping[str, Any]
    rows: Mapping[str, Mapping[str, Any]]
    """Figures by row."""
    failed: Mapping[str, str]
    """Reasons by row, for every row without figures."""
    ended: str | None
    """Why the child ended before it was through; None where it did not."""
    wall_s: float

    def write(self, path: Path) -> None:
        """As JSON, the keys being these names."""
        path.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_part(path: Path) -> Part:
    """What `Part.write` wrote. Exits with a sentence for anything else."""
    try:
        found = json.loads(path.read_bytes())
        part = Part(**{**found, "names": tuple(found["names"])})
        if not all(isinstance(each, dict) for each in (part.facts, part.failed, *part.rows.values())):
            raise TypeError("facts, rows, failed and the figures of each row are objects")
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        sys.exit(f"{path} is no part of this benchmark ({error}); name a file that `--only` wrote")
    return part


def run_part(
    script: Sequence[str],
    plan: Mapping[str, Any],
    *,
    side: str,
    command: str,
    environ: Mapping[str, str],
    limit_s: float,
    say: Callable[[str], None],
) -> Part:
    """Run `script` with the plan's path as its last word, and gather what it tells for `limit_s` seconds."""
    began, date = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
    facts: dict[str, Any] = {}
    rows: dict[str, Any] = {}
    failed: dict[str, str] = {}

    def tell(text: str) -> None:
        say(f"[{time.monotonic() - began:5.1f} s] {side}: {text}")

    def take(event: Mapping[str, Any]) -> None:
        if "row" in event:
            rows[event["row"]] = figures = event["figures"]
            tell(f"{event['row']}: " + ", ".join(f"{key} {figures[key]:.6g}" for key in _SAID if figures.get(key)))
        elif "failed" in event:
            failed[event["failed"]] = event["why"]
            tell(f"{event['failed']} failed: {event['why']}")
        elif "facts" in event:
            facts.update(event["facts"])
            tell(", ".join(f"{key} {value}" for key, value in event["facts"].items()))
        else:
            tell(event["said"])

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        path.write_text(json.dumps(plan), encoding="utf-8")
        ended = _run([*script, str(path)], environ, limit_s, take, tell)
    names = tuple(case["name"] for case in plan["cases"])
    missing = {name: ended or "not told" for name in names if name not in rows and name not in failed}
    return Part(
        side=side,
        shape=plan["shape"],
        precision="fp8" if plan["fp8"] else "bf16",
        date=date,
        command=command,
        names=names,
        facts=facts,
        rows=rows,
        failed=failed | missing,
        ended=ended,
        wall_s=round(time.monotonic() - began, 1),
    )


def _run(
    command: Sequence[str],
    environ: Mapping[str, str],
    limit_s: float,
    take: Callable[[Mapping[str, Any]], None],
    tell: Callable[[str], None],
) -> str | None:
    """Hand every event to `take`; why the child ended early, or None, with the end of its standard error told."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        stopped = threading.Event()
        with subprocess.Popen(
            command,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=errors,
            encoding="utf-8",
            # What libraries print there may be anything.
            errors="replace",
            start_new_session=True,
        ) as child:

            def end(number: signal.Signals) -> None:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, number)

            def stop(number: signal.Signals) -> None:
                stopped.set()
                end(number)

            limits = {limit_s: signal.SIGINT, limit_s + GRACE_S: signal.SIGKILL}
            timers = [threading.Timer(after, stop, [number]) for after, number in limits.items()]
            for timer in timers:
                timer.start()
            try:
                assert child.stdout is not None
                for line in child.stdout:
                    if (event := _event(line)) is not None:
                        take(event)
                child.wait()
            finally:
                for timer in timers:
                    timer.cancel()
                end(signal.SIGKILL)
        if not stopped.is_set() and child.returncode == 0:
            return None
        errors.seek(0)
        lines = [line.rstrip() for line in errors if line.strip()][-LAST_LINES:]
    for line in lines:
        tell(f"  {line}")
    if stopped.is_set():
        return f"stopped at its limit of {limit_s:g} s"
    return f"exit status {child.returncode}: {lines[-1].strip()[:300] if lines else 'it said nothing'}"


def _event(line: str) -> Mapping[str, Any] | None:
    """None for what libraries print."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.keys() & {"facts", "row", "failed", "said"} else None
