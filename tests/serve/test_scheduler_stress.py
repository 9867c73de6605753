"""Many callers at once who leave, run out of time, ask too much, and meet faults and hangs: nothing is left behind.

Refuses to say which outcome a request has, but for this: exactly one, and an answer is the right one. Trap: a seed
fixes what is asked, not how threads interleave; a failure may need several runs to come again.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence

import pytest
from fake_brain import FakeBrain
from stepped_brain import Seen, alone, ask, is_empty, scheduling

from decider.errors import EngineError, OverloadError, TooLargeError
from decider.questions.request import Request
from decider.serve.scheduler import QueueLimits, Scheduler
from decider.tokens.rows import Row

N_REQUESTS = 400
LIMITS = QueueLimits(
    max_requests=60, max_rows=900, max_tokens=30_000, max_row_tokens=2500, max_request_tokens=9000, pack_tokens=600
)


def made(random_: random.Random) -> Request:
    kind = random_.random()
    if kind < 0.6:
        return ask("s" * random_.randint(1, 60), random_.randint(1, 4))
    if kind < 0.9:
        return ask("m" * random_.randint(60, 1500), random_.randint(1, 30))
    return ask("l" * random_.randint(1, 3000), random_.randint(30, 300))


async def ask_once(scheduler: Scheduler, request: Request, random_: random.Random) -> str:
    """One request, from a caller who may leave; what became of it."""
    deadline_s = random_.choice([None, 5.0, 0.05, 0.005])
    leaves_s = random_.choice([None, None, None, 0.0, 0.002, 0.03])
    task = asyncio.create_task(scheduler.answer(request, deadline_s=deadline_s))
    if leaves_s is not None:
        await asyncio.sleep(leaves_s)
        task.cancel()
    try:
        timed = await task
    except asyncio.CancelledError:
        return "left"
    except (EngineError, OverloadError, TooLargeError) as error:
        return type(error).__name__
    assert timed.answers.to_wire() == alone(request)
    return "answered"


@pytest.mark.parametrize("seed", range(6))
def test_every_request_has_one_outcome_and_nothing_is_left_behind(seed: int) -> None:
    random_ = random.Random(seed)
    faults = random.Random(seed)

    def fault(_rows: Sequence[Row]) -> BaseException | None:
        # Never three in a row, which would be the end.
        turn = len(brain.packs) % 3
        if turn or faults.random() > 0.3:
            return None
        return faults.choice([EngineError("broken"), RuntimeError("broken"), MemoryError("broken")])

    brain = FakeBrain(delay_s=0.0005, per_token_s=1e-6, prepare_s=0.0, fault=fault)
    seen = Seen()

    async def test() -> Counter[str]:
        outcomes: Counter[str] = Counter()
        async with scheduling(brain, LIMITS, observer=seen) as scheduler:

            async def client(own: random.Random, n_requests: int) -> None:
                for _ in range(n_requests):
                    outcomes[await ask_once(scheduler, made(own), own)] += 1

            n_clients = random_.choice([8, 40, 80])
            share = N_REQUESTS // n_clients
            await asyncio.gather(*(client(random.Random(random_.random()), share) for _ in range(n_clients)))
            assert outcomes.total() == n_clients * share
            load = scheduler.load
            assert is_empty(scheduler)
            assert load.admitted == load.answered + load.dropped + load.failed
            assert load.admitted + load.refused <= n_clients * share
            assert load.answered >= outcomes["answered"]
            assert len(seen.drops) == load.dropped + load.failed
            assert scheduler.health.ready
            # And the house is in order.
            brain.fault = None
            request = ask("after", 5)
            assert (await scheduler.answer(request)).answers.to_wire() == alone(request)
            await until_idle(scheduler)
        return outcomes

    outcomes = asyncio.run(asyncio.wait_for(test(), 60))
    assert outcomes["answered"] > N_REQUESTS // 10, outcomes
    assert outcomes["left"] > N_REQUESTS // 20, outcomes
    assert len(seen.packs) <= len(brain.packs)
    assert all(n_tokens <= LIMITS.pack_tokens or n_rows == 1 for n_rows, n_tokens, _ in seen.packs)


async def until_idle(scheduler: Scheduler) -> None:
    while scheduler.load.running_rows:
        await asyncio.sleep(0.001)
