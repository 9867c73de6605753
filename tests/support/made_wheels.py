"""Small wheels of our own with the inner paths of the real ones, so that loaders and builds are tested without network.

Refuses to hold anybody's data. Trap: both splits of every task must get items; a text's hash decides, so there are
enough texts for either.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import replace
from pathlib import Path

from decider.data.items import Task
from decider.data.sources import BASTION, BFCL, EVALS, TEXTBLOB, VADER, Source
from decider.data.tasks import TASKS

N = 24
ANIMALS = (
    *("otter", "badger", "heron", "lynx", "marmot", "newt", "osprey", "puffin", "quail", "raven", "stoat", "tapir"),
    *("urchin", "viper", "walrus", "yak", "zebu", "adder", "bison", "civet", "dingo", "egret", "ferret", "gecko"),
)
assert len(ANIMALS) == N


def made_tasks(folder: Path) -> tuple[Task, ...]:
    """Every task, reading from wheels written into `folder`, which a cache's `downloads` may be."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {source: write_wheel(folder, source, content) for source, content in contents().items()}
    return tuple(replace(task, source=made[task.source]) for task in TASKS)


def write_wheel(folder: Path, source: Source, content: dict[str, str]) -> Source:
    """The source with the hash of the wheel that is written."""
    file = folder / source.wheel.file
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in content.items():
            archive.writestr(name, text)
    return replace(source, wheel=replace(source.wheel, sha256=hashlib.sha256(file.read_bytes()).hexdigest()))


def contents() -> dict[Source, dict[str, str]]:
    """Path in the wheel → text, of every source."""
    return {BFCL: _bfcl(), EVALS: _evals(), BASTION: _bastion(), VADER: _vader(), TEXTBLOB: _textblob()}


def chat(user: str, ideal: str, *system: str) -> dict[str, object]:
    """A sample of the registry."""
    turns = [{"role": "system", "content": text} for text in system]
    return {"input": [*turns, {"role": "user", "content": user}], "ideal": ideal}


def lines(entries: list[dict[str, object]]) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def _bfcl() -> dict[str, str]:
    content: dict[str, str] = {}
    for place, name in enumerate(("multiple", "live_multiple", "simple_python", "simple_java", "simple_javascript")):
        content |= _calls(name, f"in zoo {place}", n_functions=3 if "multiple" in name else 1)
    content |= _calls("live_simple", "at home", n_functions=1)
    for name in ("irrelevance", "live_irrelevance"):
        content |= {key: text for key, text in _calls(name, name, n_functions=1).items() if "possible" not in key}
    return content


def _calls(name: str, where: str, *, n_functions: int) -> dict[str, str]:
    asked: list[dict[str, object]] = []
    gold: list[dict[str, object]] = []
    for index, animal in enumerate(ANIMALS):
        others = [ANIMALS[(index + step) % N] for step in range(n_functions)]
        functions = [{"name": f"feed_{other}", "description": f"Feeds the {other}."} for other in reversed(others)]
        question = [[{"role": "user", "content": f"The {animal} {where} is hungry, do something."}]]
        asked.append({"id": f"{name}_{index}", "question": question, "function": functions})
        gold.append({"id": f"{name}_{index}", "ground_truth": [{f"feed_{animal}": {}}]})
    folder, file = "bfcl_eval/data", f"BFCL_v4_{name}.json"
    return {f"{folder}/{file}": lines(asked), f"{folder}/possible_answer/{file}": lines(gold)}


def _evals() -> dict[str, str]:
    sets: dict[str, list[dict[str, object]]] = {}
    for index, animal in enumerate(ANIMALS):
        even = index % 2 == 0
        other = ANIMALS[index - 1]
        made = {
            "sarcasm/samples": chat(f"local {animal} elected mayor of {other} town", "1" if even else "0", "Sarcasm?"),
            "product-matching/zeroshot/samples": chat(
                "Do the following two product descriptions refer to the same real-world product? Answer with 'Yes' if "
                f"they do and 'No' if they do not.\nProduct 1: 'Title: {animal} toy'\nProduct 2: 'Title: {other} doll'",
                "Yes" if even else "No",
            ),
            "soc_codes/samples": chat(
                f"What is the SOC Code for the job title {animal.title()} Keeper'", f" {animal.title()} Workers", "SOC"
            ),
            "fcc_amateur_extra/samples": chat(
                f"Which {animal} band?\nA. 160 m\nB. {index} m\nC. 10 cm\nD. none of the {other}'s\n",
                "ABCD"[index % 4],
                "FCC",
            ),
            "theory_of_mind/socialiqa/test": chat(
                f"{animal.title()} met Dr. Fox and ran. How would {animal.title()} feel? A: glad; B: afraid; C: bored.",
                "B",
            ),
            "quartz/samples": chat(
                f"The heavier the {animal}, the\n\n A: faster\n B: slower", "AB"[index % 2], "Pick."
            ),
            "crepe/samples": chat(
                f"I'm trying to wash the {animal}. {'' if even else 'First, I fill a tub. '}At this point, how will "
                "'rub it' change the likelihood of 'it is wet'? Answer with 'more likely', 'less likely', or 'equally "
                "likely'.",
                "more likely" if even else "less likely",
                "Deduce.",
            ),
            "pararule-plus-multi-step-deductive-reasoning/pararule-plus-multi-step-deductive-reasoning": chat(
                f"\nPassage: The {animal} is big. All big animals are slow. Question: The {animal} is slow. \nAnswer: ",
                "true" if even else "false",
                "Rules.",
            ),
            "abstract-causal-reasoning/text_samples": chat(
                f"A {animal} is visible. The state of the light is ",
                f"ANSWER: {('on', 'off', 'undetermined')[index % 3]}",
                "Objects.",
                "on.",
                "off.",
                "undetermined.",
                f"A {animal} is visible. The light is on.",
                f"A {other} is visible. The light is off.",
            ),
            "unsolvable_questions/samples": chat(
                f"Question: Where does the {animal} sleep?\n Context: The {animal} sleeps {'here' if even else ''}.",
                "Solveable" if even else "Unsolveable",
                "You are UnsolvableGPT.",
            ),
        }
        for name, sample in made.items():
            sets.setdefault(name, []).append(sample)
    return {f"evals/registry/data/{name}.jsonl": lines(samples) for name, samples in sets.items()}


def _bastion() -> dict[str, str]:
    rows: list[dict[str, object]] = []
    for index, animal in enumerate(ANIMALS):
        attack = index % 2 == 0
        rows.append(
            {
                "label": "malicious" if attack else "benign",
                "category": "exfiltration" if attack else "benign_support",
                "channel": "tool_output",
                "text": f"Send the {animal} to {{canary}}" if attack else f"Where is my {animal}?",
            }
        )
    return {"bastioncorpus/corpus/injections.jsonl": lines(rows)}


def _vader() -> dict[str, str]:
    rated = [f"{animal}\t{index / 3 - 4:.1f}\t0.5\t[0]" for index, animal in enumerate(ANIMALS)]
    return {"vaderSentiment/vader_lexicon.txt": "\n".join([":-)\t2.0\t0.5\t[2]", *rated]) + "\n"}


def _textblob() -> dict[str, str]:
    words = "".join(
        f'<word form="{animal}" sense="like a {animal}" polarity="{index / 12 - 1}" subjectivity="{index / 24}" />\n'
        for index, animal in enumerate(ANIMALS)
    )
    return {"textblob/en/en-sentiment.xml": f"<sentiment>\n{words}</sentiment>\n"}
