"""Rows that wait, in the order of their requests' turns, and the next pack, which is chosen while one runs.

It refuses to know the engine, deadlines and admission. Trap: a pack that was chosen is not yet paid for: until it is
taken, requests that left are struck from it, and a newcomer may push aside what a larger request has claimed.

Turns: requests stand in a ring. A pack begins with the first of them, who may have half of it, gives each a fair share
of its tokens in turn, at least a row, and what is left to the first who can use it. Whoever was served goes to the end;
whoever was not keeps his place, so that he is first soon. What wants no more than a quarter of a pack is small, and
comes before others who are not first; for a first row that leaves no room beside it, small requests go before, but a
request is put off so once only before it is served. So a small one waits for the pack that runs when it comes and,
where that is one of small ones, for one long row more. A long state runs again in every pack that holds rows of its
request; so a share that would be spent on that is not given, and such a request gets in whole, or when it is first.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from decider.serve.job import Claim, Job, Pack, Work

SMALL_SHARE = 4
"""What wants at most a pack divided by this is small."""
MAX_MISSES = 64
"""Requests whose rows do not fit into what is left of a pack, before no more are tried."""


class RowQueue:
    """Any thread may call it, and several may take packs.

    `pack_tokens` is the most tokens of a pack; a longer row is a pack of its own.
    """

    def __init__(self, pack_tokens: int, planned: Callable[[float], None] = lambda _plan_s: None) -> None:
        self._pack_tokens = pack_tokens
        self._planned = planned
        self._changed = threading.Condition(threading.Lock())
        self._ring: OrderedDict[Job, Work] = OrderedDict()
        self._claims: dict[Job, Claim] = {}
        self._claimed_tokens = 0
        self._is_planned = False
        self._n_waiting = 0
        self._is_stopped = False

    def __len__(self) -> int:
        """Requests with rows that no pack has taken."""
        return len(self._ring)

    def add(self, job: Job, work: Work) -> None:
        """Put the rows of a request at the end of the ring, and into the next pack if its turn allows it."""
        assert work.next < work.n_rows, "a request without rows does not wait"
        with self._changed:
            self._ring[job] = work
            if self._is_planned:
                self._squeeze_in(job, work)
            else:
                self._plan()
            self._wake_one()

    def drop(self, job: Job) -> int:
        """Strike the rows of a request that no pack has taken; how many they were. Those of a running pack run on."""
        with self._changed:
            work = self._ring.pop(job, None)
            claim = self._claims.pop(job, None)
            if claim is not None:
                self._claimed_tokens -= claim.tokens
                # There is room now, and somebody may stand in the ring for it.
                self._is_planned = False
            return 0 if work is None else work.n_rows - work.next

    def plan(self) -> None:
        """Choose the next pack if it is not chosen. To be called while one runs."""
        with self._changed:
            if self._ring and not self._is_planned:
                self._plan()

    def take(self, *, wait: bool) -> Pack | None:
        """The next pack, which now counts as run; None if nothing waits, and after `stop`."""
        with self._changed:
            while wait and not self._ring and not self._is_stopped:
                self._n_waiting += 1
                self._changed.wait()
                self._n_waiting -= 1
            if not self._ring or self._is_stopped:
                return None
            if not self._is_planned:
                self._plan()
            claims, self._claims = self._claims, {}
            n_tokens, self._claimed_tokens, self._is_planned = self._claimed_tokens, 0, False
            for job, claim in claims.items():
                claim.work.next, claim.work.displaced = claim.stop, False
                if claim.stop == claim.work.n_rows:
                    del self._ring[job]
                else:
                    self._ring.move_to_end(job)
            if self._ring:
                # What is left is another engine's next pack.
                self._wake_one()
        taken = tuple(claims.values())
        return Pack(taken, sum(claim.stop - claim.start for claim in taken), n_tokens)

    def ahead_tokens(self, tokens: int) -> int:
        """About how many tokens run before a newcomer of `tokens` is through.

        One that fits into a fair share is let into the next packs, and waits for no more than its own size of each who
        is there. A larger one comes after all who fit into a pack, and takes turns with those who do not.
        """
        with self._changed:
            is_small = tokens <= self._pack_tokens // (len(self._ring) + 1)
            lefts = (work.left_tokens for work in self._ring.values())
            return sum(left if left <= self._pack_tokens and not is_small else min(left, tokens) for left in lefts)

    def has_begun(self, work: Work) -> bool:
        """Whether a pack has taken rows of it."""
        with self._changed:
            return work.next > 0

    def clear(self) -> None:
        """Strike everything."""
        with self._changed:
            self._ring.clear()
            self._claims.clear()
            self._claimed_tokens, self._is_planned = 0, False

    def stop(self) -> None:
        """`take` gives None from now on."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def _wake_one(self) -> None:
        if self._n_waiting:
            self._changed.notify()

    def _plan(self) -> None:
        began = time.perf_counter()
        share = self._pack_tokens // max(1, len(self._ring))
        ring = list(self._ring.items())
        first, work = ring[0]
        small: list[tuple[Job, Work]] = []
        others: list[tuple[Job, Work]] = []
        for each in ring:
            (small if self._is_small(each[1]) else others).append(each)
        ring = small + others
        if first not in self._claims and not self._gives_way(work, small):
            self._claim(first, work, max(share, self._pack_tokens // 2), any_part=True)
        if self._fill(ring, share, whole=False):
            if first in self._claims:
                self._extend(self._claims[first])
            self._fill(ring, self._pack_tokens, whole=True)
        if first not in self._claims:
            work.displaced = True
        for claim in self._claims.values():
            self._extend(claim)
        self._is_planned = True
        self._planned(time.perf_counter() - began)

    def _is_small(self, work: Work) -> bool:
        return work.left_tokens <= self._pack_tokens // SMALL_SHARE

    def _gives_way(self, work: Work, small: list[tuple[Job, Work]]) -> bool:
        """Whether who is first lets small requests go before: its row leaves no room for one, and it has not yet."""
        if work.displaced or not small or self._is_small(work):
            return False
        room = self._pack_tokens - work.cost(work.next, work.next + 1)
        return any(each.left_tokens > room for _, each in small)

    def _fill(self, ring: list[tuple[Job, Work]], share: int, *, whole: bool) -> bool:
        """Give `share` tokens to each in turn who has none; `whole`: all of it or nothing. Whether there was a miss."""
        misses = 0
        for job, work in ring:
            room = self._pack_tokens - self._claimed_tokens
            if room <= 0 or misses == MAX_MISSES:
                break
            if job not in self._claims and not self._claim(job, work, min(share, room), all_of_it=whole):
                misses += 1
        return misses > 0

    def _extend(self, claim: Claim) -> None:
        """Give what is left of the pack to a request, as far as it can use it."""
        room = self._pack_tokens - self._claimed_tokens
        if room > 0:
            self._set_stop(claim, max(claim.stop, claim.work.fit(claim.start, claim.tokens + room)))

    def _claim(self, job: Job, work: Work, share: int, *, any_part: bool = False, all_of_it: bool = False) -> bool:
        """Give `share` tokens to a request, at least a row, if one fits.

        None is given beside others if that is mostly a state which its next part would run again, unless `any_part`
        will do; nor one that is not `all_of_it`, where that is asked for.
        """
        first = work.cost(work.next, work.next + 1)
        room = self._pack_tokens - self._claimed_tokens
        if self._claims and first > room:
            return False
        if self._claims:
            # A share is meant for an empty pack; others may have claimed most of it before it was planned.
            share = min(share, room)
        stop = max(work.next + 1, work.fit(work.next, share))
        if all_of_it and stop < work.n_rows:
            return False
        if self._claims and not any_part and work.is_wasteful(stop):
            return False
        claim = Claim(job, work, work.next, stop, work.cost(work.next, stop))
        self._claims[job] = claim
        self._claimed_tokens += claim.tokens
        return True

    def _squeeze_in(self, job: Job, work: Work) -> None:
        """Let a newcomer into the pack that is chosen, if need be at the cost of who has claimed most of it."""
        share = self._pack_tokens // (len(self._claims) + 1)
        room = self._pack_tokens - self._claimed_tokens
        first = work.cost(work.next, work.next + 1)
        part = max(work.next + 1, work.fit(work.next, share))
        wanted = work.cost(work.next, part)
        if wanted > room and self._claims:
            largest = max(self._claims.values(), key=_tokens)
            stop = largest.work.fit(largest.start, max(share, largest.tokens - (wanted - room)))
            freed = (
                largest.tokens - largest.work.cost(largest.start, stop) if largest.start < stop < largest.stop else 0
            )
            if freed and freed >= first - room and not work.is_wasteful(part):
                self._set_stop(largest, stop)
            elif self._is_small(work):
                self._put_off_for(first - room)
        room = self._pack_tokens - self._claimed_tokens
        if (room > 0 or not self._claims) and not self._claim(job, work, min(share, room)):
            self._claim(job, work, room, all_of_it=True)
        if not self._is_planned:
            self._plan()

    def _put_off_for(self, tokens: int) -> None:
        """Strike a claim of `tokens` or more, of who is not small: if need be of who is first, but that only once."""
        first = next(iter(self._ring))
        fit = [
            claim
            for claim in self._claims.values()
            if claim.tokens >= tokens
            and not self._is_small(claim.work)
            and not (claim.job is first and claim.work.displaced)
        ]
        if not fit:
            return
        struck = max(fit, key=lambda claim: (claim.job is not first, claim.tokens))
        struck.work.displaced |= struck.job is first
        del self._claims[struck.job]
        self._claimed_tokens -= struck.tokens
        self._is_planned = False

    def _set_stop(self, claim: Claim, stop: int) -> None:
        tokens = claim.work.cost(claim.start, stop)
        self._claimed_tokens += tokens - claim.tokens
        claim.stop, claim.tokens = stop, tokens


def _tokens(claim: Claim) -> int:
    return claim.tokens
