"""How often what should not matter changes answers: by place, by name, by a real engine.

Refuses to judge answers. Trap: a fake that answers by place shows that the way back is the right way; one that answers
by name could not tell it from the wrong one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from asked_items import GOLD, QUESTIONS, URGENT, Fake, item, items, nothing, noul_items
from scipy.stats import binomtest  # type: ignore[attr-defined]

from decider import Decider
from decider.answering import RawAnswer
from decider.errors import TooLargeError
from decider.evaluate.sensitivity import MOST_ORDERS, Sensitivity, exact_interval, measure
from decider.questions.request import Request
from decider.questions.types import Choice, Question

TinyFolder = Callable[[str], Path]


def by_name(result: Sensitivity) -> dict[str, tuple[int, int, int, int]]:
    return {rate.name: (rate.n, rate.changed, rate.askings, rate.changed_askings) for rate in result.rates}


def test_a_model_that_answers_by_place_is_caught() -> None:
    many = Choice("Which?", [f"option {index}" for index in range(20)])
    questions: dict[str, Question] = QUESTIONS | {"many": many, "lone": Choice("?", ["only"])}
    gold = GOLD | {"many": 0, "lone": 0}
    asked_of = [item(f"t{index}", f"state {index}", questions, gold) for index in range(5)]
    fake = Fake(bias=2.0)
    result = measure(fake, asked_of, n_items=5, seed=0, say=nothing)
    assert by_name(result) == {
        "order": (10, 10, 5 * (2 + MOST_ORDERS - 1), 5 * (2 + MOST_ORDERS - 1)),
        "reversal": (10, 10, 10, 10),
        "ids": (30, 0, 30, 0),
        "neighbours": (30, 0, 30, 0),
    }
    order, reversal, ids, _ = result.rates
    first, other = np.exp(2) / (np.exp(2) + 2), 1 / (np.exp(2) + 2)
    assert order.largest_shift == pytest.approx(first - other, abs=1e-12)
    assert reversal.largest_shift == pytest.approx(first - other, abs=1e-12)
    assert ids.largest_shift == 0
    assert (order.rate, order.high) == (1.0, 1.0)
    assert order.low == pytest.approx(binomtest(10, 10).proportion_ci(method="exact").low)
    # Asked alone means a call of its own for every question.
    assert sum(len(chunk) == 1 and len(chunk[0].questions) == 1 for chunk in fake.requests) == 30
    renamed = [name for chunk in fake.requests for request in chunk for name in request.questions if name not in gold]
    assert len(renamed) == 30
    assert len(set(renamed)) == 6


class ByName(Fake):
    """Prefers the option whose name comes first in the alphabet, wherever it stands."""

    def _answers(self, request: Request) -> dict[str, RawAnswer]:
        answers = super()._answers(request)
        for name, question in request.questions.items():
            if isinstance(question, Choice):
                logits = np.array([-float(sorted(question.names).index(option)) for option in question.names])
                answers[name] = replace(answers[name], logits=logits - np.log(np.exp(logits).sum()))
        return answers


@pytest.mark.parametrize("independent", [True, False])
def test_the_way_back_is_the_right_one(independent: bool) -> None:
    names = ["delta", "alpha", "echo", "charlie", "bravo"]
    questions: dict[str, Question] = {"c": Choice("?", names), "d": Choice("?", names[:2]), "u": URGENT}
    asked_of = [item("t", "s", questions, {"c": 0, "d": 0, "u": 0}, independent=independent)]
    fake = ByName()
    result = measure(fake, asked_of, n_items=9, seed=0, say=nothing)
    assert by_name(result) == {
        "order": (2, 0, 5, 0),
        "reversal": (2, 0, 2, 0),
        "ids": (3, 0, 3, 0),
        "neighbours": (3, 0, 3, 0),
    }
    assert max(rate.largest_shift for rate in result.rates) < 1e-12
    # Requests are equal whatever the order of their options.
    own = repr(asked_of[0].request)
    asked = [request for chunk in fake.requests for request in chunk]
    turned = [list(request.questions) for request in asked if repr(request) != own]
    # Who shares a row is asked again with all that share it.
    assert turned.count(["c", "d", "u"]) == (0 if independent else 5)
    assert turned.count(["c", "d"]) == (2 if independent else 0)


def test_the_sample_is_drawn_by_its_seed_and_leaves_out_what_is_refused() -> None:
    states = [f"{index:03}" + "x" * (200 if index % 10 == 0 else 0) for index in range(100)]
    first, again, other = (Fake(), Fake(), Fake())
    results = [
        measure(fake, noul_items(states), n_items=40, seed=seed, say=nothing)
        for fake, seed in ((first, 1), (again, 1), (other, 2))
    ]
    assert first.taken == again.taken != other.taken
    assert results[0] == results[1]
    kept = {state for chunk in first.taken for state in chunk}
    assert results[0].items == len(kept) < 40
    assert not any(state.endswith("x") for state in kept)
    order = results[0].rates[0]
    assert (order.n, order.rate, order.low, order.high, order.largest_shift) == (0, None, None, None, 0.0)
    as_json = json.loads(json.dumps(results[0].to_json(), allow_nan=False))
    assert as_json["items"] == results[0].items
    assert [rate["name"] for rate in as_json["rates"]] == ["order", "reversal", "ids", "neighbours"]


def test_an_asking_that_is_refused_is_counted() -> None:
    class Narrow(Fake):
        def raw(self, requests: Sequence[Request]) -> list[dict[str, RawAnswer]]:
            for index, request in enumerate(requests):
                question = next(iter(request.questions.values()))
                if isinstance(question, Choice) and question.names[0] == "c":
                    raise TooLargeError("too long", loc=("requests", index))
            return super().raw(requests)

    asked_of = [item("t", "s", {"q": Choice("?", ["a", "b", "c"])}, {"q": 0})]
    order, reversal, *_ = measure(Narrow(), asked_of, n_items=1, seed=0, say=nothing).rates
    assert (order.n, order.askings, order.refused) == (1, 1, 1)
    assert (reversal.n, reversal.rate, reversal.refused) == (0, None, 1)


@pytest.mark.parametrize(("count", "n"), [(0, 7), (7, 7), (3, 40), (1, 1)])
def test_the_interval_is_clopper_and_pearsons(count: int, n: int) -> None:
    expected = binomtest(count, n).proportion_ci(method="exact")
    assert exact_interval(count, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("executor", ["reference", "packed"])
def test_a_real_engine_depends_on_order_and_on_nothing_else(tiny_folder: TinyFolder, executor: str) -> None:
    with Decider(tiny_folder("llama"), device="cpu", executor=executor) as decider:
        result = measure(decider, items(6), n_items=5, seed=3, say=nothing)
    order, reversal, ids, neighbours = result.rates
    assert order.n == reversal.n == 5
    assert order.askings == 10
    assert ids.n == neighbours.n == 20
    assert ids.changed == neighbours.changed == 0
    assert max(ids.largest_shift, neighbours.largest_shift) < 1e-4
    assert order.largest_shift > 1e-2
