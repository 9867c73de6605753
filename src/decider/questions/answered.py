"""The answers of one request, by question id.

It refuses to know how they came about. Trap: the order is that of the questions, which a table and the wire keep.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from decider.questions.answers import Answer, ChoiceAnswer, NoulAnswer, ScoreAnswer
from decider.questions.wire import response

AnswerType = TypeVar("AnswerType", ChoiceAnswer, ScoreAnswer, NoulAnswer)


@dataclass(frozen=True, slots=True)
class Answers(Mapping[str, Answer]):
    """The answers of one request by question id, in the order asked. `input_tokens` counts what the model read."""

    answers: Mapping[str, Answer]
    model: str
    input_tokens: int

    def __getitem__(self, question_id: str) -> Answer:
        return self.answers[question_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)

    def choice(self, question_id: str) -> ChoiceAnswer:
        """The answer of a Choice. Raises KeyError for an unknown id, TypeError for a question of another type."""
        return self._typed(question_id, ChoiceAnswer)

    def score(self, question_id: str) -> ScoreAnswer:
        """The answer of a Score. Raises as `choice` does."""
        return self._typed(question_id, ScoreAnswer)

    def noul(self, question_id: str) -> NoulAnswer:
        """The answer of a Noul. Raises as `choice` does."""
        return self._typed(question_id, NoulAnswer)

    def _typed(self, question_id: str, kind: type[AnswerType]) -> AnswerType:
        answer = self.answers[question_id]
        if not isinstance(answer, kind):
            raise TypeError(
                f"question {question_id!r} was answered by a {type(answer).__name__}, not a {kind.__name__}"
            )
        return answer

    def to_wire(self) -> dict[str, object]:
        """The wire response, ready for `json.dumps`."""
        return response(self.model, self.answers, self.input_tokens)
