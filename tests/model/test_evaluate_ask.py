"""Labelled items through a model: the columns they become, chunks, refusals, and what an interruption leaves.

Refuses to judge answers. Trap: what cannot be asked stops its whole chunk, so what is asked twice has to be counted.
"""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from asked_items import GOLD, LEVELS, QUESTIONS, TEAM, Fake, item, items, nothing, noul_items

from decider import Decider
from decider.answering import RawAnswer
from decider.decisions import CHOICE, NOUL, SCORE, distributions
from decider.errors import EngineError, QuestionError
from decider.evaluate import ask as ask_module
from decider.evaluate.ask import Interrupted, Refused, ask, run, run_facts
from decider.evaluate.labelled import read_labelled
from decider.questions.answers import ChoiceAnswer, NoulAnswer, ScoreAnswer
from decider.questions.request import Request
from decider.questions.types import Choice, Question
from decider.selective import class_names

TinyFolder = Callable[[str], Path]


@pytest.fixture(scope="module")
def decider(tiny_folder: TinyFolder) -> Iterator[Decider]:
    with Decider(tiny_folder("llama"), device="cpu", executor="reference", temperature=1.0) as ready:
        yield ready


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask_module, "CHUNK_ROWS", 4)
    monkeypatch.setattr(ask_module, "CHUNK_CHARACTERS", 400)


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
    assert run(Fake(), noul_items(["s"]), say=nothing).decisions.familiarity is None
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
        run(Fake(familiarity=0.5), items(2), say=nothing)
    assert caught.value.done == 1
    decisions = caught.value.asked.decisions
    assert decisions.key == tuple(f"t0/{name}" for name in QUESTIONS)
    assert decisions.familiarity is not None
    assert decisions.familiarity.tolist() == [0.5] * 4
