"""Labelled items through a model, and how often what should not matter changes answers: on tiny models and on fakes.

Refuses to judge answers. Trap: a fake that answers by place shows that the way back is the right way; one that answers
by name could not tell it from the wrong one.
"""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from scipy.stats import binomtest  # type: ignore[attr-defined]

from decider import Decider
from decider.answering import RawAnswer
from decider.decisions import CHOICE, NOUL, SCORE, distributions
from decider.errors import EngineError, QuestionError, TooLargeError
from decider.evaluate import ask as ask_module
from decider.evaluate.ask import Interrupted, Refused, ask, run, run_facts
from decider.evaluate.labelled import LabelledItem, read_labelled
from decider.evaluate.sensitivity import MOST_ORDERS, Sensitivity, exact_interval, measure
from decider.questions.answers import ChoiceAnswer, NoulAnswer, ScoreAnswer
from decider.questions.request import Request, make_request
from decider.questions.types import Choice, Noul, Question, Score
from decider.selective import class_names

TinyFolder = Callable[[str], Path]
TEAM = Choice("Which team?", {"billing": "charges", "technical": None, "sales": None})
SEVERITY = Score("How severe?", ["none", "mild", "severe"])
LEVELS = Score("How bad?", ["a", "b", "c", "d"], isolated=True)
URGENT = Noul("Is it urgent?")
QUESTIONS: dict[str, Question] = {"team": TEAM, "severity": SEVERITY, "levels": LEVELS, "urgent": URGENT}
GOLD = {"team": 2, "severity": 1, "levels": 3, "urgent": 0}


def item(
    name: str, state: str, questions: dict[str, Question], gold: dict[str, int], *, independent: bool = True
) -> LabelledItem:
    request = make_request(state, questions, independent=independent)
    return LabelledItem(name, "mail", request, MappingProxyType(gold))


def items(n: int) -> list[LabelledItem]:
    return [item(f"t{index}", f"Charged {index} times. " * (1 + index % 3), QUESTIONS, GOLD) for index in range(n)]


@dataclass
class Fake:
    """Prefers the first option it is shown, `bias` over the others; `taken` keeps what was asked together."""

    bias: float = 1.0
    longest_state: int = 100
    taken: list[list[str]] = field(default_factory=list)
    requests: list[list[Request]] = field(default_factory=list)

    def raw(self, requests: Sequence[Request]) -> list[dict[str, RawAnswer]]:
        for index, request in enumerate(requests):
            if len(request.state) > self.longest_state:
                raise TooLargeError(f"{len(request.state)} tokens", loc=("requests", index, "state"))
        self.taken.append([request.state for request in requests])
        self.requests.append(list(requests))
        return [self._answers(request) for request in requests]

    def _answers(self, request: Request) -> dict[str, RawAnswer]:
        answers = {}
        for name, question in request.questions.items():
            logits = np.zeros(len(class_names(question)))
            logits[0] = self.bias
            isolated = isinstance(question, Score) and bool(question.isolated)
            if not isolated:
                logits -= np.log(np.exp(logits).sum())
            answers[name] = RawAnswer(logits, isolated, len(request.state))
        return answers


@pytest.fixture(scope="module")
def decider(tiny_folder: TinyFolder) -> Iterator[Decider]:
    with Decider(tiny_folder("llama"), device="cpu", executor="reference", temperature=1.0) as ready:
        yield ready


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask_module, "CHUNK_ROWS", 4)
    monkeypatch.setattr(ask_module, "CHUNK_CHARACTERS", 400)


def nothing(_: str) -> None:
    """Nobody listens."""


def noul_items(states: Sequence[str]) -> list[LabelledItem]:
    return [item(f"t{index}", state, {"u": URGENT}, {"u": 1}) for index, state in enumerate(states)]


