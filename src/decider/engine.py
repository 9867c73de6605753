"""plan → run → read: rows of token ids in, one probability distribution a slot out; on one device, or on several.

It refuses to know questions, text and labels' names. Trap: temperatures are checked against the rows before anything
runs; keep it so, because a mismatch found afterwards has already cost a forward.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

from decider.errors import EngineError, sticky
from decider.plan.shares import even_parts
from decider.read import Float64Array, Temperature, log_probabilities, spread_temperature
from decider.run.executor import Executor
from decider.run.stats import ReferenceReport
from decider.tokens.rows import Row

Scores = tuple[tuple[Float64Array, ...], ...]
"""Log-probabilities, float64 [n_options], of each slot of each row."""

_OUT_OF_MEMORY = ("out of memory", "allocate memory", "not enough memory")
"""How torch says it; on a CPU it has no class of its own for that. A fault of CUDA may speak of memory as well."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One executor behind the reading rule. Thread-safe where its executor is."""

    executor: Executor

    def close(self) -> None:
        """Give back the executor's graphs and memory; no rows afterwards."""
        self.executor.close()

    def score(self, rows: Sequence[Row], temperature: Temperature = 1.0) -> Scores:
        """Log-probabilities, float64 [n_options], of each slot of each row, in order; () for no rows.

        `temperature` is one number, one a row, or one a slot of each row. Raises ConfigError before any forward if its
        lengths do not fit, EngineError if memory runs out or the model returns a logit that is not finite.
        """
        spread = spread_temperature(temperature, [len(row.slots) for row in rows])
        try:
            logits = self.executor.label_logits(rows)
        except (MemoryError, RuntimeError) as error:
            if not isinstance(error, MemoryError) and not any(words in str(error) for words in _OUT_OF_MEMORY):
                raise
            longest = max(len(row.ids) for row in rows)
            report = self.executor.describe()
            other = (
                ", or use --executor grid, which keeps no score matrix" if isinstance(report, ReferenceReport) else ""
            )
            raise EngineError(
                f"out of memory in a forward ({report}; the longest row has {longest:,} tokens); shorten the state, or "
                f"set max_state_tokens{other}"
            ) from error
        assert len(logits) == len(rows), (len(logits), len(rows))
        try:
            return tuple(
                tuple(
                    log_probabilities(slot_logits, n_options, slot_temperature)
                    for slot_logits, n_options, slot_temperature in zip(
                        row_logits, row.n_options, row_temperatures, strict=True
                    )
                )
                for row, row_logits, row_temperatures in zip(rows, logits, spread, strict=True)
            )
        except FloatingPointError as error:
            raise EngineError(
                f"{error}; the weights or the precision ({self.executor.describe()}) are at fault"
            ) from error


class Engines:
    """Engines that give the same answers, one a device, by name. Any thread may call it.

    A call goes to the engine with the least to do; one of several packs' worth is cut into as many parts as there are
    engines, which run at once. An engine whose device failed for good gets no more of them, as long as another works.
    """

    def __init__(self, engines: Mapping[str, Engine]) -> None:
        self._engines = dict(engines)
        self._running_tokens = dict.fromkeys(engines, 0)
        self._faults: dict[str, str] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(len(engines), "decider-device") if len(engines) > 1 else None

    @property
    def faults(self) -> Mapping[str, str]:
        """Why each engine that gets no more calls does not, by name."""
        return self._faults.copy()

    def score(self, rows: Sequence[Row], temperature: Temperature = 1.0) -> Scores:
        """As `Engine.score`. Where parts fail, the first one's error is raised when all of them have ended."""
        if self._pool is None:
            return self._score(self._least_busy(rows), rows, temperature)
        spread = spread_temperature(temperature, [len(row.slots) for row in rows])
        parts = even_parts(rows, len(self._engines) - len(self._faults))
        cut = [(rows[part.start : part.stop], spread[part.start : part.stop]) for part in parts]
        if len(cut) == 1:
            return self._score(self._least_busy(rows), rows, spread)
        # Each has its engine before the first one runs, which may be done before the next one has begun.
        placed = [(self._least_busy(own), own, temperatures) for own, temperatures in cut]
        with self._lock:
            if self._pool is None:
                raise EngineError("this engine was closed meanwhile; make a new one")
            futures = [self._pool.submit(self._score, *each) for each in placed]
        wait(futures)
        return tuple(scores for future in futures for scores in future.result())

    def score_on(self, name: str, rows: Sequence[Row], temperature: Temperature = 1.0) -> Scores:
        """As `Engine.score`, on the engine called `name`, whatever else that has to do."""
        with self._lock:
            self._running_tokens[name] += _n_tokens(rows)
        return self._score(name, rows, temperature)

    def close(self) -> None:
        """Close every engine but those whose device failed, which gives nothing back. Raises what the first one raised
        that did not close, when all are through."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()
        errors = []
        for name, engine in self._engines.items():
            if name in self._faults:
                continue
            try:
                engine.close()
            except Exception as error:  # noqa: BLE001 - raised when the others are closed, too
                errors.append(error)
        if errors:
            raise errors[0]

    def _least_busy(self, rows: Sequence[Row]) -> str:
        """The engine that `rows` are to run on, of whose work they are part from now on."""
        with self._lock:
            name = min(self._engines, key=lambda each: (each in self._faults, self._running_tokens[each]))
            self._running_tokens[name] += _n_tokens(rows)
        return name

    def _score(self, name: str, rows: Sequence[Row], temperature: Temperature) -> Scores:
        try:
            return self._engines[name].score(rows, temperature)
        except Exception as error:
            if (reason := sticky(error)) is not None:
                self._faults[name] = reason
            raise
        finally:
            with self._lock:
                self._running_tokens[name] -= _n_tokens(rows)


def _n_tokens(rows: Sequence[Row]) -> int:
    return sum(len(row.ids) for row in rows)
