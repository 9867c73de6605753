"""Several engines behind one call: where its parts go, what comes back, and what one's fault or end takes.

Refuses to need a model. Trap: which engine is free first is a race; a test that needs one holds it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest
from fake_executor import AcceleratorError, FakeExecutor
from pack_rows import row

from decider import ConfigError, EngineError
from decider.engine import Engine, Engines
from decider.plan.shares import LEAST_TOKENS, even_parts
from decider.tokens.rows import Row


def engines() -> tuple[Engines, FakeExecutor, FakeExecutor]:
    one, two = FakeExecutor(), FakeExecutor()
    return Engines({"one": Engine(one), "two": Engine(two)}), one, two


ROWS = [row(*[index] * 64, prefix=0, n_slots=1 + index % 3) for index in range(4 * LEAST_TOKENS // 64)]


def test_parts_come_back_in_order_with_their_own_temperatures() -> None:
    both, one, two = engines()
    temperatures = [[1.0 + 0.1 * (index % 7)] * len(each.slots) for index, each in enumerate(ROWS)]
    expected = Engine(FakeExecutor()).score(ROWS, temperatures)
    found = both.score(ROWS, temperatures)
    assert (one.calls, two.calls) == ([64], [64])
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.stack(ours), np.stack(theirs))
    # A call that is not cut has its temperatures, too.
    for ours, theirs in zip(both.score(ROWS[:5], temperatures[:5]), expected, strict=False):
        np.testing.assert_array_equal(np.stack(ours), np.stack(theirs))
    one.calls, two.calls = [64], [64]
    with pytest.raises(ConfigError):
        both.score(ROWS, [1.0])
    assert len(one.calls) == len(two.calls) == 1
    assert both.score([]) == ()


def test_a_call_goes_to_the_engine_with_the_least_to_do() -> None:
    both, one, two = engines()
    one.hold = threading.Event()
    thread = threading.Thread(target=both.score, args=(ROWS[:3],))
    thread.start()
    while not one.calls:
        threading.Event().wait(0.001)
    for _ in range(3):
        both.score(ROWS[:1])
    assert (one.calls, two.calls) == ([3], [1, 1, 1])
    one.hold.set()
    thread.join(10)
    # What has run is no work any more.
    both.score(ROWS[:1])
    both.score(ROWS[:1])
    assert one.calls == [3, 1, 1]


def test_rows_that_were_sent_to_an_engine_by_its_name_are_work_of_it() -> None:
    both, one, two = engines()
    one.hold = threading.Event()
    thread = threading.Thread(target=both.score_on, args=("one", ROWS[:3]))
    thread.start()
    while not one.calls:
        threading.Event().wait(0.001)
    both.score(ROWS[:1])
    both.score_on("two", ROWS[:2])
    one.hold.set()
    thread.join(10)
    assert (one.calls, two.calls) == ([3], [1, 2])


def test_closing_waits_for_the_parts_that_run_and_refuses_those_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    both, one, two = engines()
    one.hold = threading.Event()
    asking = threading.Thread(target=both.score, args=(ROWS,))
    asking.start()
    while not (one.calls and two.calls):
        threading.Event().wait(0.001)
    closing = threading.Thread(target=both.close)
    closing.start()
    closing.join(0.1)
    assert (one.closed, two.closed) == (0, 0)
    one.hold.set()
    closing.join(10)
    asking.join(10)
    assert (one.closed, two.closed) == (1, 1)

    later, one, two = engines()

    def even_parts_of_a_closed_one(rows: Sequence[Row], n_parts: int) -> list[range]:
        later.close()
        return even_parts(rows, n_parts)

    monkeypatch.setattr("decider.engine.even_parts", even_parts_of_a_closed_one)
    with pytest.raises(EngineError, match="closed meanwhile"):
        later.score(ROWS)
    assert (one.calls, two.calls) == ([], [])


def test_a_device_that_failed_for_good_gets_no_more_calls_and_others_go_on() -> None:
    both, one, two = engines()
    one.error = RuntimeError("a fault of this call")
    with pytest.raises(RuntimeError, match="this call"):
        both.score(ROWS[:1])
    assert both.faults == {}
    one.error = AcceleratorError("CUDA error: an illegal memory access")
    with pytest.raises(AcceleratorError):
        both.score(ROWS)
    # The other part had run to its end.
    assert two.calls == [64]
    assert list(both.faults) == ["one"]
    n_before = len(one.calls)
    assert len(both.score(ROWS)) == len(ROWS)
    assert (two.calls[-1], len(one.calls)) == (128, n_before)
    both.close()
    assert (one.closed, two.closed) == (0, 1)


def test_all_engines_are_closed_though_one_does_not_close() -> None:
    both, one, two = engines()
    one.error = ValueError("does not close")
    with pytest.raises(ValueError, match="does not close"):
        both.close()
    assert (one.closed, two.closed) == (1, 1)
