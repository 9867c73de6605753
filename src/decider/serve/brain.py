"""What the server asks of a model: requests to rows, rows to scores, scores to answers.

It refuses to know HTTP, queues and threads. Trap: `prepare` runs on many threads and each of `engines` on one, at the
same time; whatever they all touch must not change after start-up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from decider.questions.answered import Answers
from decider.questions.request import Request
from decider.read import Float64Array
from decider.tokens.rows import ID_BYTES, Row

if TYPE_CHECKING:
    from decider.api import Decider

RowScores = tuple[Float64Array, ...]
"""Log-probabilities of one row: float64 [n_options] a slot."""


Score = Callable[[Sequence[Row], Sequence[Sequence[float]]], Sequence[RowScores]]
"""Rows of one pack, and a temperature a slot of each row → the scores of each. Raises EngineError."""


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One model of `GET /v1/models`."""

    name: str
    description: str
    release_date: str
    """A date in ISO form."""


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A request as the engine takes it."""

    rows: tuple[Row, ...]
    temperatures: tuple[Sequence[float], ...]
    """One number a slot, one sequence a row."""
    added_tokens: tuple[int, ...]
    """What each row costs in a pack that has the row before it too: without the start that they share."""
    n_tokens: int
    """What all rows cost in one pack: a state that they share is counted once."""
    read: Callable[[Sequence[RowScores]], Answers]
    """From the scores of `rows`, in their order, to the answers. Any thread may call it."""


class Brain(Protocol):
    """A model behind the scheduler."""

    @property
    def name(self) -> str:
        """The served model's name."""
        ...

    @property
    def models(self) -> Sequence[ModelEntry]:
        """What `GET /v1/models` lists."""
        ...

    def prepare(self, request: Request) -> Prepared:
        """Render and tokenise, on any thread. Raises InputError's subclasses, for an unknown model too."""
        ...

    @property
    def engines(self) -> Mapping[str, Score]:
        """What runs packs, by the name of the device that it runs them on; each on a thread of its own alone."""
        ...

    def describe(self) -> Mapping[str, object]:
        """What runs and what was chosen, in JSON's types, for `/stats`."""
        ...

    def close(self) -> None:
        """Give everything back; no rows afterwards."""
        ...


def prepared(
    rows: tuple[Row, ...],
    temperatures: tuple[Sequence[float], ...],
    read: Callable[[Sequence[RowScores]], Answers],
    *,
    shared_from_tokens: int | None,
) -> Prepared:
    """A `Prepared` with its costs. Starts of `shared_from_tokens` or more run once; None: each row runs in full."""
    added = [len(row.ids) for row in rows]
    if shared_from_tokens is not None:
        for index in range(1, len(rows)):
            start, before = rows[index].start_bytes, rows[index - 1].start_bytes
            # States are cut a question; the shorter of two is a start of the longer.
            common = min(len(start), len(before))
            if start is before or start[:common] == before[:common]:
                n_common = common // ID_BYTES
                added[index] -= n_common if n_common >= shared_from_tokens else 0
    return Prepared(rows, temperatures, tuple(added), sum(added), read)


@dataclass(frozen=True, slots=True)
class DeciderBrain:
    """A `Decider` behind the server; `close` closes it."""

    decider: Decider

    @property
    def name(self) -> str:
        """The name answers carry."""
        return self.decider.name

    @property
    def models(self) -> Sequence[ModelEntry]:
        """The one model."""
        model = next(pick.value for pick in self.decider.picks if pick.name == "model")
        return (ModelEntry(self.name, f"{model}, {self.decider.executor_name} executor", self.decider.release_date),)

    def prepare(self, request: Request) -> Prepared:
        """See `Brain`."""
        self.decider.check_model(request)
        asked = self.decider.prepare(request)
        return prepared(
            asked.rows,
            asked.temperatures,
            partial(asked.read_rows, model=self.name),
            shared_from_tokens=_SHARED_FROM_TOKENS[self.decider.executor_name],
        )

    @property
    def engines(self) -> Mapping[str, Score]:
        """See `Brain`."""
        return {each.name: partial(self.decider.score, engine=each.name) for each in self.decider.engines}

    def describe(self) -> Mapping[str, object]:
        """The executor's report and counts, all devices together and each, and every choice with its reason."""
        return {
            "executor": self.decider.executor_name,
            "report": str(self.decider.describe()),
            "stats": asdict(self.decider.stats),
            "engines": [
                {"name": each.name, "report": str(each.report), "stats": asdict(each.stats)}
                for each in self.decider.engines
            ],
            "picks": [asdict(pick) for pick in self.decider.picks],
        }

    def close(self) -> None:
        """See `Brain`."""
        self.decider.close()


# A grid shares a start only where that is faster: at 300 tokens and 5 questions it declines, at 1,500 and 16 it shares
# (docs/log.md). Asking it would wait for the pack that runs.
_SHARED_FROM_TOKENS = {"packed": 1, "grid": 512, "reference": None}
