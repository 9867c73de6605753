"""Rows without their state: the pieces of one row's questions, encoded and joined in the layout's order.

It refuses to know the state, its cap and which questions share a row (`rows`). Trap: every piece is encoded alone and
joined by ids. Encoding two pieces as one string is faster, gives other ids at the seam, and raises nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from decider.errors import QuestionError
from decider.questions.faults import step
from decider.questions.prompt import Prompt
from decider.tokens.bounded import encode_within
from decider.tokens.chat import ChatFrame
from decider.tokens.labels import LabelTable
from decider.tokens.layout import Layout
from decider.tokens.pieces import CONTEXT, Pieces, answers, plain_questions, questions
from decider.tokens.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Draft:
    """A row that waits for its state: `before` + state + `after`, in token ids."""

    names: tuple[str, ...]
    """The question of each slot."""
    before: tuple[int, ...]
    after: tuple[int, ...]
    slots: tuple[int, ...]
    """Positions in `after`: the last token of each answer piece."""
    n_options: tuple[int, ...]
    schema_tokens: int | None
    """Schema first: how much of `before` does not change with the state; None in a state-first row."""

    @property
    def tokens(self) -> int:
        """Length of the row without its state."""
        return len(self.before) + len(self.after)


@dataclass(frozen=True, slots=True)
class Drafter:
    """Writes the rows of one model. `chat` is None where the tokenizer has no usable chat template."""

    tokenizer: Tokenizer
    labels: LabelTable
    chat: ChatFrame | None
    max_positions: int

    def draft(self, asked: Mapping[str, Prompt], layout: Layout) -> Draft:
        """One row that asks all of `asked`, in order.

        Raises QuestionError for a chat layout without a chat frame, or for more options than there are labels. A row of
        more than `max_positions` may lack its end.
        """
        frame = self._frame(layout)
        for name, prompt in asked.items():
            self._check_options(name, prompt)
        names, prompts = tuple(asked), tuple(asked.values())
        n_options = tuple(len(prompt.options) for prompt in prompts)
        if not layout.chat and not layout.schema_first:
            after, slots = self._encode(plain_questions(prompts, self.labels))
            return Draft(names, (), after, slots, n_options, None)
        schema, _ = self._encode(questions(prompts, self.labels, schema_first=layout.schema_first))
        ending, ends = self._encode(answers(len(prompts), chat=layout.chat))
        if layout.schema_first:
            before = (*frame.head, *schema, *self.tokenizer.encode(f"\n\n{CONTEXT}"))
            opening, schema_tokens = frame.tail, len(frame.head) + len(schema)
        else:
            before, opening, schema_tokens = frame.head, (*schema, *frame.tail), None
        slots = tuple(len(opening) + end for end in ends)
        return Draft(names, before, (*opening, *ending), slots, n_options, schema_tokens)

    def _frame(self, layout: Layout) -> ChatFrame:
        if not layout.chat:
            return ChatFrame((), ())
        if self.chat is None:
            raise QuestionError(
                f"layout {layout.name!r} needs a chat template, which this model has not; ask for a plain layout",
                loc=("layout",),
            )
        return self.chat

    def _check_options(self, name: str, prompt: Prompt) -> None:
        limit = len(self.labels)
        if len(prompt.options) > limit:
            raise QuestionError(
                f"the question has {len(prompt.options)} options, over this model's limit of {limit} options per "
                "choice (its tokenizer has no more one-token labels); offer fewer options",
                loc=("questions", step(name)),
            )

    def _encode(self, groups: Iterable[Pieces]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids of all pieces, and the position among them of each group's last token."""
        ids: list[int] = []
        ends: list[int] = []
        for pieces in groups:
            for piece in pieces:
                if isinstance(piece, int):
                    ids.append(self.labels.ids[piece])
                elif len(ids) <= self.max_positions:
                    ids += encode_within(self.tokenizer, piece, self.max_positions)
            ends.append(len(ids) - 1)
        return tuple(ids), tuple(ends)
