"""How often an answer depends on what should not matter: the order of options, a question's id, its batch neighbours.

Each check asks a sample of items again, changed in one way, and counts the decisions whose answer (the likeliest
option, mapped back) is another one. It refuses to say which answer is right. Trap: a decision counts as changed where
any of its askings changed it, so that rate rises with their number; the changed askings are counted beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from types import MappingProxyType

import numpy as np

from decider.answering import RawAnswer
from decider.assembly import Say
from decider.errors import MissingDependencyError
from decider.evaluate.ask import Answers, Asker, Refused, ask
from decider.evaluate.labelled import LabelledItem
from decider.questions.request import Request
from decider.questions.rotate import rotations
from decider.questions.types import Choice, Question
from decider.read import Float64Array, normalise_levels

MOST_ORDERS = 8
"""Rotations of a Choice at most, its own order among them; of more options, so many spread evenly."""
LEVEL = 0.95

Back = Callable[[Float64Array], Float64Array]


@dataclass(frozen=True, slots=True)
class Rate:
    """One check. An asking is one decision asked again in one way."""

    name: str
    changed_what: str
    """What was changed, in words."""
    n: int
    """Decisions compared."""
    changed: int
    """Those whose answer was another in any asking."""
    rate: float | None
    """changed / n; None where nothing was compared."""
    low: float | None
    """The 95 % interval of the rate by Clopper and Pearson (1934), as if decisions were independent."""
    high: float | None
    askings: int
    changed_askings: int
    largest_shift: float
    """The largest |Δp| of an option, at temperature 1."""
    refused: int
    """Askings that the model could not take, such as a row that became too long."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """All checks on one sample."""

    items: int
    seed: int
    rates: tuple[Rate, ...]

    def to_json(self) -> dict[str, object]:
        """The fields by name, with a list of rates."""
        return {"items": self.items, "seed": self.seed, "rates": [asdict(rate) for rate in self.rates]}


@dataclass(frozen=True, slots=True)
class _Asking:
    """An item asked again: which of its decisions are compared, what they are called there, and the way back."""

    item: int
    request: Request
    compared: tuple[tuple[str, str, Back], ...]
    """(id in the item, id in the request, its distribution there → in the item's order of options)."""


def measure(decider: Asker, items: Sequence[LabelledItem], *, n_items: int, seed: int, say: Say) -> Sensitivity:
    """Every check on `n_items` of `items`, or all if they are fewer, drawn by `seed`.

    Raises MissingDependencyError without scipy, before anything is asked; EngineError as a forward does.
    """
    # Missing, it is better missed before the forwards than after them.
    exact_interval(0, 1)
    drawn = np.random.default_rng(seed).choice(len(items), min(n_items, len(items)), replace=False)
    sample = [items[index] for index in np.sort(drawn)]
    say(f"sensitivity: asking {len(sample):,} items in their own form")
    own = list(chain.from_iterable(ask(decider, [item.request for item in sample])))
    sound = [(item, answers) for item, answers in zip(sample, own, strict=True) if not isinstance(answers, Refused)]
    kept = [item for item, _ in sound]
    base = [{name: _shares(answer) for name, answer in answers.items()} for _, answers in sound]
    rates = []
    for name, changed_what, vary in (
        ("order", f"options rotated, {MOST_ORDERS} orders at most", _rotated),
        ("reversal", "options in reverse", _reversed),
        ("ids", "question ids renamed", _renamed),
        ("neighbours", "asked alone, not beside other items", _alone),
    ):
        askings = [asking for index, item in enumerate(kept) for asking in vary(index, item)]
        say(f"sensitivity: {name}, {len(askings):,} askings")
        requests = [asking.request for asking in askings]
        # A list of one is what asking alone means.
        groups = [[request] for request in requests] if vary is _alone else [requests]
        answers = chain.from_iterable(chunk for group in groups for chunk in ask(decider, group))
        rates.append(_rate(name, changed_what, base, zip(askings, answers, strict=True)))
    return Sensitivity(len(kept), seed, tuple(rates))


def _rotated(index: int, item: LabelledItem) -> list[_Asking]:
    askings = []
    for rotation in rotations(item.request, MOST_ORDERS):
        turned = {name for name in item.gold if rotation.offsets.get(name)}
        compared = tuple((name, name, _turn_back(rotation.offsets[name])) for name in item.gold if name in turned)
        if compared:
            askings.append(_Asking(index, rotation.request, compared))
    return askings


def _turn_back(offset: int) -> Back:
    return lambda shares: np.roll(shares, offset)


def _reversed(index: int, item: LabelledItem) -> list[_Asking]:
    questions = item.request.questions
    compared = tuple((name, name, np.flip) for name in item.gold if _has_order(questions[name]))
    if not compared:
        return []
    asked = {
        name: _reverse(question)
        for name, question in questions.items()
        if _has_order(question) or not item.request.independent
    }
    return [_Asking(index, replace(item.request, questions=MappingProxyType(asked)), compared)]


def _has_order(question: Question) -> bool:
    return isinstance(question, Choice) and len(question.names) > 1


def _reverse(question: Question) -> Question:
    if not isinstance(question, Choice):
        return question
    options = list(zip(question.names, question.descriptions, strict=True))
    return Choice(question.instructions, dict(reversed(options)))


def _renamed(index: int, item: LabelledItem) -> list[_Asking]:
    names = {name: f"{place}: {name[::-1]}" for place, name in enumerate(item.request.questions)}
    asked = {names[name]: question for name, question in item.request.questions.items()}
    compared = tuple((name, names[name], _as_it_is) for name in item.gold)
    return [_Asking(index, replace(item.request, questions=MappingProxyType(asked)), compared)]


def _alone(index: int, item: LabelledItem) -> list[_Asking]:
    if not item.request.independent:
        return [_Asking(index, item.request, tuple((name, name, _as_it_is) for name in item.gold))]
    questions = item.request.questions
    return [
        _Asking(
            index,
            replace(item.request, questions=MappingProxyType({name: questions[name]})),
            ((name, name, _as_it_is),),
        )
        for name in item.gold
    ]


def _as_it_is(shares: Float64Array) -> Float64Array:
    return shares


def _rate(
    name: str,
    changed_what: str,
    base: Sequence[dict[str, Float64Array]],
    asked: Iterable[tuple[_Asking, Answers]],
) -> Rate:
    changes: dict[tuple[int, str], list[bool]] = {}
    largest_shift, refused = 0.0, 0
    for asking, answers in asked:
        if isinstance(answers, Refused):
            refused += 1
            continue
        for own_name, asked_name, back in asking.compared:
            before = base[asking.item][own_name]
            after = back(_shares(answers[asked_name]))
            largest_shift = max(largest_shift, float(np.abs(after - before).max()))
            changes.setdefault((asking.item, own_name), []).append(bool(after.argmax() != before.argmax()))
    n, changed = len(changes), sum(map(any, changes.values()))
    low, high = exact_interval(changed, n) if n else (None, None)
    return Rate(
        name=name,
        changed_what=changed_what,
        n=n,
        changed=changed,
        rate=changed / n if n else None,
        low=low,
        high=high,
        askings=sum(map(len, changes.values())),
        changed_askings=sum(map(sum, changes.values())),
        largest_shift=largest_shift,
        refused=refused,
    )


def exact_interval(count: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a rate after `count` of `n` ≥ 1, by Clopper and Pearson (1934): it holds at any n."""
    try:
        from scipy.special import betaincinv
    except ImportError as error:
        raise MissingDependencyError(
            "the intervals are computed by scipy, which is not installed; run, in a checkout: pip install '.[eval]'"
        ) from error
    tail = (1 - LEVEL) / 2
    low = float(betaincinv(count, n - count + 1, tail)) if count else 0.0
    high = float(betaincinv(count + 1, n - count, 1 - tail)) if count < n else 1.0
    return low, high


def _shares(answer: RawAnswer) -> Float64Array:
    """A question's distribution at temperature 1."""
    if answer.isolated:
        # log σ(z), the levels' log-probability of yes.
        return normalise_levels((-np.logaddexp(0.0, -answer.logits)).tolist())
    return np.exp(answer.logits)
