"""`Decider`: a model, ready to answer typed questions.

It joins the stages of a request, render → tokenise → plan → run → read → answer, and refuses to know how any of them
works. Trap: one wrong question must not cost the others their forward, so everything that can fail by the caller's
fault is checked for the whole request before the first row runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from decider.assembly import Say, assemble
from decider.engine import Engine
from decider.errors import ConfigError, QuestionError
from decider.questions.answers import Answer, ChoiceAnswer, NoulAnswer, ScoreAnswer, read_answer
from decider.questions.faults import located, show
from decider.questions.limits import DEFAULT_LIMITS, Limits
from decider.questions.request import Request, make_request
from decider.questions.rotate import Rotation, rotations
from decider.questions.types import Question
from decider.questions.wire import MODEL_ALIAS, parse_plain, parse_request, response
from decider.read import Float64Array, normalise_levels
from decider.run.device import Pick
from decider.settings import check_permutations, check_temperature, load_settings
from decider.tokens.layout import Layout
from decider.tokens.rows import Rows, Slot, input_tokens
from decider.tokens.temperature import temperature_for

YES = 1
"""A Noul's options are always (no, yes)."""

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


class Decider:
    """Loads a model once and answers requests with it, each question by one probability distribution.

    `model` is a Hub id, a folder, a `.gguf` file, or None for the embedded model. What is None here comes from the
    environment (`DECIDER_MODEL`, …), then from the file `DECIDER_CONFIG` names, then from the defaults of
    `decider.settings.Settings`. Raises SetupError's subclasses while loading, InputError's subclasses while answering.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        gguf_file: str | None = None,
        device: str | None = None,
        executor: str | None = None,
        dtype: str | None = None,
        compile: bool | None = None,  # noqa: A002 - the setting's name
        fp8: bool | None = None,
        layout: str | None = None,
        temperature: float | None = None,
        permutations: int | None = None,
        truncate: bool | None = None,
        max_state_tokens: int | None = None,
        config: str | Path | None = None,
        limits: Limits | None = None,
        say: Say | None = None,
    ) -> None:
        arguments = {
            # Absolute, because a Path never means the embedded model, whatever it is called.
            "model": os.path.abspath(os.path.expanduser(model)) if isinstance(model, Path) else model,
            "gguf_file": gguf_file,
            "device": device,
            "executor": executor,
            "dtype": dtype,
            "compile": compile,
            "fp8": fp8,
            "layout": layout,
            "temperature": temperature,
            "permutations": permutations,
            "truncate": truncate,
            "max_state_tokens": max_state_tokens,
        }
        if config is not None and not isinstance(config, (str, Path)):
            raise ConfigError(f"config is {show(config)}; it must be the path of a TOML file")
        if limits is not None and not isinstance(limits, Limits):
            raise ConfigError(f"limits is {show(limits)}; it must be a decider.questions.limits.Limits")
        settings = load_settings(arguments, environ=os.environ, file=None if config is None else Path(config))
        self._settings = settings
        self._limits = DEFAULT_LIMITS if limits is None else limits
        self._stack = assemble(settings, say or _say_on_stderr)
        self._engine = Engine(self._stack.executor)

    def __enter__(self) -> Decider:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back the engine's graphs and memory. Questions after it raise EngineError on a grid."""
        self._engine.close()

    @property
    def name(self) -> str:
        """The name answers carry: `decider-<version>` of the model's configuration."""
        return f"decider-{self._stack.config.version}"

    @property
    def picks(self) -> tuple[Pick, ...]:
        """Every automatic choice with its reason, as `decider doctor` shows them."""
        return self._stack.picks

    def ask(
        self,
        state: object,
        questions: Mapping[str, Question | Mapping[str, object]],
        *,
        independent: bool = True,
        layout: str | None = None,
        temperature: float | None = None,
        permutations: int | None = None,
        truncate: bool | None = None,
    ) -> Answers:
        """Answer `questions` (id → Choice, Score, Noul or a wire question) about `state` (text or JSON).

        Independent questions never see each other; with `independent=False` they share one row, and later ones read the
        text of earlier ones. `temperature` overrides the model's; `truncate` cuts a state over the cap and reports it.
        With `permutations` above 1 each Choice is asked in so many rotations of its options, and the answer is the mean
        of the probabilities (not of their logarithms), which takes away what the model prefers for its place.
        """
        request = make_request(state, questions, independent=independent, layout=layout, limits=self._limits)
        return self._answer([request], temperature=temperature, permutations=permutations, truncate=truncate)[0]

    def answer(self, request: Request) -> Answers:
        """Answer a request that was parsed before (`decider.questions.wire`), whatever model it names."""
        return self._answer([request])[0]

    def ask_many(
        self,
        states: Sequence[object],
        questions: Mapping[str, Question | Mapping[str, object]],
        *,
        independent: bool = True,
        layout: str | None = None,
        temperature: float | None = None,
        permutations: int | None = None,
        truncate: bool | None = None,
    ) -> list[Answers]:
        """`ask` for each of `states`, in order. Every state is checked before the first one runs; [] gives []."""
        if isinstance(states, (str, bytes, Mapping)) or not isinstance(states, Sequence):
            raise QuestionError(
                f"states is a {type(states).__name__}; it must be a list of states, or use ask() for one"
            )
        requests = []
        for index, state in enumerate(states):
            with located("states", index):
                requests.append(
                    make_request(state, questions, independent=independent, layout=layout, limits=self._limits)
                )
        return self._answer(requests, temperature=temperature, permutations=permutations, truncate=truncate)

    def system_one(self, request: Mapping[str, object] | str | bytes) -> dict[str, object]:
        """Answer a wire request (a mapping, or its JSON) with the wire response."""
        parsed = parse_request(request, self._limits)
        self.check_model(parsed)
        return self._answer([parsed])[0].to_wire()

    def check_model(self, request: Request) -> None:
        """Raises QuestionError if `request` names another model than this one."""
        served = {self.name, MODEL_ALIAS, self._stack.folder.name, self._settings.model}
        if request.model is not None and request.model not in served:
            raise QuestionError(
                f"unknown model {show(request.model)}; this one is {self.name!r} (alias {MODEL_ALIAS!r})",
                loc=("model",),
            )

    def decide(self, context: object, questions: Mapping[str, object], *, independent: bool = False) -> Answers:
        """The plain form: question text → `{"type": "choice", "options": […]}`, `{"type": "bool"}` or
        `{"type": "scale", "levels": […]}`. All questions share one joint row unless `independent`.
        """
        return self._answer([parse_plain(context, questions, independent=independent, limits=self._limits)])[0]

    def _answer(
        self,
        requests: Sequence[Request],
        *,
        temperature: float | None = None,
        permutations: int | None = None,
        truncate: bool | None = None,
    ) -> list[Answers]:
        override = self._settings.temperature if temperature is None else check_temperature(temperature)
        n_orders = self._settings.permutations if permutations is None else check_permutations(permutations)
        cut = self._settings.truncate if truncate is None else truncate
        if not isinstance(cut, bool):
            raise ConfigError(f"truncate is {show(cut)}; it must be True or False")
        asked = []
        for index, request in enumerate(requests):
            with located(*(("states", index) if len(requests) > 1 else ())):
                layout = self._layout_of(request)
                askings = [Rotation(request, dict.fromkeys(request.questions, 0)), *rotations(request, n_orders)]
                asked.append([self._lay_out(asking, layout, override, truncate=cut) for asking in askings])
        return self._run(asked)

    def _lay_out(self, asking: Rotation, layout: Layout, override: float | None, *, truncate: bool) -> _LaidOut:
        built = self._stack.builder.build(asking.request, layout=layout, truncate=truncate)
        return _LaidOut(asking, built, layout, self._temperatures(asking.request, built, layout, override))

    def _layout_of(self, request: Request) -> Layout:
        layout = self._stack.layout if request.layout is None else Layout.parse(request.layout)
        if layout.chat and self._stack.chat_fault is not None:
            raise QuestionError(f"this model has no chat layout: {self._stack.chat_fault}", loc=("layout",))
        return layout

    def _temperatures(self, request: Request, built: Rows, layout: Layout, override: float | None) -> list[list[float]]:
        """One temperature a slot of each row, in the rows' order."""
        spread = [[1.0] * len(row.slots) for row in built.rows]
        for question_id, slots in built.places.items():
            kind = request.questions[question_id].kind
            for slot in slots:
                n_options = built.rows[slot.row].n_options[slot.index]
                spread[slot.row][slot.index] = override or temperature_for(
                    self._stack.config, kind=kind, n_options=n_options, schema_first=layout.schema_first
                )
        return spread

    def _run(self, asked: Sequence[Sequence[_LaidOut]]) -> list[Answers]:
        """Score the rows of all askings of all requests at once, which fills batches, and read the answers."""
        every = [one for askings in asked for one in askings]
        rows = [row for one in every for row in one.built.rows]
        scores = iter(self._engine.score(rows, [row for one in every for row in one.temperatures]))
        return [self._read(askings, [[next(scores) for _ in one.built.rows] for one in askings]) for askings in asked]

    def _read(self, askings: Sequence[_LaidOut], scores: Sequence[Sequence[Sequence[Float64Array]]]) -> Answers:
        """The answers to the first asking, each averaged over all in which its question stands."""
        request = askings[0].asking.request
        answers = {}
        for question_id, question in request.questions.items():
            asked = [
                (one, _distribution(own, one.built.places[question_id]))
                for one, own in zip(askings, scores, strict=True)
                if question_id in one.built.places
            ]
            shares = [one.asking.back(question_id, distribution.tolist()) for one, distribution in asked]
            answers[question_id] = read_answer(
                question,
                np.mean(shares, axis=0).tolist(),
                truncated=any(question_id in one.built.truncated for one, _ in asked),
            )
        rows = [row for one in askings for row in one.built.rows]
        return Answers(answers, self.name, input_tokens(rows, askings[0].layout))


@dataclass(frozen=True, slots=True)
class _LaidOut:
    """One asking in token ids."""

    asking: Rotation
    built: Rows
    layout: Layout
    temperatures: list[list[float]]
    """One a slot of each row, in the rows' order."""


def _distribution(scores: Sequence[Sequence[Float64Array]], slots: Sequence[Slot]) -> Float64Array:
    """A question's distribution: a lone option's certainty, one slot's softmax, or the levels' share of yes."""
    logs = [scores[slot.row][slot.index] for slot in slots]
    if not logs:
        return np.ones(1)
    if len(logs) == 1:
        return np.exp(logs[0])
    return normalise_levels([log[YES] for log in logs])


def _say_on_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
