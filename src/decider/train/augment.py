"""The same decision put another way: options in another order, fewer of them, one that says "none", another layout.

It refuses to know tokens. What comes out depends on the seed, the epoch and the item's place alone, so that any worker
makes the same. Trap: a question must stay answerable. The right option is dropped only where one says that none fits,
and no such option is added where the question has one of its own.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from decider.errors import InputError
from decider.evaluate.labelled import LabelledItem
from decider.questions.jsontext import JsonValue, loads
from decider.questions.limits import DEFAULT_LIMITS
from decider.questions.request import Request
from decider.questions.types import Choice, Question, is_described

NONE_FITS = (
    "none of the above",
    "none of these",
    "not listed here",
    "something else",
    "no option fits",
    "another answer",
)
RIGHT_DROPPED = 0.25
"""Of the times an option of `NONE_FITS` is added, how often the right one is dropped for it."""
TWIN_OPTIONS = 16
"""A Choice of more is asked in one order: its options are what most of its tokens are."""
REWORDINGS = (
    "{} Choose one.",
    "Answer from the context: {}",
    "Decide: {}",
    "{} Pick the best option.",
    "Read the context. {}",
    "Which option is right? {}",
    "Task: {}",
)
_SAYS_NONE = re.compile(
    r"\b(none|no|not|other|others|another|else|neither|unknown|unclear|nothing|nobody|n/a|cannot|can't)\b",
    re.IGNORECASE,
)
_INDEX = "_index"
MOST_TEXT_CHARACTERS = 20_000
"""States longer than this stay JSON: reading them again would take longer than tokenising them."""


@dataclass(frozen=True, slots=True)
class Augmentation:
    """How often each change is made, as a probability; `OFF` makes none."""

    shuffle: float = 1.0
    """A Choice's options in another order."""
    subset: float = 0.25
    """Some of a Choice's wrong options left out."""
    abstain: float = 0.15
    """An option of `NONE_FITS` added to a Choice, and in `RIGHT_DROPPED` of these the right one dropped for it."""
    reword: float = 0.15
    """Instructions in one of `REWORDINGS`."""
    text_state: float = 0.3
    """A state that is a JSON object or array as lines of text."""
    schema_first: float = 0.3
    """The questions before the state, where the model is to be trained on that."""
    alone: float = 0.3
    """One question of several, without the others."""
    twin: float = 0.5
    """Each Choice of at most `TWIN_OPTIONS` asked in two orders of its options at once, where the two are compared
    (`loss.LossSpec.consistency`)."""


