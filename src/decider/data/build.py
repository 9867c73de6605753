"""The folder of labelled decisions: for every task a calibration and a test file, both of all tasks, and a manifest.

It refuses to know how a package is read. Trap: nothing of the machine or the day may get into a file; two builds are
equal byte for byte, and `manifest.json` is how that is checked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from decider.data.fetch import Download, items_of
from decider.data.folder import MANIFEST, check_out, publish_out
from decider.data.items import Item, Task
from decider.data.split import Split, digest_of, split
from decider.errors import ConfigError, SetupError
from decider.model.wheel import Say, pip_download
from decider.questions.request import make_request
from decider.version import VERSION

LIMIT = 400
MADE_BY = "decider data build eval"
SIDES = ("calibrate", "test")
ID_DIGITS = 12


def build(
    out: Path,
    cache: Path,
    say: Say,
    *,
    tasks: Sequence[Task],
    limit: int = LIMIT,
    download: Download = pip_download,
) -> Path:
    """Write `out` as a whole, or leave it as it was; at most `limit` items a task and split.

    Raises ConfigError if `out` is a file or a folder of other things, or cannot be written; SetupError if a package
    cannot be fetched or read.
    """
    check_out(out, MADE_BY)
    say(f"{len(tasks)} tasks, at most {limit} items each for calibration and test")
    splits = {task: _read(task, cache, say, limit, download) for task in tasks}
    publish_out(out, lambda draft: _write(draft, splits, limit))
    return out


def named(names: Iterable[str], tasks: Sequence[Task]) -> tuple[Task, ...]:
    """The tasks of these names, in the usual order. Raises ConfigError for another name."""
    wanted = set(names)
    unknown = sorted(wanted - {task.name for task in tasks})
    if unknown:
        raise ConfigError(f"no task {unknown[0]!r:.60}; there are {', '.join(task.name for task in tasks)}")
    return tuple(task for task in tasks if task.name in wanted)


def _read(task: Task, cache: Path, say: Say, limit: int, download: Download) -> Split:
    file, items = items_of(task, cache, say, download)
    found = split(task, items, limit)
    if not found.calibrate or not found.test:
        raise SetupError(f"{task.name}: {file.name} gives no items for one of the splits; report this")
    say(
        f"{task.name}: {len(found.calibrate)} + {len(found.test)} of {found.n_found:,} items "
        f"({found.n_repeated} repeated, {found.n_near} near a test item)"
    )
    return found


def _write(draft: Path, splits: dict[Task, Split], limit: int) -> None:
    whole = dict.fromkeys(SIDES, b"")
    files: dict[str, bytes] = {}
    for task, found in splits.items():
        for side in SIDES:
            lines = b"".join(line_of(task.name, item) for item in _items(found, side))
            files[f"{task.name}.{side}.jsonl"] = lines
            whole[side] += lines
    files |= {f"all.{side}.jsonl": whole[side] for side in SIDES}
    for name, content in files.items():
        (draft / name).write_bytes(content)
    manifest = _manifest(splits, files, limit)
    (draft / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _items(found: Split, side: str) -> tuple[Item, ...]:
    return found.calibrate if side == "calibrate" else found.test


def line_of(name: str, item: Item) -> bytes:
    """The item as a line of a task's file."""
    # A loader that makes a question no decider takes is a bug of ours, and dies here.
    make_request(item.state, item.questions)
    line = {
        "id": f"{name}-{digest_of(item)[:ID_DIGITS]}",
        "task": name,
        "state": item.state,
        "questions": item.questions,
        "gold": item.gold,
    }
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


def _manifest(splits: dict[Task, Split], files: dict[str, bytes], limit: int) -> dict[str, object]:
    sources = sorted({task.source for task in splits}, key=lambda source: source.package)
    return {
        "made_by": MADE_BY,
        "decider_version": VERSION,
        "limit": limit,
        "sources": [
            {
                "requirement": source.wheel.requirement,
                "wheel": source.wheel.file,
                "sha256": source.wheel.sha256,
                "licence": source.licence,
            }
            for source in sources
        ],
        "tasks": {
            task.name: {
                "types": list(task.kinds),
                "options": task.options,
                "package": task.source.package,
                "licence": task.licence,
                "asks": task.asks,
                "items_found": found.n_found,
                "left_out_repeated": found.n_repeated,
                "left_out_near_test": found.n_near,
            }
            | {
                side: {
                    "items": len(_items(found, side)),
                    "decisions": sum(len(item.gold) for item in _items(found, side)),
                }
                for side in SIDES
            }
            for task, found in splits.items()
        },
        "files": hashes(files),
    }


def hashes(files: Mapping[str, bytes]) -> dict[str, object]:
    """Name → size and SHA-256, by name."""
    return {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in sorted(files.items())
    }
