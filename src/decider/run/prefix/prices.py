"""Milliseconds of prefix runs, forks and suffix forwards on this device, as the gate takes them.

It refuses to know rows and when to share. Trap: a forward so small that launches bound it says nothing of its tokens,
so the larger point of each line must be real work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from decider.plan.cost import CostModel
from decider.plan.sharing import PrefixCost
from decider.run.measure import LEAST_MS, Work, milliseconds
from decider.run.prefix.cache import CachedDecoder
from decider.run.prefix.fork import fork_cache

# Tokens of the longest prefix that is timed, and the rows of a fork: few and many.
_TIMED = {"cpu": (128, (1, 4))}
_TIMED_ELSEWHERE = (2048, (2, 16))

Point = tuple[int, int, int]
"""(rows, prefix tokens, suffix tokens a row) of one timed fork with its suffix forward."""


@torch.inference_mode()
def measure_prices(decoder: CachedDecoder, full: CostModel) -> PrefixCost:
    """Time the parts of sharing; `full` are the prices of full rows. Raises EngineError if the cache cannot fork."""
    device = torch.device(decoder.loaded.device)
    longest, (few, many) = _TIMED.get(device.type, _TIMED_ELSEWHERE)
    far = max(32, min(longest, decoder.loaded.max_positions // 2))
    near, short, long = far // 8, far // 32, far // 8

    def prefix_ms(n_tokens: int) -> float:
        ids = _zeros(1, n_tokens, device)
        return _time(device, lambda: decoder.run_prefix(ids))

    def suffix_ms(point: Point) -> float:
        n_rows, n_prefix, n_suffix = point
        prefix = decoder.run_prefix(_zeros(1, n_prefix, device))
        ids = _zeros(n_rows, n_suffix, device)
        return _time(device, lambda: decoder.run_suffixes(ids, fork_cache(prefix.cache, n_rows).cache, n_prefix))

    near_ms, far_ms = prefix_ms(near), prefix_ms(far)
    token_ms = max(full.token_ms, (far_ms - near_ms) / (far - near))
    prefix = CostModel(max(LEAST_MS, far_ms - far * token_ms), token_ms)
    points = [(few, near, short), (many, near, short), (many, far, short), (many, near, long)]
    fork, suffix = fit(points, [suffix_ms(point) for point in points])
    # A token does in a prefix and in a suffix all that it does in a full row; less than that is noise.
    suffix = replace(suffix, token_ms=max(full.token_ms, suffix.token_ms))
    return PrefixCost(full=full, prefix=prefix, suffix=suffix, fork=fork)


def fit(points: Sequence[Point], timed_ms: Sequence[float]) -> tuple[CostModel, CostModel]:
    """(fork, suffix) prices, as in `PrefixCost`, through four `points` that differ in every way.

    A price that comes out below 0 by noise is raised to just above it, which makes sharing look dearer, never cheaper.
    """
    terms = [(1, n_rows, n_rows * n_prefix, n_rows * n_suffix) for n_rows, n_prefix, n_suffix in points]
    prices = np.linalg.solve(np.array(terms, dtype=np.float64), np.array(timed_ms))
    launch, row, prefix_token, suffix_token = (max(LEAST_MS, float(price)) for price in prices)
    return CostModel(row, prefix_token), CostModel(launch, suffix_token)


def _time(device: torch.device, work: Work) -> float:
    # The first run allocates and tunes.
    work()
    return milliseconds(device, work)


def _zeros(n_rows: int, n_tokens: int, device: torch.device) -> torch.Tensor:
    return torch.zeros(n_rows, n_tokens, dtype=torch.int64, device=device)
