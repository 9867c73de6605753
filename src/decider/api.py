"""`Decider`: a model, ready to answer typed questions.

It joins the stages of a request, render → tokenise → plan → run → read → answer, and refuses to know how any of them
works. Trap: one wrong question must not cost the others their forward, so everything that can fail by the caller's
fault is checked for the whole request before the first row runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from decider.answering import Asked, LaidOut, RawAnswer, raw_answers
from decider.assembly import Say, assemble
from decider.engine import Engine, Engines, Scores
from decider.errors import ConfigError, QuestionError
from decider.questions.answered import Answers
from decider.questions.faults import located, show
from decider.questions.limits import DEFAULT_LIMITS, Limits
from decider.questions.request import Request, make_request
from decider.questions.rotate import Rotation, rotations
from decider.questions.types import Question
from decider.questions.wire import MODEL_ALIAS, parse_plain, parse_request
from decider.run.device import Pick
from decider.run.grid import GridExecutor
from decider.run.packed import PackedExecutor
from decider.run.stats import EngineState, GridReport, GridStats, PackedReport, ReferenceReport
from decider.selective import selector_for
from decider.settings import check_permutations, check_temperature, load_settings
from decider.tokens.calibration import Calibration
from decider.tokens.layout import Layout
from decider.tokens.rows import Row, Rows
from decider.tokens.temperature import temperature_for


class Decider:
    """Loads a model and answers requests with it, each question by one probability distribution.

    `model` is a Hub id, a folder, a `.gguf` file, or None for decider-mini. What is None here comes from the
    environment (`DECIDER_MODEL`, …), then from the file `DECIDER_CONFIG` names, then from the defaults of
    `decider.settings.Settings`. On several devices (`device="cuda:0,cuda:1"`, `"cuda:all"`) it is loaded on each, and
    calls go to the one with the least to do: those of several threads, and the parts of `ask_many`. Raises
    SetupError's subclasses while loading, InputError's subclasses while answering.
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
        decider_config: str | Path | None = None,
        temperature: float | None = None,
        permutations: int | None = None,
        truncate: bool | None = None,
        max_state_tokens: int | None = None,
        config: str | Path | None = None,
        limits: Limits | None = None,
        say: Say | None = None,
    ) -> None:
        arguments = {
            # Absolute, because a Path never means a shipped model, whatever it is called.
            "model": os.path.abspath(os.path.expanduser(model)) if isinstance(model, Path) else model,
            "gguf_file": gguf_file,
            "device": device,
            "executor": executor,
            "dtype": dtype,
            "compile": compile,
            "fp8": fp8,
            "layout": layout,
            "decider_config": os.fspath(decider_config) if isinstance(decider_config, Path) else decider_config,
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
        self._engines = Engines({name: Engine(executor) for name, executor in self._stack.executors.items()})

    def __enter__(self) -> Decider:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back the engines' graphs and memory. Questions after it raise EngineError on a grid."""
        self._engines.close()

    @property
    def name(self) -> str:
        """The name answers carry: `decider-<version>` of the model's configuration."""
        return f"decider-{self._stack.config.version}"

    @property
    def dtype_key(self) -> str:
        """What `x_calibration` calls the precision that answers come about in: `fp32`, `bf16`, `fp16` or `fp8`."""
        return self._stack.dtype_key

    @property
    def executor_name(self) -> str:
        """The executor that runs: `reference`, `grid` or `packed`."""
        return self._stack.executor_name

    @property
    def layout_name(self) -> str:
        """The layout of requests that name none."""
        return self._stack.layout.name

    @property
    def calibration(self) -> Calibration:
        """What `decider_config.json` says of answers in this precision; an explicit temperature overrides it."""
        return self._stack.calibration

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
        error_rate: float | None = None,
    ) -> Answers:
        """Answer `questions` (id → Choice, Score, Noul or a wire question) about `state` (text or JSON).

        Independent questions never see each other; with `independent=False` they share one row, and later ones read the
        text of earlier ones. `temperature` overrides the model's and switches its map of P(yes) off; `truncate` cuts a
        state over the cap and reports it. With `permutations` above 1 each Choice is asked in so many rotations of its
        options, and the answer is the mean of the probabilities (not of their logarithms), which takes away what the
        model prefers for its place; a map of P(yes) comes after the mean.

        `error_rate`, in (0, 1), adds a `Selection` to each answer: its prediction set, and whether to abstain. Raises
        QuestionError where the model has no thresholds that hold for the request.
        """
        request = make_request(
            state, questions, independent=independent, layout=layout, error_rate=error_rate, limits=self._limits
        )
        return self._answer([request], temperature=temperature, permutations=permutations, truncate=truncate)[0]

    def answer(self, request: Request) -> Answers:
        """Answer a request that was parsed before (`decider.questions.wire`), whatever model it names."""
        return self._answer([request])[0]

    def prepare(self, request: Request) -> Asked:
        """A request in token ids, as `answer` would run it; for whoever schedules the rows of many requests himself.

        Any thread may call it, while rows run too. Raises InputError's subclasses.
        """
        settings = self._settings
        return self._prepare(request, settings.temperature, settings.permutations, truncate=settings.truncate)

    def score(
        self, rows: Sequence[Row], temperatures: Sequence[Sequence[float]], *, engine: str | None = None
    ) -> Scores:
        """Log-probabilities, float64 [n_options], of each slot of each row, in order, for `Asked.read_rows`.

        `temperatures` has one number a slot of each row. `engine` is the name of one of `engines`; without, those that
        have the least to do take the rows. Raises as `Engine.score`.
        """
        if engine is None:
            return self._engines.score(rows, temperatures)
        return self._engines.score_on(engine, rows, temperatures)

    @property
    def stats(self) -> GridStats:
        """What ran since the model was loaded, on all devices; 0 for the reference executor, which does not count."""
        return sum((engine.stats for engine in self.engines), GridStats())

    @property
    def engines(self) -> tuple[EngineState, ...]:
        """Each device's engine: what it is, what it ran, and whether its device failed."""
        faults = self._engines.faults
        return tuple(
            EngineState(
                name,
                executor.describe(),
                executor.stats if isinstance(executor, (GridExecutor, PackedExecutor)) else GridStats(),
                faults.get(name),
            )
            for name, executor in self._stack.executors.items()
        )

    def describe(self) -> GridReport | PackedReport | ReferenceReport:
        """What runs, where and in which precision; see `decider.run.stats`.

        Of several engines the first one's graphs and prices, and all their names as `device`; `engines` has each.
        """
        names, [first, *_] = ",".join(self._stack.executors), self._stack.executors.values()
        return replace(first.describe(), device=names)

    @property
    def release_date(self) -> str:
        """The model's, as its `decider_config.json` says it."""
        return self._stack.config.release_date

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
        error_rate: float | None = None,
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
                    make_request(
                        state,
                        questions,
                        independent=independent,
                        layout=layout,
                        error_rate=error_rate,
                        limits=self._limits,
                    )
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

    def raw(self, requests: Sequence[Request]) -> list[dict[str, RawAnswer]]:
        """What the model says of each request's questions before any calibration: no temperature, no map, no selection.

        Every Choice is asked in its own order alone, whatever `permutations` is. All requests are checked, and their
        rows scored together. Raises as `ask` does.
        """
        built = []
        for index, request in enumerate(requests):
            with located("requests", index):
                layout = self._layout_of(request)
                built.append(self._stack.builder.build(request, layout=layout, truncate=self._settings.truncate))
        scores = iter(self._engines.score([row for one in built for row in one.rows]))
        raw = [raw_answers(one, [next(scores) for _ in one.rows]) for one in built]
        if self._stack.wordings is None:
            return raw
        return [
            {
                name: replace(own, familiarity=self._familiarity(request.questions[name]))
                for name, own in answers.items()
            }
            for request, answers in zip(requests, raw, strict=True)
        ]

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
                asked.append(self._prepare(request, override, n_orders, truncate=cut))
        return self._run(asked)

    def _prepare(self, request: Request, override: float | None, n_orders: int, *, truncate: bool) -> Asked:
        layout = self._layout_of(request)
        selector = selector_for(
            request,
            self.calibration,
            layout=layout.name,
            permutations=n_orders,
            overridden=override is not None,
        )
        askings = [Rotation(request, dict.fromkeys(request.questions, 0)), *rotations(request, n_orders)]
        return Asked(
            [self._lay_out(asking, layout, override, truncate=truncate) for asking in askings],
            self.calibration.noul_map if override is None else None,
            selector,
        )

    def _lay_out(self, asking: Rotation, layout: Layout, override: float | None, *, truncate: bool) -> LaidOut:
        built = self._stack.builder.build(asking.request, layout=layout, truncate=truncate)
        return LaidOut(asking, built, layout, self._temperatures(asking.request, built, layout, override))

    def _layout_of(self, request: Request) -> Layout:
        layout = self._stack.layout if request.layout is None else Layout.parse(request.layout)
        if layout.chat and self._stack.chat_fault is not None:
            raise QuestionError(f"this model has no chat layout: {self._stack.chat_fault}", loc=("layout",))
        return layout

    def _temperatures(self, request: Request, built: Rows, layout: Layout, override: float | None) -> list[list[float]]:
        """One temperature a slot of each row, in the rows' order."""
        spread = [[1.0] * len(row.slots) for row in built.rows]
        given = self.calibration.temperatures
        for question_id, slots in built.places.items():
            question = request.questions[question_id]
            familiarity = self._familiarity(question) if given.unfamiliar_by_type else 1.0
            for slot in slots:
                spread[slot.row][slot.index] = override or temperature_for(
                    given,
                    kind=question.kind,
                    n_options=built.rows[slot.row].n_options[slot.index],
                    familiarity=familiarity,
                    schema_first=layout.schema_first,
                )
        return spread

    def _familiarity(self, question: Question) -> float:
        assert self._stack.wordings is not None
        return self._stack.wordings.familiarity(question)

    def _run(self, asked: Sequence[Asked]) -> list[Answers]:
        """Score the rows of all askings of all requests at once, which fills batches, and read the answers."""
        rows = [row for request in asked for row in request.rows]
        scores = iter(self.score(rows, [row for request in asked for row in request.temperatures]))
        return [request.read_rows([next(scores) for _ in request.rows], self.name) for request in asked]


def _say_on_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