@pytest.mark.usefixtures("one_thread")
def test_columns_hold_what_the_decider_answers(decider: Decider, tmp_path: Path) -> None:
    asked_of = [*items(3), item("joint", "Charged.", QUESTIONS, {"urgent": 1}, independent=False)]
    lone = item("lone", "Charged.", {"one": Choice("Which?", ["only"])}, {"one": 0})
    asked = run(decider, [*asked_of, lone], say=nothing)
    assert asked.refused == ()
    decisions = asked.decisions
    assert decisions.key == (*(f"t{n}/{name}" for n in range(3) for name in QUESTIONS), "joint/urgent", "lone/one")
    assert decisions.task == ("mail",) * 14
    assert decisions.kind.tolist() == [*[CHOICE, SCORE, SCORE, NOUL] * 3, NOUL, CHOICE]
    assert decisions.n_options.tolist() == [*[3, 3, 4, 2] * 3, 2, 1]
    assert decisions.gold.tolist() == [*[2, 1, 3, 0] * 3, 1, 0]
    assert decisions.isolated.tolist() == [*[False, False, True, False] * 3, False, False]
    named = [decisions.option_lists[which] for which in decisions.option_list]
    assert named[:4] == [TEAM.names, ("0", "1", "2"), ("0", "1", "2", "3"), ("no", "yes")]
    assert len(decisions.option_lists) == 5
    assert (decisions.row_tokens[:13] > 20).all()
    assert decisions.row_tokens[13] == 0

    shares = iter(distributions(decisions, 1.0))
    for each in [*asked_of, lone]:
        answers = decider.answer(each.request)
        for name in each.gold:
            answer = answers[name]
            if isinstance(answer, ChoiceAnswer):
                expected = list(answer.probabilities.values())
            elif isinstance(answer, ScoreAnswer):
                expected = list(answer.probabilities)
            else:
                assert isinstance(answer, NoulAnswer)
                expected = [1 - answer.noul, answer.noul]
            np.testing.assert_allclose(next(shares)[: len(expected)], expected, atol=1e-6)

    data = tmp_path / "tickets.jsonl"
    data.write_text(
        json.dumps({"state": "s", "questions": {"u": {"type": "noul", "question": "?"}}, "gold": {"u": True}})
    )
    facts = run_facts(decider, read_labelled(data), data)
    assert (facts.dtype, facts.executor, facts.layout, facts.permutations) == ("fp32", "reference", "plain", 1)
    assert (facts.data, len(facts.data_sha256)) == ("tickets.jsonl", 64)
    [single] = read_labelled(data)
    chat = replace(single, request=replace(single.request, layout="chat"))
    assert run_facts(decider, [chat], data).layout == "chat"
    assert run_facts(decider, [single, chat], data).layout == "mixed"


@pytest.mark.usefixtures("one_thread")
def test_an_item_over_the_cap_costs_no_other_its_answer(tiny_folder: TinyFolder) -> None:
    with Decider(tiny_folder("llama"), device="cpu", executor="reference", max_state_tokens=20) as decider:
        sound = run(decider, noul_items(["Charged."] * 3), say=nothing).decisions
        asked = run(decider, noul_items(["Charged.", "word " * 40, "Charged.", "Charged."]), say=nothing)
    assert asked.decisions.key == ("t0/u", "t2/u", "t3/u")
    np.testing.assert_array_equal(asked.decisions.logits, sound.logits)
    [(name, reason)] = asked.refused
    assert name == "t1"
    assert reason.startswith("state: the state has ")
    assert "requests" not in reason


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("states", ["sound", "LsLLssLL", "LLLLLs", "s", "sL" * 9, "ssssL"])
def test_refusals_keep_the_order_and_ask_nothing_twice(states: str) -> None:
    fake = Fake()
    long = [letter == "L" for letter in states]
    given = [f"{index:03}{'x' * 200 if is_long else ''}" for index, is_long in enumerate(long)]
    asked = run(fake, noul_items(given), say=nothing)
    kept = [index for index, is_long in enumerate(long) if not is_long]
    assert asked.decisions.key == tuple(f"t{index}/u" for index in kept)
    assert asked.refused == tuple((f"t{index}", "state: 203 tokens") for index, is_long in enumerate(long) if is_long)
    assert sorted(state for chunk in fake.taken for state in chunk) == [given[index] for index in kept]


def test_nothing_to_ask_gives_nothing_and_nothing_askable_is_an_error() -> None:
    asked = run(Fake(), [], say=nothing)
    assert (len(asked.decisions), asked.decisions.logits.shape, asked.refused) == (0, (0, 0), ())
    with pytest.raises(QuestionError, match="none of 2 items can be asked; the first, 't0': state: 200 tokens"):
        run(Fake(), noul_items(["x" * 200] * 2), say=nothing)


def test_a_fault_of_the_engine_or_of_no_request_ends_the_run() -> None:
    class Broken(Fake):
        def raw(self, requests: Sequence[Request]) -> list[dict[str, RawAnswer]]:
            raise EngineError("out of memory") if len(requests) == 1 else QuestionError("never", loc=("layout",))

    with pytest.raises(EngineError):
        run(Broken(), noul_items(["s"]), say=nothing)
    with pytest.raises(QuestionError, match="layout: never"):
        run(Broken(), noul_items(["s", "s"]), say=nothing)


