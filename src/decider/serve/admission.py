"""How much work may be in the house: requests, rows and tokens, taken when a request comes and given back when it goes.

It refuses to know what a request is for, and it has no lock: one thread, the event loop's, does all of it. Trap: tokens
are only known once a text is tokenised, and texts that wait for that take room too; they are admitted by an estimate.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

from decider.errors import ConfigError, TooLargeError
from decider.questions.request import Request

CHARACTERS_PER_TOKEN = 4
"""Of English text, about; what counts later is the true number."""
QUESTION_TOKENS = 32
"""What a question adds to a request, about."""
WEIGHT = 0.05
"""Of the newest request in the mean error of those guesses."""
MOST_RATIO = 4.0
"""What one request can say of the others: its questions may be long, or of ten rows each."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """An operator's limits, each at least 1. Raises ConfigError for less."""

    max_requests: int = 1024
    """The most requests that wait, run or are being tokenised."""
    max_rows: int = 16_384
    max_tokens: int = 262_144
    """The most tokens of those requests together."""
    max_row_tokens: int = 65_536
    """The most tokens of one row: the layout, the state and a question."""
    max_request_tokens: int = 131_072
    """The most tokens that running one request costs; a state that its questions share counts once."""
    pack_tokens: int = 2048
    """Tokens that go to the engine at once; a longer row goes alone."""
    prepare_threads: int = 2
    """Threads that render and tokenise."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value < 1:
                raise ConfigError(f"{each.name} is {value}; it must be at least 1")

    def check(self, longest_row_tokens: int, n_rows: int, n_tokens: int) -> None:
        """Raises TooLargeError for a request that could never run, however empty the queue is."""
        if longest_row_tokens > self.max_row_tokens:
            raise TooLargeError(
                f"a row of {longest_row_tokens:,} tokens is over the maximum context length of {self.max_row_tokens:,} "
                "tokens (max_row_tokens); shorten the state or the question"
            )
        most_tokens = min(self.max_request_tokens, self.max_tokens)
        if n_tokens > most_tokens:
            raise TooLargeError(
                f"{n_tokens:,} tokens are too many tokens for one request, which holds at most {most_tokens:,} "
                "(max_request_tokens); ask fewer questions at once"
            )
        if n_rows > self.max_rows:
            raise TooLargeError(
                f"the request has {n_rows:,} rows, over the limit of {self.max_rows:,} that wait at once "
                "(max_queued_rows), which is as good as too many tokens; split it over several"
            )


@dataclass(slots=True)
class Estimate:
    """About how many tokens requests have, without reading their text: a guess, and how far off it was lately."""

    ratio: float = 1.0
    """Mean of true tokens over guessed ones: near 1 for English, 2 for JSON, more for other scripts."""

    def of(self, request: Request) -> int:
        """Tokens, at least 1."""
        return max(1, round(self.ratio * _guess(request)))

    def learn(self, request: Request, n_tokens: int) -> None:
        """`request` was read and has `n_tokens`."""
        self.ratio += WEIGHT * (min(MOST_RATIO, n_tokens / _guess(request)) - self.ratio)


def _guess(request: Request) -> int:
    return len(request.state) // CHARACTERS_PER_TOKEN + QUESTION_TOKENS * len(request.questions)


class Held(NamedTuple):
    """What one request holds of the house."""

    requests: int
    rows: int
    tokens: int


NOTHING = Held(0, 0, 0)


@dataclass(slots=True)
class Admission:
    """What all requests hold together."""

    limits: QueueLimits
    requests: int = 0
    rows: int = 0
    tokens: int = 0

    def has_room(self, before: Held, after: Held) -> bool:
        """Whether a request that holds `before` may hold `after`."""
        limits = self.limits
        others = self.tokens - before.tokens
        return (
            self.requests - before.requests + after.requests <= limits.max_requests
            and self.rows - before.rows + after.rows <= limits.max_rows
            # Alone in the house, a request is let in whatever its estimate says; `QueueLimits.check` has the number.
            and (others + after.tokens <= limits.max_tokens or not others)
        )

    def change(self, before: Held, after: Held) -> None:
        """A request that held `before` holds `after`."""
        self.requests += after.requests - before.requests
        self.rows += after.rows - before.rows
        self.tokens += after.tokens - before.tokens
        assert min(self.requests, self.rows, self.tokens) >= 0, self