OFF = Augmentation(0, 0, 0, 0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Asking:
    """A request as it is trained on, with its right answers by question id."""

    request: Request
    gold: Mapping[str, int]


def asking_of(
    item: LabelledItem, augmentation: Augmentation, *, seed: int, epoch: int, index: int, schema_first: bool
) -> Asking:
    """The asking of `item`, the `index`-th of the data, in pass `epoch`.

    `schema_first`: whether layouts that put the questions first are trained. An item that names a layout keeps it.
    """
    draw = random.Random(f"{seed} {epoch} {index}")
    request, gold = item.request, dict(item.gold)
    questions = dict(request.questions)
    if request.independent and len(questions) > 1 and draw.random() < augmentation.alone:
        kept = draw.choice(list(questions))
        questions, gold = {kept: questions[kept]}, {kept: gold[kept]}
    for name in questions:
        questions[name], right = _changed(questions[name], gold.get(name), augmentation, draw)
        if right is not None:
            gold[name] = right
    state, layout = request.state, request.layout
    if draw.random() < augmentation.text_state:
        state = as_text(state)
    if layout is None and schema_first and draw.random() < augmentation.schema_first:
        layout = "plain_schema_first"
    changed = replace(request, state=state, layout=layout, questions=MappingProxyType(questions))
    return Asking(changed, MappingProxyType(gold))


def twin_of(asking: Asking, augmentation: Augmentation, *, seed: int, epoch: int, index: int) -> Asking | None:
    """The Choices of an asking in another order of their options, right behind it; None where it is asked once.

    Numbers are as in `asking_of`. Questions of one joint row have no twin: what each reads would double for all.
    """
    draw = random.Random(f"{seed} {epoch} {index} twin")
    questions: dict[str, Question] = {}
    gold: dict[str, int] = {}
    if not asking.request.independent or draw.random() >= augmentation.twin:
        return None
    for name, right in asking.gold.items():
        question = asking.request.questions[name]
        if isinstance(question, Choice) and 2 <= len(question.names) <= TWIN_OPTIONS:
            places = list(range(len(question.names)))
            while places == sorted(places):
                draw.shuffle(places)
            options = {question.names[place]: question.descriptions[place] for place in places}
            questions[name], gold[name] = Choice(question.instructions, options), places.index(right)
    if not questions:
        return None
    request = replace(asking.request, questions=MappingProxyType(questions))
    return Asking(request, MappingProxyType(gold))


def _changed(
    question: Question, gold: int | None, augmentation: Augmentation, draw: random.Random
) -> tuple[Question, int | None]:
    if isinstance(question.instructions, str) and question.instructions and draw.random() < augmentation.reword:
        question = replace(question, instructions=draw.choice(REWORDINGS).format(question.instructions))
    if not isinstance(question, Choice) or gold is None or len(question.names) < 2:
        return question, gold
    options = list(zip(question.names, question.descriptions, strict=True))
    right, says_none = options[gold], _has_none(options)
    if draw.random() < augmentation.subset and len(options) > 2:
        others = [option for option in options if option is not right]
        options = [right, *draw.sample(others, draw.randint(1, len(others) - 1))]
    if draw.random() < augmentation.abstain and not says_none and len(options) < DEFAULT_LIMITS.max_options:
        none: tuple[str, JsonValue] = (draw.choice(NONE_FITS), None)
        if len(options) > 2 and draw.random() < RIGHT_DROPPED:
            options.remove(right)
            right = none
        options.append(none)
    if draw.random() < augmentation.shuffle:
        draw.shuffle(options)
    return Choice(question.instructions, dict(options)), options.index(right)


def _has_none(options: list[tuple[str, JsonValue]]) -> bool:
    """Whether an option may itself say that no other fits. Rather too often than not: a yes/no list is left alone."""
    return any(
        _SAYS_NONE.search(name) or (is_described(text) and _SAYS_NONE.search(str(text))) for name, text in options
    )


def as_text(state: str) -> str:
    """A state that is a JSON object or array as indented `key: value` lines; any other as it is."""
    if state[:1] not in ("{", "[") or len(state) > MOST_TEXT_CHARACTERS:
        return state
    try:
        value = loads(state, DEFAULT_LIMITS)
    # Text that merely begins like JSON.
    except InputError:
        return state
    return "\n".join(_lines(value, "")) or state


def _lines(value: JsonValue, indent: str) -> list[str]:
    lines: list[str] = []
    pairs: list[tuple[str, JsonValue]]
    if isinstance(value, dict):
        pairs = [(str(key), element) for key, element in value.items() if key != _INDEX]
    elif isinstance(value, list):
        pairs = [("-", _bare(element)) for element in value]
    else:
        return [f"{indent}{_scalar(value)}"]
    for key, element in pairs:
        lead = f"{indent}-" if key == "-" and isinstance(value, list) else f"{indent}{key}:"
        if isinstance(element, (dict, list)) and element:
            lines += [lead, *_lines(element, indent + "  ")]
        else:
            lines.append(f"{lead} {_scalar(element)}".rstrip())
    return lines


def _bare(element: JsonValue) -> JsonValue:
    """An element of a long array without the position that the state's rendering put beside it."""
    if isinstance(element, dict) and element.keys() == {_INDEX, "value"}:
        return element["value"]
    return element


def _scalar(value: JsonValue) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    if isinstance(value, (dict, list)):
        return ""
    return str(value)