@pytest.mark.usefixtures("small_chunks")
def test_chunks_are_bounded_by_rows_and_by_characters() -> None:
    fake = Fake(longest_state=10_000)
    run(fake, noul_items(["a"] * 10), say=nothing)
    assert [len(chunk) for chunk in fake.taken] == [4, 4, 2]
    fake.taken.clear()
    run(fake, noul_items(["a" * 150] * 5), say=nothing)
    assert [len(chunk) for chunk in fake.taken] == [2, 2, 1]
    fake.taken.clear()
    run(fake, noul_items(["a", "a" * 5000, "a"]), say=nothing)
    assert [len(chunk) for chunk in fake.taken] == [1, 1, 1]
    fake.taken.clear()
    # Four rows of levels are a chunk; in one row, three such requests are three.
    run(fake, [item(f"t{index}", "a", {"l": LEVELS}, {"l": 0}) for index in range(2)], say=nothing)
    run(fake, [item(f"t{index}", "a", {"l": LEVELS}, {"l": 0}, independent=False) for index in range(3)], say=nothing)
    assert [len(chunk) for chunk in fake.taken] == [1, 1, 3]


@pytest.mark.usefixtures("small_chunks")
def test_progress_has_a_rate_and_the_time_left() -> None:
    seconds = iter(range(0, 10_000, 8))
    said: list[str] = []
    run(Fake(), noul_items(["a", "x" * 200, *["a"] * 14]), say=said.append, clock=lambda: float(next(seconds)))
    assert said == [
        "asked 8 of 16 items, 0.5 a second, 16 s left; 1 refused",
        "asked 16 items in 40 s, 0.4 a second; 1 refused",
    ]


def test_asking_is_lazy() -> None:
    fake = Fake()
    chunks = ask(fake, [each.request for each in noul_items(["a"] * (ask_module.CHUNK_ROWS + 1))])
    assert fake.taken == []
    first = next(chunks)
    assert len(first) == ask_module.CHUNK_ROWS
    assert not any(isinstance(answers, Refused) for answers in first)
    assert len(fake.taken) == 1


def test_memory_does_not_grow_with_the_items_but_for_results() -> None:
    class Heavy(Fake):
        def raw(self, requests: Sequence[Request]) -> list[dict[str, RawAnswer]]:
            rows = [[token + 10**6 for token in range(200)] for _ in requests]
            return [self._answers(request) for request, _ in zip(requests, rows, strict=True)]

    peaks = []
    for n in (1000, 4000):
        given = noul_items(["a"] * n)
        tracemalloc.start()
        run(Heavy(), given, say=nothing)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[0] > 3e6
    assert peaks[1] - peaks[0] < 3000 * 1000


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


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("stop", [0, 1, 3])
def test_an_interrupted_run_keeps_what_was_asked(stop: int) -> None:
    """In the middle of a forward, after `stop` of them; items are asked one in a forward, and the second is refused."""

    class Stopping(Fake):
        def raw(self, requests: Sequence[Request]) -> list[dict[str, RawAnswer]]:
            if len(self.taken) == stop:
                raise KeyboardInterrupt
            return super().raw(requests)

    asked_of = [item(f"t{n}", "x" * (200 if n == 1 else 10), QUESTIONS, GOLD) for n in range(6)]
    with pytest.raises(Interrupted) as caught:
        run(Stopping(longest_state=100), asked_of, say=nothing)
    assert isinstance(caught.value, KeyboardInterrupt)
    decisions = caught.value.asked.decisions
    n_answered = caught.value.done - len(caught.value.asked.refused)
    assert n_answered == stop
    whole = run(Fake(longest_state=100), asked_of, say=nothing).decisions
    assert decisions.key == whole.key[: 4 * stop]
    np.testing.assert_array_equal(decisions.gold, whole.gold[: 4 * stop])
    np.testing.assert_array_equal(decisions.logits, whole.logits[: 4 * stop, : decisions.logits.shape[1]])


def test_an_interruption_between_an_items_questions_keeps_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    names = iter("abcdef")

    def interrupt(question: Question) -> tuple[str, ...]:
        if next(names) == "f":
            raise KeyboardInterrupt
        return class_names(question)

    monkeypatch.setattr(ask_module, "class_names", interrupt)
    monkeypatch.setattr(ask_module, "CHUNK_ROWS", 1)
    with pytest.raises(Interrupted) as caught:
        run(Fake(), items(2), say=nothing)
    assert caught.value.done == 1
    assert caught.value.asked.decisions.key == tuple(f"t0/{name}" for name in QUESTIONS)
