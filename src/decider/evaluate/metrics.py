"""How good distributions are against the right answers: a number a decision where one exists, so that it can be paired.

Arrays are float64 `probabilities` [N, W], 0 beyond a decision's options, and int `n_options` and `gold` [N]. It refuses
to know models, temperatures and groups. Nothing is clipped: a right option of probability 0 has an infinite NLL, which
makes the mean infinite; `n_infinite` says how many there are.

Trap: a mean of no decisions is None, never 0 or NaN; so is an AUROC where only one answer is ever right.
"""

from __future__ import annotations

import numpy as np

from decider.decisions import BoolArray, Float64Array, IntArray


def answers_of(probabilities: Float64Array) -> IntArray:
    """The likeliest option of each decision, the lowest index on a tie as the product answers; [N]."""
    if not len(probabilities):
        return np.zeros(0, dtype=np.int64)
    return np.asarray(probabilities.argmax(axis=1))


def confidence_of(probabilities: Float64Array) -> Float64Array:
    """The likeliest option's probability, the p_max of an answer; [N]."""
    return np.asarray(probabilities.max(axis=1, initial=0.0))


def correct_of(probabilities: Float64Array, gold: IntArray) -> BoolArray:
    """Whether the likeliest option is the right one; [N]. Its mean is the accuracy."""
    _check(probabilities, gold)
    return np.asarray(answers_of(probabilities) == gold)


def nll_of(probabilities: Float64Array, gold: IntArray) -> Float64Array:
    """−ln p of the right option, in nats; [N]. Infinite where that p is 0."""
    own = _of_gold(probabilities, gold)
    with np.errstate(divide="ignore"):
        # From 0, as −ln 1 is −0.
        return np.asarray(0.0 - np.log(own))


def n_infinite(values: Float64Array) -> int:
    """How many of `values` are infinite."""
    return int(np.isinf(values).sum())


def brier_of(probabilities: Float64Array, gold: IntArray) -> Float64Array:
    """Σⱼ (pⱼ − [j is right])² over all options (Brier 1950), in [0, 2]; [N].

    The same sum for every type, so a Noul's is twice the (P(yes) − [yes])² that others call a binary Brier score.
    """
    own = _of_gold(probabilities, gold)
    misses = probabilities.copy()
    misses[np.arange(len(gold)), gold] = 0.0
    return np.asarray(np.square(misses).sum(axis=1) + np.square(1 - own))


def rps_of(probabilities: Float64Array, n_options: IntArray, gold: IntArray) -> Float64Array:
    """Ranked probability score of ordered levels, in [0, 1]; [N].

    Σₖ (P(level ≤ k) − [right level ≤ k])² over the first n − 1 levels, divided by n − 1 (Epstein 1969, normalised), so
    that scales of different length compare. 0 where there is one level.
    """
    _check(probabilities, gold)
    assert (gold < n_options).all()
    reached = np.arange(probabilities.shape[1]) >= gold[:, None]
    # From the last level on both are 1, so padding adds nothing.
    misses = np.square(np.cumsum(probabilities, axis=1) - reached)
    return np.asarray(misses.sum(axis=1) / np.maximum(n_options - 1, 1))


def absolute_error_of(probabilities: Float64Array, gold: IntArray) -> Float64Array:
    """|Σ i·pᵢ − right level|, in levels: how far a Score's answer `score` is off; [N]. Its mean is the MAE."""
    _check(probabilities, gold)
    return np.asarray(np.abs(probabilities @ np.arange(probabilities.shape[1], dtype=np.float64) - gold))


def level_error_of(probabilities: Float64Array, gold: IntArray) -> Float64Array:
    """|likeliest level − right level|, in levels: how far a Score's answer `level` is off; [N]."""
    _check(probabilities, gold)
    return np.asarray(np.abs(answers_of(probabilities) - gold), dtype=np.float64)


def auroc(p_yes: Float64Array, yes: BoolArray) -> float | None:
    """P(a yes is given a higher `p_yes` than a no is), ties counted half (Mann-Whitney); both [N].

    None where all or none of `yes` are true.
    """
    n_yes, n_no = int(yes.sum()), int((~yes).sum())
    if not n_yes or not n_no:
        return None
    _, value = np.unique(p_yes, return_inverse=True)
    nos = np.bincount(value[~yes], minlength=int(value.max()) + 1)
    # Twice the wins, which is whole, so the order of decisions changes no bit.
    doubled = 2 * (np.cumsum(nos) - nos) + nos
    return float(doubled[value[yes]].sum() / (2 * n_yes * n_no))


def mean(values: Float64Array | BoolArray) -> float | None:
    """The mean of `values` [N], None of none; infinite if one of them is."""
    return float(values.mean(dtype=np.float64)) if len(values) else None


def _of_gold(probabilities: Float64Array, gold: IntArray) -> Float64Array:
    _check(probabilities, gold)
    return np.asarray(probabilities[np.arange(len(gold)), gold])


def _check(probabilities: Float64Array, gold: IntArray) -> None:
    assert probabilities.dtype == np.float64, probabilities.dtype
    assert gold.shape == probabilities.shape[:1], (gold.shape, probabilities.shape)
    # A negative index would read another option and raise nothing.
    assert (gold >= 0).all(), gold.min()
