"""A real, tiny model behind the scheduler: its answers are `Decider.answer`'s.

Refuses to check what the answers are worth. Trap: the same pack gives the same bits; another pack may differ in the
last ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from decider import Choice, Decider, Noul, Question, QuestionError, Score, TooLargeError
from decider.questions.request import Request, make_request
from decider.serve.brain import DeciderBrain, prepared
from decider.serve.scheduler import QueueLimits, Scheduler, Timed
from decider.tokens.rows import Row

TinyFolder = Callable[[str], Path]
STATE = "My card was charged twice for order 4417."
QUESTIONS: dict[str, Question] = {
    "team": Choice("Which team?", {"billing": "charges", "technical": None, "sales": None}),
    "severity": Score("How severe?", ["none", "mild", "severe"]),
    "levels": Score("How bad?", ["none", "mild", "severe"], isolated=True),
    "urgent": Noul("Is it urgent?"),
    "lone": Choice("Which?", ["only"]),
}

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module", params=["packed", "reference"])
def decider(request: pytest.FixtureRequest, tiny_folder: TinyFolder) -> Iterator[Decider]:
    with Decider(tiny_folder("llama"), device="cpu", executor=request.param, dtype="float32") as made:
        yield made


def serve(brain: DeciderBrain, requests: list[Request], limits: QueueLimits | None = None) -> list[Timed]:
    async def all_at_once() -> list[Timed]:
        return await asyncio.gather(*(scheduler.answer(request, deadline_s=60) for request in requests))

    scheduler = Scheduler(brain, limits or QueueLimits())
    scheduler.start()
    try:
        return asyncio.run(all_at_once())
    finally:
        scheduler.stop()


def numbers(timed: Timed) -> list[float]:
    found: list[float] = []
    for answer in timed.answers.values():
        wire = answer.to_wire()
        probabilities = wire.get("probabilities", {"yes": wire.get("noul")})
        assert isinstance(probabilities, dict)
        found += probabilities.values()
    return found


@pytest.mark.parametrize("independent", [True, False])
def test_alone_the_answers_are_those_of_the_python_api_to_the_bit(decider: Decider, independent: bool) -> None:
    request = make_request(STATE, QUESTIONS, independent=independent)
    [timed] = serve(DeciderBrain(decider), [request])
    assert timed.answers.to_wire() == decider.answer(request).to_wire()
    assert timed.n_rows == (6 if independent else 1)


def test_beside_others_and_over_several_packs_they_are_the_same_but_for_rounding(decider: Decider) -> None:
    request = make_request(STATE, QUESTIONS)
    others = [make_request(f"{STATE} {index}", {"q": Noul(f"Is it {index}?")}) for index in range(12)]
    expected = serve(DeciderBrain(decider), [request])[0]
    found = serve(DeciderBrain(decider), [*others, request, *others], QueueLimits(pack_tokens=150))[12]
    assert numbers(found) == pytest.approx(numbers(expected), abs=1e-5)


def test_an_unknown_model_is_refused_and_the_alias_is_served(decider: Decider) -> None:
    brain = DeciderBrain(decider)
    with pytest.raises(QuestionError, match="unknown model"):
        serve(brain, [make_request(STATE, QUESTIONS, model="other")])
    [timed] = serve(brain, [make_request(STATE, QUESTIONS, model="jev-latest")])
    assert timed.answers.model == decider.name


def test_a_state_over_the_models_cap_is_too_large(decider: Decider) -> None:
    with pytest.raises(TooLargeError, match="maximum context length"):
        serve(DeciderBrain(decider), [make_request("word " * 50_000, QUESTIONS)])


def test_a_shared_state_counts_once_where_the_executor_runs_it_once(decider: Decider) -> None:
    brain = DeciderBrain(decider)
    one = brain.prepare(make_request(STATE * 5, {"a": Noul("First?")}))
    three = brain.prepare(make_request(STATE * 5, {"a": Noul("First?"), "b": Noul("Second?"), "c": Noul("Third?")}))
    in_full = sum(len(row.ids) for row in three.rows)
    if decider.executor_name == "packed":
        assert three.n_tokens < in_full / 2
        assert three.n_tokens - one.n_tokens < one.n_tokens / 2
    else:
        assert three.n_tokens == in_full
    assert sum(three.added_tokens) == three.n_tokens


def test_a_brain_says_what_it_is(decider: Decider) -> None:
    brain = DeciderBrain(decider)
    serve(brain, [make_request(STATE, QUESTIONS)])
    [entry] = brain.models
    assert entry.name == brain.name == decider.name
    assert (entry.description, entry.release_date) != ("", "")
    told = brain.describe()
    assert told["executor"] == decider.executor_name
    stats = told["stats"]
    assert isinstance(stats, dict)
    assert (stats["eager_forwards"] > 0) == (decider.executor_name == "packed")


def test_starts_of_unequal_length_share_the_shorter() -> None:
    long = Row((1, 2, 3, 4, 9, 9), (5,), (2,), 4)
    short = Row((1, 2, 3, 8), (3,), (2,), 3)
    other = Row((7, 2, 3, 8), (3,), (2,), 3)

    def added(rows: tuple[Row, ...], shared_from_tokens: int | None = 1) -> tuple[int, ...]:
        return prepared(rows, (), lambda _scores: None, shared_from_tokens=shared_from_tokens).added_tokens  # type: ignore[arg-type, return-value]

    assert added((long, short)) == (6, 1)
    assert added((short, long)) == (4, 3)
    assert added((short, other)) == (4, 4)
    assert added((long, short), 4) == (6, 4)
    assert added((long, long), 4) == (6, 2)
    assert added((long, long), None) == (6, 6)


def test_closing_the_brain_closes_the_model(tiny_folder: TinyFolder) -> None:
    decider = Decider(tiny_folder("llama"), device="cpu", executor="packed", dtype="float32")
    DeciderBrain(decider).close()
    from decider import EngineError

    with pytest.raises(EngineError, match="closed"):
        decider.ask(STATE, QUESTIONS)
