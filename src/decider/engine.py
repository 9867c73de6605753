"""plan → run → read: rows of token ids in, one probability distribution a slot out.

It refuses to know questions, text and labels' names. Trap: temperatures are checked against the rows before anything
runs; keep it so, because a mismatch found afterwards has already cost a forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from decider.errors import EngineError
from decider.read import Float64Array, Temperature, log_probabilities, spread_temperature
from decider.run.executor import Executor
from decider.run.stats import ReferenceReport
from decider.tokens.rows import Row

_OUT_OF_MEMORY = ("out of memory", "allocate memory", "not enough memory")
"""How torch says it; on a CPU it has no class of its own for that. A fault of CUDA may speak of memory as well."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One executor behind the reading rule. Thread-safe where its executor is."""

    executor: Executor

    def close(self) -> None:
        """Give back the executor's graphs and memory; no rows afterwards."""
        self.executor.close()

    def score(self, rows: Sequence[Row], temperature: Temperature = 1.0) -> tuple[tuple[Float64Array, ...], ...]:
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
