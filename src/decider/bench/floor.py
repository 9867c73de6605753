"""The least time a case can take: its multiplications at the rate a large matrix product reaches.

It refuses to know models and devices; it counts. Trap: a state is counted once, whatever the executor does with it, so
an executor that runs it for every question is far from the floor, as it should be.
"""

from __future__ import annotations

from dataclasses import dataclass

from decider.bench.cases import Case


@dataclass(frozen=True, slots=True)
class Attention:
    """One layer of softmax attention."""

    heads: int
    """Query heads."""
    head_dim: int
    window: int | None
    """Tokens that a token sees, itself included; None for all before it."""


@dataclass(frozen=True, slots=True)
class ModelWork:
    """What a model multiplies."""

    matrix_parameters: int | None
    """Weights of all linear layers but the output embedding, which only the labels' rows are read from; None if some
    other kind of layer multiplies."""
    attention: tuple[Attention, ...] | None
    """Layers of softmax attention (others, such as linear attention, count nothing); None if a kind is not known."""


@dataclass(frozen=True, slots=True)
class Floor:
    """Milliseconds."""

    parameters_ms: float | None
    attention_ms: float | None

    @property
    def total_ms(self) -> float | None:
        """Both; None where one is not known."""
        return (
            None if self.attention_ms is None or self.parameters_ms is None else self.parameters_ms + self.attention_ms
        )


def floor(work: ModelWork, case: Case, tflops: float) -> Floor:
    """The floor of `case` at `tflops` · 10¹² operations a second.

    2 operations a parameter and token (a product and a sum), 4 · heads · head_dim an attention layer and visible pair
    (scores, and the sum of the values).
    """
    per_ms = tflops * 1e9
    weights = work.matrix_parameters
    parameters_ms = None if weights is None else 2 * weights * case.tokens / per_ms
    if work.attention is None:
        return Floor(parameters_ms, None)
    operations = sum(4 * each.heads * each.head_dim * visible_pairs(case, each.window) for each in work.attention)
    return Floor(parameters_ms, operations / per_ms)


def visible_pairs(case: Case, window: int | None) -> int:
    """Pairs (token, token it sees) of a causal layer: within the state, from each question to it, and within each."""
    state = _pairs(case.state_tokens, window)
    return state + sum(_pairs(case.state_tokens + length, window) - state for length in case.lengths)


def _pairs(n_tokens: int, window: int | None) -> int:
    """Pairs of one row of `n_tokens`."""
    whole = n_tokens if window is None else min(n_tokens, window)
    return whole * (whole + 1) // 2 + (n_tokens - whole) * whole
