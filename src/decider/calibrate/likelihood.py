"""Each decision's negative log-likelihood as a function of its temperature, with two derivatives.

Every fit and comparison of temperatures works on it. It refuses to know which decisions share a temperature. Trap: the
NLL of a softmax is convex in 1/T, that of isolated levels is not; who minimises it must look for more than one valley.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from decider.decisions import BoolArray, Decisions, Float64Array, IntArray

LARGEST_GAP = 15_000.0
"""Logits count as no further apart. At T = 20, the highest of any fit, e^(−15000/20) is 0 in float64 already."""


@dataclass(frozen=True, slots=True)
class Curve:
    """At one temperature each, [N]: the NLL in nats, its first and second derivative by β = 1/T."""

    nll: Float64Array
    slope: Float64Array
    bend: Float64Array


@dataclass(frozen=True, slots=True)
class Reading:
    """At one temperature each, [N]: the NLL in nats, and the probability of the likeliest option."""

    nll: Float64Array
    confidence: Float64Array


@dataclass(frozen=True, slots=True)
class Likelihood:
    """N decisions, their options laid end to end without padding, so that a pass costs what there is of options."""

    values: Float64Array
    """[options of all]: a logit less its row's largest; for isolated levels the log-odds of yes."""
    starts: IntArray
    """[N]: where each decision's options begin."""
    gold: IntArray
    """[N]: where each decision's right option lies."""
    isolated: BoolArray
    """[N]"""

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, rows: IntArray) -> Likelihood:
        """The decisions at `rows`, in that order."""
        counts = self._counts()[rows]
        starts = np.cumsum(counts) - counts
        source = np.repeat(self.starts[rows] - starts, counts) + np.arange(counts.sum())
        gold = self.gold[rows] - self.starts[rows] + starts
        return Likelihood(self.values[source], starts, gold, self.isolated[rows])

    def curve(self, beta: float | Float64Array) -> Curve:
        """NLL and derivatives at β = 1/T; one number, or [N]."""
        if not len(self):
            return Curve(*np.zeros((3, 0)))
        logs, first, second = self._logs(beta)
        weights = np.exp(logs)
        totals = self._sum(weights)
        # The log of a sum of exponentials: its slope is the mean of the logs' slopes, its bend their variance and the
        # mean of their bends.
        weights *= first
        mean = self._sum(weights) / totals
        weights *= first
        bend = self._sum(weights) / totals - mean * mean
        if second is not None:
            bend += self._sum(np.exp(logs) * second) / totals - second[self.gold]
        return Curve(np.log(totals) - logs[self.gold], mean - first[self.gold], bend)

    def read(self, beta: float | Float64Array) -> Reading:
        """NLL and confidence at β = 1/T; one number, or [N]."""
        if not len(self):
            return Reading(*np.zeros((2, 0)))
        # The largest log of each row is 0.
        logs = self._logs(beta)[0]
        totals = self._sum(np.exp(logs))
        return Reading(np.log(totals) - logs[self.gold], 1 / totals)

    def _logs(self, beta: float | Float64Array) -> tuple[Float64Array, Float64Array, Float64Array | None]:
        """[options of all]: log-weights whose largest is 0 in each row; two derivatives by β (None is 0 everywhere)."""
        counts = self._counts()
        scaled = self.values * (beta if isinstance(beta, float) else np.repeat(beta, counts))
        if not self.isolated.any():
            return scaled, self.values, None
        own = np.repeat(self.isolated, counts)
        odds, values = scaled[own], self.values[own]
        no = np.exp(-np.logaddexp(0.0, odds))
        # ln σ(βz), of which a row's largest may be far below 0.
        scaled[own] = -np.logaddexp(0.0, -odds)
        first, second = self.values.copy(), np.zeros_like(scaled)
        first[own] = values * no
        second[own] = -values * values * no * (1 - no)
        scaled -= np.repeat(np.maximum.reduceat(scaled, self.starts), counts)
        return scaled, first, second

    def _counts(self) -> IntArray:
        return np.diff(self.starts, append=len(self.values))

    def _sum(self, flat: Float64Array) -> Float64Array:
        return np.asarray(np.add.reduceat(flat, self.starts))


def likelihood(decisions: Decisions) -> Likelihood:
    """The likelihood of `decisions`, in their order."""
    own = np.arange(decisions.logits.shape[1]) < decisions.n_options[:, None]
    starts = np.cumsum(decisions.n_options) - decisions.n_options
    values = decisions.logits[own]
    if len(values):
        top = np.where(decisions.isolated, 0.0, np.maximum.reduceat(values, starts))
        values = values - np.repeat(top, decisions.n_options)
    return Likelihood(np.clip(values, -LARGEST_GAP, LARGEST_GAP), starts, starts + decisions.gold, decisions.isolated)


def right(decisions: Decisions) -> BoolArray:
    """[N]: whether the likeliest option, the first of equals, is the right one; at any temperature."""
    return np.asarray(decisions.logits.argmax(axis=1) == decisions.gold)
