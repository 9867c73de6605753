"""Requests to rows of token ids: which questions share a row, how much state each row gets, where answers are read.

It refuses to know models, packs and answers. Trap: a state over its cap is cut per question. A cap for the whole
request would let one long question change the others' answers.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from decider.errors import QuestionError, TooLargeError
from decider.questions.faults import step
from decider.questions.prompt import Prompt, level_prompts, prompt
from decider.questions.request import Request
from decider.questions.types import Choice, Question, Score
from decider.tokens.bounded import encode_within
from decider.tokens.chat import ChatFrame
from decider.tokens.config import CONFIG_NAME, DeciderConfig
from decider.tokens.drafts import Draft, Drafter
from decider.tokens.labels import LabelTable
from decider.tokens.layout import Layout
from decider.tokens.pieces import CONTEXT
from decider.tokens.tokenizer import Tokenizer

ID_BYTES = 8
"""Bytes of a token id in `Row.id_bytes`."""
MAX_TOKENS_OF_ROWS = 2**24
"""Of one request, each row counted with its whole state, since each holds a copy: 16 bytes a token, 256 MiB in all."""


@dataclass(frozen=True, slots=True)
class Row:
    """One causal sequence for the model."""

    ids: tuple[int, ...]
    slots: tuple[int, ...]
    """Positions in `ids`, ascending: the last token of each answer piece, where the label logits are read."""
    n_options: tuple[int, ...]
    """How many labels are in play, from the first of the label table on; one number a slot."""
    prefix_tokens: int
    """Length of the reusable start of `ids`. State first: head and state, the same for every question of equal cap.
    Schema first: head and questions, the same for every state."""
    id_bytes: bytes = field(init=False, repr=False, compare=False)
    """`ids` as int64, `ID_BYTES` each, in this machine's byte order. Planning compares and copies these: reading Python
    integers would be the greatest part of it."""
    start_bytes: bytes = field(init=False, repr=False, compare=False)
    """Those of the reusable start that lie before the first slot: what other rows may share."""

    def __post_init__(self) -> None:
        id_bytes = struct.pack(f"{len(self.ids)}q", *self.ids)
        n_start = min((self.prefix_tokens, *self.slots[:1]))
        object.__setattr__(self, "id_bytes", id_bytes)
        object.__setattr__(self, "start_bytes", id_bytes[: ID_BYTES * n_start])

    @property
    def id_array(self) -> NDArray[np.int64]:
        """[tokens] `ids`, read-only; a view of `id_bytes`."""
        return np.frombuffer(self.id_bytes, np.int64)


@dataclass(frozen=True, slots=True)
class Slot:
    """Where one answer is read: slot `index` of row `row`."""

    row: int
    index: int


@dataclass(frozen=True, slots=True)
class Rows:
    """A whole request in token ids."""

    rows: tuple[Row, ...]
    places: Mapping[str, tuple[Slot, ...]]
    """Question id → its slots. One; one a level if levels are isolated; none for an independent one-option Choice."""
    truncated: frozenset[str]
    """Ids of the questions that see a cut state."""
    input_tokens: int
    """Tokens of all rows. State first, the head and state that the rows share are counted once."""


@dataclass(frozen=True, slots=True)
class RowBuilder:
    """Builds the rows of any request for one model. It keeps nothing of a request, so any thread may use it.

    `chat` is None where the tokenizer has no usable chat template. `max_positions` and `max_state_tokens` count tokens
    and are at least 1.
    """

    tokenizer: Tokenizer
    labels: LabelTable
    config: DeciderConfig
    _: KW_ONLY
    chat: ChatFrame | None
    max_positions: int
    max_state_tokens: int = 32_768

    def __post_init__(self) -> None:
        assert self.max_positions >= 1, self.max_positions
        assert self.max_state_tokens >= 1, self.max_state_tokens

    def build(self, request: Request, *, layout: Layout, truncate: bool) -> Rows:
        """One row a question (one a level where levels are isolated), or a single row if not `request.independent`.

        A state over its cap is cut at the end if `truncate`, else refused. The cap is `max_state_tokens`, and never
        more than the positions leave beside the question's longest row; each independent question has its own.

        Raises QuestionError for a layout this model cannot answer in, or for more options than it has labels;
        TooLargeError for a state over its cap, for a question that leaves no position for a state, or for rows of more
        than `MAX_TOKENS_OF_ROWS` together.
        """
        self._check_schema_first(layout)
        groups = self._drafts(request, layout)
        rows: list[Row] = []
        places: dict[str, list[Slot]] = {name: [] for name in request.questions}
        truncated: set[str] = set()
        state: list[int] = []
        if groups:
            text = request.state if layout.schema_first else CONTEXT + request.state
            state = encode_within(self.tokenizer, text, min(self.max_state_tokens, self.max_positions))
        caps = [self._cap(drafts, len(state), truncate=truncate) for drafts in groups]
        _check_total(groups, [min(cap, len(state)) for cap in caps])
        for drafts, cap in zip(groups, caps, strict=True):
            kept = state[:cap]
            for draft in drafts:
                for index, name in enumerate(draft.names):
                    places[name].append(Slot(len(rows), index))
                if len(kept) < len(state):
                    truncated.update(draft.names)
                rows.append(_row(draft, kept))
        frozen_places = MappingProxyType({name: tuple(slots) for name, slots in places.items()})
        return Rows(tuple(rows), frozen_places, frozenset(truncated), input_tokens(rows, layout))

    def _check_schema_first(self, layout: Layout) -> None:
        config = self.config
        if layout.schema_first and config.present and not (config.schema_first or config.schema_first_trained):
            raise QuestionError(
                f"layout {layout.name!r} puts the questions first, for which this model was not trained ({CONFIG_NAME} "
                "sets neither schema_first nor schema_first_trained); ask for a layout that puts the state first",
                loc=("layout",),
            )

    def _drafts(self, request: Request, layout: Layout) -> list[list[Draft]]:
        """The rows to come, in order. Those of one inner list see the same state; no inner list is empty."""
        drafter = Drafter(self.tokenizer, self.labels, self.chat, self.max_positions)

        def draft(asked: Mapping[str, Prompt]) -> Draft:
            drafted = drafter.draft(asked, layout)
            self._check_room(drafted)
            return drafted

        if not request.independent:
            joint = {name: self._prompt(question) for name, question in request.questions.items()}
            return [[draft(joint)]]
        own_rows = ((name, self._own_rows(question)) for name, question in request.questions.items())
        return [[draft({name: asked}) for asked in prompts] for name, prompts in own_rows if prompts]

    def _own_rows(self, question: Question) -> tuple[Prompt, ...]:
        """The prompts of an independent question, one a row."""
        if isinstance(question, Choice) and len(question.names) == 1:
            return ()
        if isinstance(question, Score):
            isolated = self.config.isolated_levels if question.isolated is None else question.isolated
            if isolated:
                return level_prompts(question)
        return (self._prompt(question),)

    def _prompt(self, question: Question) -> Prompt:
        return prompt(question, neutralize_none=self.config.neutralize_none)

    def _check_room(self, draft: Draft) -> None:
        if draft.tokens < self.max_positions:
            return
        names = tuple(map(step, draft.names))
        raise TooLargeError(
            f"without its state the row has at least {draft.tokens:,} tokens, which leaves none for the state in the "
            f"model's maximum context length of {self.max_positions:,} tokens; shorten the text or offer fewer options",
            loc=("questions", *names) if len(names) == 1 else ("questions",),
        )

    def _cap(self, drafts: Sequence[Draft], state_tokens: int, *, truncate: bool) -> int:
        """How many state tokens the rows of `drafts` may hold."""
        longest = max(draft.tokens for draft in drafts)
        room = self.max_positions - longest
        cap = min(self.max_state_tokens, room)
        if state_tokens > cap and not truncate:
            limit = (
                "max_state_tokens" if cap < room else f"{self.max_positions:,} positions less {longest:,} of questions"
            )
            raise TooLargeError(
                f"the state has at least {state_tokens:,} tokens, over the maximum context length of {cap:,} tokens "
                f"({limit}); shorten it, or have it cut with truncate=True (--truncate)",
                loc=("state",),
            )
        return cap


def _check_total(groups: Sequence[Sequence[Draft]], state_tokens: Sequence[int]) -> None:
    total = sum(draft.tokens + kept for drafts, kept in zip(groups, state_tokens, strict=True) for draft in drafts)
    if total > MAX_TOKENS_OF_ROWS:
        raise TooLargeError(
            f"the rows of this request, each with its state, have {total:,} tokens, which are too many tokens for one "
            f"request, at most {MAX_TOKENS_OF_ROWS:,}; ask fewer questions at once",
            loc=("questions",),
        )


def _row(draft: Draft, state: Sequence[int]) -> Row:
    start = len(draft.before) + len(state)
    prefix_tokens = start if draft.schema_tokens is None else draft.schema_tokens
    ids = (*draft.before, *state, *draft.after)
    return Row(ids, tuple(start + slot for slot in draft.slots), draft.n_options, prefix_tokens)


def input_tokens(rows: Sequence[Row], layout: Layout) -> int:
    """Tokens of the rows of one request. State first, the head and state that they share are counted once."""
    total = sum(len(row.ids) for row in rows)
    if layout.schema_first or not rows:
        return total
    prefixes = [row.prefix_tokens for row in rows]
    return total - sum(prefixes) + max(prefixes)
