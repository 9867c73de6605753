"""The folder of training data: `train.jsonl`, `heldout.jsonl` to stop early, and one held-out file for each task.

It refuses to know how a package is read. Trap: lines stand in the order of their hash, not by task, so that any first
part of a file is a fair sample of it; whoever trains on the first part of one task alone must sort for themselves.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from decider.data.build import hashes, line_of
from decider.data.families.catalogue import FAMILIES, HELD_OUT, STOPPING, items
from decider.data.families.making import Family
from decider.data.fetch import Download, downloaded, items_of
from decider.data.folder import MANIFEST, check_out, publish_out
from decider.data.items import Item
from decider.data.train_split import STOP_SHARE, share, train_split
from decider.data.train_tasks import NEVER, TRAINED, TrainTask
from decider.data.wordings import reworded
from decider.errors import ConfigError, SetupError
from decider.model.wheel import Say
from decider.version import VERSION

MADE_BY = "decider data build train"
MOST_STOP = 2900
"""Items of `heldout.jsonl`, shared out evenly among all tasks there are."""
FAMILY_TEST = 200
"""Items of a family's held-out file, the same for every seed."""


@dataclass(frozen=True, slots=True)
class _Written:
    """What is written of one task: lines, and what the manifest says."""

    train: tuple[bytes, ...]
    stop: tuple[bytes, ...]
    test: tuple[bytes, ...]
    about: Mapping[str, object]


def build_train(
    out: Path,
    cache: Path,
    say: Say,
    *,
    only: Sequence[str] | None = None,
    limit: int | None = None,
    seed: int = 0,
    tasks: Sequence[TrainTask] = TRAINED,
    families: Sequence[Family] = FAMILIES,
    download: Download = downloaded,
) -> Path:
    """Write `out` as a whole, or leave it as it was; at most `limit` items a task to train on, `seed` for the families.

    Raises ConfigError for an unknown name in `only`, or if `out` is a file or a folder of other things, or cannot be
    written; SetupError if a package cannot be fetched or read.
    """
    check_out(out, MADE_BY)
    names = [*(each.task.name for each in tasks), *(family.name for family in families)]
    wanted = set(names if only is None else only)
    if unknown := sorted(wanted - set(names)):
        why = f"it is never trained: {NEVER[unknown[0]]}" if unknown[0] in NEVER else f"there are {', '.join(names)}"
        raise ConfigError(f"no training task {unknown[0]!r:.60}; {why}")
    most_stop = max(1, MOST_STOP // len(names))
    started = time.monotonic()
    found: dict[str, _Written] = {}
    for each in tasks:
        if each.task.name in wanted:
            found[each.task.name] = _real(each, cache, say, limit, most_stop, download)
    for family in families:
        if family.name in wanted:
            found[family.name] = _made(family, seed, limit, most_stop)
            n_made = len(found[family.name].train)
            say(f"{family.name}: {n_made:,} items made ({time.monotonic() - started:.0f} s)")
    sources = [each for each in tasks if each.task.name in wanted]
    publish_out(out, lambda draft: _write(draft, found, sources, limit, seed))
    return out


def _real(each: TrainTask, cache: Path, say: Say, limit: int | None, most_stop: int, download: Download) -> _Written:
    task = each.task
    file, read = items_of(task, cache, say, download)
    parted = train_split(each, read, each.cap if limit is None else limit, most_stop)
    if not parted.train:
        raise SetupError(f"{task.name}: {file.name} gives no items to train on; report this")
    say(
        f"{task.name}: {len(parted.train):,} of {parted.n_found:,} items to train on ({parted.n_repeated} repeated, "
        f"{parted.n_evaluation} kept for evaluation, {parted.n_near} near those)"
    )
    about: dict[str, object] = {
        "types": list(task.kinds),
        "options": task.options,
        "package": task.source.package,
        "licence": task.licence,
        "asks": task.asks,
        "items_found": parted.n_found,
        "left_out_repeated": parted.n_repeated,
        "left_out_evaluation": parted.n_evaluation,
        "left_out_near": parted.n_near,
    }
    train, stop = ([reworded(task.name, item) for item in side] for side in (parted.train, parted.stop))
    return _written(task.name, about, train, stop, parted.test)


def _made(family: Family, seed: int, limit: int | None, most_stop: int) -> _Written:
    n = family.share if limit is None else min(limit, family.share)
    test = {asked_of(item): item for item in itertools.islice(items(family, HELD_OUT), FAMILY_TEST)}
    seen = set(test)
    train: list[Item] = []
    stop: list[Item] = []
    if family.held is not None:
        stopping = {asked_of(item): item for item in itertools.islice(items(family, STOPPING), most_stop)}
        stop = [item for asked, item in stopping.items() if asked not in seen]
    # Small families repeat themselves; then there are fewer items, and the manifest says so.
    for item in itertools.islice(items(family, f"seed {seed}"), 2 * n):
        asked = asked_of(item)
        if asked in seen:
            continue
        seen.add(asked)
        if family.held is None and share(asked, "stop") < STOP_SHARE and len(stop) < most_stop:
            stop.append(item)
        elif len(train) < n:
            train.append(item)
        if len(train) == n:
            break
    about: dict[str, object] = {
        "types": list(family.kinds),
        "options": family.options,
        "programmatic": True,
        "asks": family.asks,
    }
    return _written(family.name, about, train, stop, list(test.values()))


def asked_of(item: Item) -> str:
    """What an item asks, whatever the order of options; as canonical JSON."""
    questions = {
        key: {**question, "criteria": sorted(map(str, question["criteria"]))}  # type: ignore[call-overload]
        if question["type"] == "choice"
        else question
        for key, question in item.questions.items()
    }
    return json.dumps([item.state, questions], ensure_ascii=False, sort_keys=True)


def _written(
    name: str, about: dict[str, object], train: Sequence[Item], stop: Sequence[Item], test: Sequence[Item]
) -> _Written:
    sides = {"train": train, "heldout": stop, "test": test}
    counts = {
        side: {"items": len(found), "decisions": sum(len(item.gold) for item in found)} for side, found in sides.items()
    }
    lines = {side: tuple(line_of(name, item) for item in found) for side, found in sides.items()}
    return _Written(lines["train"], lines["heldout"], lines["test"], about | counts)


def _write(
    draft: Path, found: Mapping[str, _Written], tasks: Sequence[TrainTask], limit: int | None, seed: int
) -> None:
    files = {
        "train.jsonl": _mixed(lines.train for lines in found.values()),
        "heldout.jsonl": _mixed(lines.stop for lines in found.values()),
    }
    for name, lines in found.items():
        if lines.test:
            files[f"heldout.{name}.jsonl"] = b"".join(lines.test)
    for name, content in files.items():
        (draft / name).write_bytes(content)
    sources = sorted({each.task.source for each in tasks}, key=lambda source: source.package)
    manifest = {
        "made_by": MADE_BY,
        "decider_version": VERSION,
        "limit": limit,
        "seed": seed,
        "sources": [
            {
                "requirement": source.wheel.requirement,
                "file": source.wheel.file,
                "sha256": source.wheel.sha256,
                "licence": source.licence,
            }
            for source in sources
        ],
        "tasks": {name: lines.about for name, lines in found.items()},
        "never_trained": NEVER,
        "files": hashes(files),
    }
    (draft / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _mixed(parts: Iterable[tuple[bytes, ...]]) -> bytes:
    """All lines, by the hash of each."""
    return b"".join(sorted(itertools.chain.from_iterable(parts), key=lambda line: hashlib.sha256(line).digest()))
