"""Typed decisions with calibrated probabilities in one forward pass of a causal language model.

`from decider import Decider, Choice, Score, Noul` is the whole of the everyday API. Trap: `Decider` is imported on
first use, because it needs torch; questions and errors are pure Python and import at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from decider.errors import (
    ConfigError,
    DeciderError,
    DeviceError,
    EngineError,
    InputError,
    MissingDependencyError,
    ModelError,
    QuestionError,
    SchemaError,
    SetupError,
    TooLargeError,
)
from decider.questions.answered import Answers
from decider.questions.answers import Answer, ChoiceAnswer, NoulAnswer, ScoreAnswer, Selection
from decider.questions.types import Choice, Noul, Question, Score

if TYPE_CHECKING:
    from decider.api import Decider

__all__ = [
    "Answer",
    "Answers",
    "Choice",
    "ChoiceAnswer",
    "ConfigError",
    "Decider",
    "DeciderError",
    "DeviceError",
    "EngineError",
    "InputError",
    "MissingDependencyError",
    "ModelError",
    "Noul",
    "NoulAnswer",
    "Question",
    "QuestionError",
    "SchemaError",
    "Score",
    "ScoreAnswer",
    "Selection",
    "SetupError",
    "TooLargeError",
]


def __getattr__(name: str) -> object:
    if name == "Decider":
        from decider.api import Decider

        return Decider
    raise AttributeError(f"module 'decider' has no attribute {name!r}")
