"""`decider serve` with a fake brain, in a process of its own; as a script it is that process.

Refuses to know what is asked. Trap: a server that does not come up must not hang a test, so its first line is waited
for with a time limit, and its standard error is shown.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

START_S = 60.0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(eq=False)
class ServerProcess:
    """A running server. `lines` is its standard error so far."""

    process: subprocess.Popen[str]
    log: Path
    lines: list[str] = field(default_factory=list)

    def wait_for(self, pattern: str, timeout_s: float = START_S) -> re.Match[str]:
        """The first match in standard error."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            ended = self.process.poll() is not None
            if found := re.search(pattern, "\n".join(self.lines)):
                return found
            assert not ended, (self.process.returncode, self.lines)
            time.sleep(0.01)
        raise AssertionError((pattern, self.lines))

    @property
    def port(self) -> int:
        """Once it has said where it listens."""
        return int(self.wait_for(r"on http://\S+:(\d+)")[1])

    def rss_bytes(self) -> int:
        """Resident memory (Linux)."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * PAGE_BYTES

    def cpu_s(self) -> float:
        """Processor time up to now, user and system (Linux)."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def events(self) -> list[dict[str, object]]:
        """Its log up to now; a line that is being written is left out."""
        return [json.loads(line) for line in self.log.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def stop(self, number: int = signal.SIGTERM, timeout_s: float = 30.0) -> int:
        """Send a signal, and wait for the exit status."""
        self.process.send_signal(number)
        return self.process.wait(timeout_s)


@contextlib.contextmanager
def serving_fake(
    folder: Path,
    *,
    brain: Mapping[str, object] | None = None,
    config: Mapping[str, object] | None = None,
    load_s: float = 0.0,
    dies_on: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Iterator[ServerProcess]:
    """A server on a free port; killed at the end if it still runs. Its log goes to a file in `folder`.

    `brain` and `config` are fields of `FakeBrain` and `ServeConfig`; loading takes `load_s`; a pack with the text
    `dies_on` in it ends the engine's thread.
    """
    plan = {
        "brain": {"records": False, **(brain or {})},
        "config": {"port": 0, **(config or {})},
        "load_s": load_s,
        "dies_on": dies_on,
    }
    log = folder / "server.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, __file__, json.dumps(plan)],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environ or {})},
        )
    server = ServerProcess(process, log)

    def read() -> None:
        assert process.stderr is not None
        server.lines.extend([])
        for line in process.stderr:
            server.lines.append(line.rstrip("\n"))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield server
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        reader.join(5)
        assert process.stderr is not None
        process.stderr.close()


def main(plan: Mapping[str, object]) -> int:
    """What the process does."""
    from fake_brain import FakeBrain

    from decider.cli import say
    from decider.serve.brain import Brain
    from decider.serve.config import ServeConfig
    from decider.serve.service import Say, serve

    fields = plan["brain"]
    settings = plan["config"]
    load_s = plan["load_s"]
    dies_on = plan["dies_on"]
    assert isinstance(fields, dict)
    assert isinstance(settings, dict)
    assert isinstance(load_s, float)

    def load(say: Say) -> Brain:
        brain = FakeBrain(**fields)
        if load_s:
            say("warming up")
            time.sleep(load_s)
        if isinstance(dies_on, str):
            return dataclasses.replace(brain, fault=dying(dies_on))
        return brain

    return serve(load, ServeConfig(**settings), say=say)


def dying(text: str):  # type: ignore[no-untyped-def]
    """A `FakeBrain.fault` that ends the engine's thread for a row with `text` in it."""

    def fault(rows):  # type: ignore[no-untyped-def]
        return SystemExit(text) if any(text.encode() in bytes(row.ids) for row in rows) else None

    return fault


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.exit(main(json.loads(sys.argv[1])))
