"""Labelled decisions that a tiny model can learn in seconds: which word the state holds.

Refuses to be hard. Trap: the right option must stand anywhere in its list, or a model learns a place.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

WORDS = ("red", "blue", "green", "black", "white", "brown", "pink", "grey")


def lines(n: int, *, seed: int = 0, task: str = "words", only: str | None = None) -> list[dict[str, Any]]:
    """`n` items of two questions, or the one called `only`: which of three words, and whether it is one of four."""
    draw = random.Random(f"{seed} {task}")
    made = []
    for number in range(n):
        word = draw.choice(WORDS)
        options = [word, *draw.sample([other for other in WORDS if other != word], 2)]
        draw.shuffle(options)
        dark = word in ("black", "brown", "blue", "green")
        state: Any = f"The box is {word}." if draw.random() < 0.7 else {"box": {"colour": word}}
        item: dict[str, Any] = {
            "id": f"{task}-{seed}-{number}",
            "task": task,
            "state": state,
            "questions": {
                "colour": {"type": "choice", "instructions": "Which colour?", "criteria": options},
                "dark": {"type": "noul", "instructions": "Is it dark?"},
            },
            "gold": {"colour": word, "dark": dark},
        }
        if only is not None:
            item |= {part: {only: item[part][only]} for part in ("questions", "gold")}
        made.append(item)
    return made


def write_data(folder: Path, n: int, n_held: int, *, seed: int = 0) -> Path:
    """`train.jsonl` and `heldout.jsonl` in `folder`, which is made; returns it."""
    folder.mkdir(exist_ok=True)
    for name, made in (("train", lines(n, seed=seed)), ("heldout", lines(n_held, seed=seed + 1))):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, made)) + "\n", encoding="utf-8")
    return folder
