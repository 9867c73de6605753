"""Small packages of our own for the training sets: a wheel and two npm packages, and two little families.

Refuses to hold anybody's data. Trap: a set needs enough texts that some are held out and some are not,
and texts unlike each other, or all are near-copies of what is held out.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import random
import tarfile
from dataclasses import replace
from pathlib import Path

from made_wheels import ANIMALS, N, chat, contents, lines, write_wheel

from decider.data.everyday import LANGUAGES
from decider.data.families.making import Family, item
from decider.data.items import Item, noul
from decider.data.sources import EVALS, REVIEWS, SPAM, Source
from decider.data.train_tasks import TRAINED, TrainTask

PLACES = ("barn", "cave", "dune", "fjord", "grove", "lake")


def made_training(folder: Path) -> tuple[TrainTask, ...]:
    """Every training set, reading from packages written into `folder`, which a cache's `downloads` may be."""
    folder.mkdir(parents=True, exist_ok=True)
    wheels = contents()
    wheels[EVALS] = _more_samples(wheels[EVALS]) | _evals()
    made = {source: write_wheel(folder, source, content) for source, content in wheels.items()}
    made[REVIEWS] = write_npm(folder, REVIEWS, _reviews())
    made[SPAM] = write_npm(folder, SPAM, _mails())
    return tuple(replace(each, task=replace(each.task, source=made[each.task.source])) for each in TRAINED)


def made_families() -> tuple[Family, ...]:
    """One family with plenty of items, and one that soon repeats itself."""
    return (
        Family("big", ("noul",), "yes, no", "whether a number is even", 60, lambda rng: _even(rng, 10**6)),
        Family("small", ("noul",), "yes, no", "whether a small number is even", 60, lambda rng: _even(rng, 6)),
    )


def write_npm(folder: Path, source: Source, content: dict[str, str]) -> Source:
    """The source with the hash of the package that is written."""
    file = folder / source.wheel.file
    with tarfile.open(file, "w:gz") as archive:
        for name, text in content.items():
            data = text.encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return replace(source, wheel=replace(source.wheel, sha256=hashlib.sha256(file.read_bytes()).hexdigest()))


def _even(rng: random.Random, most: int) -> Item:
    number = rng.randrange(most)
    return item(f"Number: {number}", [(noul("Is it even?"), number % 2 == 0)])


def unlike(seed: str) -> str:
    """A text of eight words that shares few of its pairs with another seed's."""
    return " ".join(random.Random(seed).choices(ANIMALS, k=8))


def _more_samples(made: dict[str, str]) -> dict[str, str]:
    """Forty times the headlines."""
    name = "evals/registry/data/sarcasm/samples.jsonl"
    # More than an evaluation shows, or nothing is left.
    samples = [chat(unlike(f"headline {n}"), "01"[n % 2], "Sarcasm?") for n in range(40 * N)]
    return made | {name: lines(samples)}


def _evals() -> dict[str, str]:
    pairs = list(itertools.product(ANIMALS, PLACES))
    made = {
        "event_categories/samples": [
            chat(
                f"{place} daemon: {animal} found {unlike(place + animal)}",
                ("Information", "Error")[index % 2],
                "Label.",
            )
            for index, (animal, place) in enumerate(pairs)
        ],
        "bias_detection/samples": [
            chat(
                f"The {animal} of {unlike(place + animal)} said no.",
                f"[{('claim', 'quote', 'fact')[index % 3]}]",
                "Classify.",
            )
            for index, (animal, place) in enumerate(pairs)
        ],
    }
    for language in LANGUAGES:
        made[f"{language}-exams-qa/samples"] = [
            chat(
                f"{language} {animal} {unlike(language + animal)}?\nA. {animal}\nB. yes\nC. no\nAnswer:",
                f"[{'ABC'[index % 3]}]",
                "Letter.",
            )
            for index, animal in enumerate(ANIMALS)
        ]
    return {f"evals/registry/data/{name}.jsonl": lines(samples) for name, samples in made.items()}


def _reviews() -> dict[str, str]:
    content = {}
    for site in ("imdb", "yelp", "amazon"):
        rows: list[dict[str, object]] = [
            {"text": f"{animal} {site} was good: {unlike(site + animal + place)}. ", "class": index % 2}
            for index, (animal, place) in enumerate(itertools.product(ANIMALS, PLACES))
        ]
        content[f"package/test/fixtures/{site}.json"] = json.dumps([*rows, {}])
    return content


def _mails() -> dict[str, str]:
    content = {"package/data/file_list.json": "[]", "package/package.json": "{}"}
    for index, (animal, place) in enumerate(itertools.product(ANIMALS, PLACES)):
        group = ("spam-1", "spam-2", "easy-ham-1", "hard-ham-1")[index % 4]
        text = f"From: x@y.z\nSubject: {animal} news\n\nBuy the {animal}\nof {unlike(animal + place)}.\n"
        content[f"package/data/{group}/{index:05d}.json"] = json.dumps({"group": group, "text": text})
        content[f"package/data/{group}/{index:05d}.txt"] = text
    return content
