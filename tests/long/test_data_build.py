"""`decider data build eval` for real: every package from the index, every task, twice.

Refuses to judge answers. Trap: a package that was replaced under its version fails the hash, and a loader that finds
fewer items than the documents say fails here alone.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from decider.data.build import LIMIT, MANIFEST, build
from decider.data.tasks import TASKS

MOST_STATE_CHARS = 2500
BUILD_S = 120.0

pytestmark = pytest.mark.long


def test_everything_is_fetched_and_built_the_same_twice(tmp_path: Path) -> None:
    started = time.monotonic()
    first = build(tmp_path / "first", tmp_path / "cache", print, tasks=TASKS, limit=LIMIT)
    elapsed_s = time.monotonic() - started
    print(f"\nfetched and built in {elapsed_s:.1f} s")
    assert elapsed_s <= BUILD_S

    second = build(tmp_path / "second", tmp_path / "cache", print, tasks=TASKS, limit=LIMIT)
    for path in first.iterdir():
        assert path.read_bytes() == (second / path.name).read_bytes()

    manifest = json.loads((first / MANIFEST).read_text(encoding="utf-8"))
    for task in TASKS:
        said = manifest["tasks"][task.name]
        assert (said["calibrate"]["decisions"], said["test"]["decisions"]) == task.n_decisions, task.name
    for side in ("calibrate", "test"):
        for line in (first / f"all.{side}.jsonl").read_text(encoding="utf-8").splitlines():
            state = json.loads(line)["state"]
            assert len(state if isinstance(state, str) else json.dumps(state)) <= MOST_STATE_CHARS
