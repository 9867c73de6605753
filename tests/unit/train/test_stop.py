"""The first signal is heard, and only the first.

Refuses to train. Trap: a handler that is left behind would swallow the next test's Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import threading

import pytest

from decider.train.stop import SIGNALS, told_to_stop


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_is_heard_and_the_second_is_not_caught(number: int) -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    with told_to_stop() as told:
        assert not told()
        assert [signal.getsignal(each) for each in SIGNALS] != before
        os.kill(os.getpid(), number)
        assert told()
        # Whatever comes now ends the process as it would have before.
        assert [signal.getsignal(each) for each in SIGNALS] == before
    assert [signal.getsignal(each) for each in SIGNALS] == before


def test_without_a_signal_all_is_put_back() -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    with told_to_stop() as told:
        pass
    assert not told()
    assert [signal.getsignal(each) for each in SIGNALS] == before


def test_another_thread_hears_nothing_and_changes_nothing() -> None:
    found = []

    def run() -> None:
        with told_to_stop() as told:
            found.append((told(), signal.getsignal(signal.SIGTERM)))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [(False, before)]
