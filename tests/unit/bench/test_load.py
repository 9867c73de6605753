"""Load: what is sent when, what is counted as what, and that an open loop counts what a closed one never sees.

Refuses to judge speed. Trap: this runs beside other work, so times have bounds that a busy machine keeps.
"""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest
from stub_http import Say, reply, stub

from decider.bench.load import Arrivals, Closed, Load, LoadPlan, Open, due_times, probe, run_load
from decider.bench.load_client import address_of, post
from decider.bench.load_report import make_report
from decider.errors import ConfigError


def plan_of(
    url: str, arrivals: Arrivals, *, seconds: float = 0.5, warmup_s: float = 0.0, timeout_s: float = 5.0, kinds: int = 1
) -> LoadPlan:
    address = address_of(url)
    requests = tuple(post(address, "/v1/systemone", b'{"n":%d}' % n, None) for n in range(kinds))
    return LoadPlan(address, requests, arrivals, seconds, warmup_s, timeout_s)


def latencies_ms(load: Load) -> list[float]:
    return [float(ms) for ms in np.sort(1e3 * (load.done_s - load.due_s))]


def test_fixed_times_are_even_and_poisson_times_are_not_but_as_many() -> None:
    fixed = list(due_times(Open(50, poisson=False), 1))
    assert fixed == pytest.approx([n / 50 for n in range(50)])
    drawn = list(due_times(Open(1000, poisson=True), 20))
    assert drawn == list(due_times(Open(1000, poisson=True), 20))
    assert drawn == sorted(drawn)
    assert drawn[-1] < 20
    gaps = np.array([later - earlier for earlier, later in pairwise(drawn)])
    # Of an exponential distribution, mean and deviation are equal: 1 ms.
    assert gaps.mean() == pytest.approx(1e-3, rel=0.05)
    assert gaps.std() == pytest.approx(1e-3, rel=0.05)


def test_a_closed_loop_has_one_request_a_client_in_flight() -> None:
    with stub(lambda _: Say(delay_s=0.05)) as server:
        load = run_load(plan_of(server.url, Closed(3), kinds=2))
        assert server.connections == load.connections == 3
    assert set(load.outcomes) == {"200"}
    # At most 10 rounds of 3 in half a second, and at least half of them on a busy machine.
    assert 15 <= len(load.outcomes) <= 33
    assert latencies_ms(load)[0] >= 49
    assert {request[-7:] for request in server.requests} == {b'{"n":0}', b'{"n":1}'}


def test_an_open_loop_sends_all_that_is_due_and_does_not_wait() -> None:
    with stub(lambda _: Say(delay_s=0.2)) as server:
        load = run_load(plan_of(server.url, Open(100, poisson=False)))
    assert len(load.outcomes) == len(server.requests) == 50
    assert load.due_s == pytest.approx([n / 100 for n in range(50)])
    # 20 are under way at any time, where a client that waits would have sent 3.
    assert load.connections >= 15
    assert (load.sent_s >= load.due_s).all()
    assert (load.done_s >= load.sent_s + 0.19).all()


def stalls_once(number: int) -> Say:
    """The 20th request stops the whole server for 0.3 s."""
    if number == 20:
        time.sleep(0.3)
    return Say()


def test_an_open_loop_counts_a_stall_for_every_request_due_in_it() -> None:
    with stub(stalls_once) as server:
        opened = run_load(plan_of(server.url, Open(200, poisson=False), seconds=1))
    with stub(stalls_once) as server:
        closed = run_load(plan_of(server.url, Closed(1), seconds=1))
    slow = [ms for ms in latencies_ms(opened) if ms > 100]
    # Those due in the first 0.2 s of the stall: 40 of 200.
    assert len(slow) >= 38
    assert latencies_ms(opened)[-1] > 290
    assert sum(ms > 100 for ms in latencies_ms(closed)) < 10


def test_a_request_is_given_up_and_its_connection_not_used_again() -> None:
    def answer(number: int) -> Say:
        return Say(delay_s=0.5 if number == 0 else 0)

    with stub(answer) as server:
        load = run_load(plan_of(server.url, Closed(1), seconds=0.3, timeout_s=0.1))
        assert server.connections >= 2
    assert load.outcomes[0] == "timeout"
    assert set(load.outcomes[1:]) == {"200"}
    assert load.done_s[0] - load.due_s[0] == pytest.approx(0.1, abs=0.09)


def test_refusals_and_broken_connections_are_outcomes() -> None:
    def answer(number: int) -> Say:
        if number % 3 == 1:
            return Say((reply(429, b"{}", "Retry-After: 1\r\n"),))
        return Say((), closes=True) if number % 3 == 2 else Say()

    with stub(answer) as server:
        # One after the other, each on a connection that has not answered yet where it breaks.
        load = run_load(plan_of(server.url, Open(30, poisson=False), seconds=1))
    counts = {outcome: load.outcomes.count(outcome) for outcome in set(load.outcomes)}
    assert set(counts) <= {"200", "429", "connection"}
    assert counts["200"] >= 8
    assert counts["429"] >= 8


def test_a_server_that_is_not_there_is_an_outcome_too_and_does_not_spin() -> None:
    with stub() as server:
        plan = plan_of(server.url, Closed(2), seconds=0.3)
    load = run_load(plan)
    assert set(load.outcomes) == {"connection"}
    assert len(load.outcomes) < 20
    report = make_report(load, plan, "x")
    assert (report.answered, report.p50_ms, report.throughput) == (0, None, 0)
    with pytest.raises(ConfigError, match="cannot be asked"):
        probe(plan)


def test_the_probe_says_what_a_server_says() -> None:
    with stub() as server:
        assert probe(plan_of(server.url, Closed(1))) == "stub"
    with (
        stub(lambda _: Say((reply(403, b'{"detail": "no\x1bkey"}'),))) as server,
        pytest.raises(ConfigError, match=r"403: .*no\\x1bkey"),
    ):
        probe(plan_of(server.url, Closed(1)))
    with stub(lambda _: Say((reply(200, b"[]"),))) as server, pytest.raises(ConfigError, match="no JSON that names"):
        probe(plan_of(server.url, Closed(1)))
    with stub(lambda _: Say(delay_s=1)) as server, pytest.raises(ConfigError, match=r"no answer within 0\.1 s"):
        probe(plan_of(server.url, Closed(1), timeout_s=0.1))
