"""Making executors and timing cases on them.

It refuses to print. Trap: a case is timed as a caller meets it, so an executor chooses its own way (full rows or a
shared state); the two ways beside it are forced, and say what the choice was worth.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np

from decider.assembly import executor_for, make_executor, open_model
from decider.bench.cases import Case, rows_of
from decider.bench.configs import LABEL_IDS
from decider.bench.floor import ModelWork, floor
from decider.bench.machine import matmul_rate, this_machine
from decider.bench.products import Products, product_shapes
from decider.bench.shapes import random_model
from decider.bench.table import Measured, Report
from decider.bench.work import model_work
from decider.errors import ConfigError, EngineError
from decider.model.head import label_head
from decider.model.load import LoadedModel
from decider.run.device import pick_attention, pick_device, pick_dtype
from decider.run.executor import Executor, Logits
from decider.run.grid import GridExecutor
from decider.run.options import GridOptions
from decider.run.packed import PackedExecutor
from decider.run.stats import ReferenceReport
from decider.settings import Settings
from decider.tokens.rows import Row

Say = Callable[[str], None]

MOST_RUNS, LEAST_RUNS = 20, 3
ENOUGH_S = 5.0
"""Without a wanted number of runs, slow calls are repeated for no longer than this."""


@dataclass(frozen=True, slots=True)
class Subject:
    """An executor to time, and what is known of its model."""

    name: str
    executor: Executor
    model: str
    device: str
    dtype: str
    max_positions: int
    vocab: int
    work: ModelWork
    products: Products | None
    """None for a model that also multiplies in other ways than by linear layers."""


def open_subject(settings: Settings, shape: str | None, least_tokens: int, say: Say) -> Subject:
    """The executor of `settings`, ready for rows, for their model or for random weights of `shape`.

    Raises ConfigError, before the executor is made, for a model of fewer than `least_tokens` positions, and what
    loading and warm-up raise.
    """
    if shape is None:
        opened = open_model(settings, say)
        loaded = opened.loaded
        _check_positions(loaded, least_tokens)
        work, shapes = model_work(loaded.module), product_shapes(loaded.module)
        executor = make_executor(settings, opened, say)
    else:
        device = pick_device(settings.device).value
        dtype = pick_dtype(settings.executor, device, settings.dtype).value
        attention = pick_attention(settings.executor)
        loaded = random_model(shape, device=device, dtype=dtype, attention=attention.value)
        _check_positions(loaded, least_tokens)
        work, shapes = model_work(loaded.module), product_shapes(loaded.module)
        executor = executor_for(
            settings.executor,
            loaded,
            label_head(loaded, LABEL_IDS),
            attention=attention,
            options=GridOptions(compile=settings.compile, fp8=settings.fp8),
            say=say,
        )
    vocab = int(loaded.module.config.get_text_config().vocab_size)
    products = None if shapes is None else Products(shapes, loaded.device, loaded.dtype)
    return Subject(
        settings.executor,
        executor,
        loaded.name,
        loaded.device,
        loaded.dtype,
        loaded.max_positions,
        vocab,
        work,
        products,
    )


def bench(
    settings: Settings,
    cases: Sequence[Case],
    *,
    shape: str | None = None,
    compare: str | None = None,
    repeats: int | None = None,
    say: Say,
) -> Report:
    """Time `cases` on the executor of `settings`, and on the one called `compare` with a model of its own.

    Both are made before anything is timed, and each case is timed on both before the next, so that a machine that
    changes its speed changes it for both. Raises ConfigError if the model has positions for none of the cases.
    """
    least_tokens = min(case.longest for case in cases)
    with ExitStack() as opened:
        subject = open_subject(settings, shape, least_tokens, say)
        opened.callback(subject.executor.close)
        fitting = [case for case in cases if case.longest <= subject.max_positions]
        left_out = tuple(str(case) for case in cases if case not in fitting)
        for name in left_out:
            say(f"left out: {name}, as {subject.model} has {subject.max_positions:,} positions")
        compared = None
        if compare is not None:
            # `compile` belongs to the grid, and the oracle has no options.
            fp8 = settings.fp8 and compare != "reference"
            plain = (
                settings if compare == settings.executor else replace(settings, compile=False, fp8=fp8, dtype="auto")
            )
            compared = open_subject(replace(plain, executor=compare), shape, least_tokens, say)
            opened.callback(compared.executor.close)
        rate = matmul_rate(subject.device, subject.dtype)
        rows = []
        for case in fitting:
            rows.append(measure_case(case, subject, compared, tflops=rate.tflops, repeats=repeats))
            say(f"{case}: {told(rows[-1], compare)}")
        described = subject.executor.describe()
        return Report(
            model=subject.model,
            executor=subject.name,
            describe=str(described),
            compare=compare,
            compare_describe=None if compared is None else str(compared.executor.describe()),
            machine=this_machine(subject.device),
            rate=rate,
            warmup_s=None if isinstance(described, ReferenceReport) else described.warmup_s,
            pool_bytes=None if isinstance(described, ReferenceReport) else described.pool_bytes,
            left_out=left_out,
            rows=tuple(rows),
        )


def told(row: Measured, compare: str | None) -> str:
    """What a line of progress says of a case, so that a run which is cut off leaves more than its last line."""
    said = [f"{row.ms:.2f} ms"]
    if row.replay_ms is not None:
        said.append(f"replays {row.replay_ms:.2f}")
    if row.products_ms is not None:
        said.append(f"products {row.products_ms:.2f}")
    if row.ratio is not None:
        said.append(f"{row.ratio:.2f} × as fast as {compare}")
    return ", ".join(said)


def _check_positions(loaded: LoadedModel, least_tokens: int) -> None:
    if loaded.max_positions < least_tokens:
        raise ConfigError(
            f"{loaded.name!r:.60} has {loaded.max_positions:,} positions, too few for any case "
            f"(the shortest row has {least_tokens:,} tokens); name another model"
        )


def measure_case(
    case: Case, subject: Subject, compared: Subject | None, *, tflops: float, repeats: int | None
) -> Measured:
    """One case; its floor at `tflops` · 10¹² operations a second. Raises EngineError for logits that are not finite.

    The products alone are timed for the forwards that run, each at its padded tokens.
    """
    rows = rows_of(case, subject.vocab)
    executor = subject.executor
    padded_share, shared = _count(executor, rows)
    ms, runs = median_ms(lambda: executor.label_logits(rows), repeats)
    bucket = replay_ms = products_ms = full_rows_ms = shared_ms = None
    forwards = _forwards(executor, rows, shared=shared)
    if forwards:
        bucket = _counted(each.name for each in forwards)
        replay_ms = _sum(each.replay_ms for each in forwards)
        if subject.products is not None:
            products_ms = sum(subject.products.ms(each.n_tokens) for each in forwards)
    if isinstance(executor, GridExecutor) and case.state_tokens and len(rows) > 1:
        other_ms = _other_way_ms(executor, rows, repeats, shared=shared)
        full_rows_ms, shared_ms = (other_ms, ms) if shared else (ms, other_ms)
    compared_ms = None
    if compared is not None:
        beside = compared.executor
        _check(beside.label_logits(rows))
        compared_ms, _ = median_ms(lambda: beside.label_logits(rows), repeats)
    least = floor(subject.work, case, tflops)
    return Measured(
        state_tokens=case.state_tokens,
        questions=len(rows),
        question_tokens=case.question_tokens,
        tokens=case.tokens,
        executor=subject.name,
        dtype=subject.dtype,
        bucket=bucket,
        padded_share=padded_share,
        replay_ms=replay_ms,
        ms=ms,
        runs=runs,
        shared=shared,
        full_rows_ms=full_rows_ms,
        shared_ms=shared_ms,
        floor_parameters_ms=least.parameters_ms,
        floor_attention_ms=least.attention_ms,
        share=None if least.total_ms is None else least.total_ms / ms,
        products_ms=products_ms,
        products_share=None if products_ms is None else products_ms / ms,
        compared_ms=compared_ms,
        ratio=None if compared_ms is None else compared_ms / ms,
    )


def _count(executor: Executor, rows: Sequence[Row]) -> tuple[float | None, bool]:
    """(padded share, whether the state was shared) of one call, which also warms the case up."""
    if not isinstance(executor, (GridExecutor, PackedExecutor)):
        _check(executor.label_logits(rows))
        return None, False
    before = executor.stats
    _check(executor.label_logits(rows))
    counted = executor.stats - before
    return 1 - counted.real_tokens / counted.padded_tokens, counted.shared_calls > 0


def _other_way_ms(executor: GridExecutor, rows: Sequence[Row], repeats: int | None, *, shared: bool) -> float | None:
    """The way the executor did not choose: full rows if it `shared`, else sharing, or None where that cannot be."""
    if shared:
        # A row without a reusable start is never shared.
        apart = [replace(row, prefix_tokens=0) for row in rows]
        executor.label_logits(apart)
        return median_ms(lambda: executor.label_logits(apart), repeats, least=1)[0]
    if executor.score_shared(rows, gate=False) is None:
        return None
    return median_ms(lambda: executor.score_shared(rows, gate=False), repeats, least=1)[0]


@dataclass(frozen=True, slots=True)
class _Forward:
    """One forward of a call."""

    name: str
    n_tokens: int
    """With padding."""
    replay_ms: float | None
    """None for an eager one."""


def _forwards(executor: Executor, rows: Sequence[Row], *, shared: bool) -> list[_Forward]:
    """What `rows` run in, in that order; none where that is not known."""
    if isinstance(executor, PackedExecutor):
        planned = executor.forwards(rows)
        # Whichever forward is asked about, a shape replays the pack it ran last.
        times = {shape: executor.replay_ms(shape) for shape in {shape for _, shape in planned if shape is not None}}
        return [
            _Forward(
                f"{n_tokens} eager" if shape is None else f"{n_tokens} {'tree' if shape.is_tree else 'flat'}",
                n_tokens,
                None if shape is None else times[shape],
            )
            for n_tokens, shape in planned
        ]
    if isinstance(executor, GridExecutor) and not shared:
        return [
            _Forward(
                f"{batch.width} × {batch.length}",
                batch.width * batch.length,
                executor.replay_ms((batch.width, batch.length)) if batch.captured else None,
            )
            for batch in executor.plan(rows)
        ]
    return []


def _sum(times: Iterable[float | None]) -> float | None:
    """None if one of them is."""
    total = 0.0
    for ms in times:
        if ms is None:
            return None
        total += ms
    return total


def _counted(names: Iterable[str]) -> str:
    """For example `2 of 32 × 256 + 1 × 64`, in the order they run."""
    return " + ".join(f"{f'{count} of ' if count > 1 else ''}{name}" for name, count in Counter(names).items())


def median_ms(call: Callable[[], object], repeats: int | None, *, least: int = LEAST_RUNS) -> tuple[float, int]:
    """(median milliseconds on the host's clock, runs). `call` must end with its results on the host.

    Without `repeats`, `MOST_RUNS` runs, or as many as `ENOUGH_S` allows, but `least`.
    """
    times: list[float] = []
    while len(times) < (repeats or MOST_RUNS):
        if repeats is None and len(times) >= least and sum(times) > 1e3 * ENOUGH_S:
            break
        began = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times), len(times)


def _check(logits: Sequence[Logits]) -> None:
    """Times of broken answers mean nothing. Raises EngineError."""
    if not all(np.isfinite(one).all() for one in logits):
        raise EngineError("the executor gives logits that are not finite on random rows; its times mean nothing")
