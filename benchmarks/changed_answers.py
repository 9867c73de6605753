"""How many answers an engine changes, against the same weights in fp32.

    python benchmarks/changed_answers.py --shape qwen3.5-2b --engines plain,compile,fp8,compile+fp8    (one CUDA card)
    python benchmarks/changed_answers.py --shape qwen3.5-2b --engines packed,packed+fp8 --share 6            (likewise)
    python benchmarks/changed_answers.py --shape tiny --prompts 50                 (any machine: checks the script)

Random prompts of 40 to 256 tokens with four options, on random bf16 weights; with `--share N`, N prompts at a time have
all but their last 16 to 56 tokens in common, which packs run once. An answer counts where the oracle's two largest
probabilities differ by more than 0.01, and is changed where its likeliest option is another one. The engines are sealed
grids or packs, made one after the other; the grids' replays are timed. Beside them stands the eager bf16 forward of
Hugging Face, for scale.

The oracle is Hugging Face's eager forward of the same weights in fp32, every product in IEEE fp32: torch's TF32 is off
for products and convolutions, and the functions that transformers takes from flash-linear-attention and causal-conv1d
are its own torch ones. `TRITON_F32_DEFAULT=ieee` would not do: flash-linear-attention 0.6.0 asks for TF32 by name where
it solves the delta rule's triangular systems (`SOLVE_TRIL_DOT_PRECISION`). It would also change the engines' kernels.

It refuses to judge; it prints. Trap: bf16 rounds these weights before anybody multiplies, so the oracle starts from the
rounded ones. It says what arithmetic changes, not what storing weights in bf16 does.
"""

from __future__ import annotations

import argparse
import copy
import inspect
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from decider.assembly import executor_for
from decider.bench.configs import LABEL_IDS
from decider.bench.machine import this_machine
from decider.bench.names import SHAPES, TINY
from decider.bench.shapes import random_model
from decider.errors import DeciderError
from decider.model.head import LabelHead, label_head, last_hidden
from decider.model.load import LoadedModel
from decider.plan.buckets import Grid
from decider.read import probabilities
from decider.run.device import pick_attention
from decider.run.graphs import CudaCapturer
from decider.run.grid import GridExecutor
from decider.run.options import GridOptions
from decider.run.packed import PackedExecutor
from decider.tokens.rows import Row

ENGINES = ("plain", "compile", "fp8", "compile+fp8", "packed", "packed+fp8")
SHORTEST, LONGEST = 40, 256
SHORTEST_OWN, LONGEST_OWN = 16, 56
N_OPTIONS = 4
MARGIN = 0.01
TIMED = ((1, 64), (1, 256), (8, 256), (32, 256))
BATCH_TOKENS = 32_768
DELTA_RULE = "torch_chunk_gated_delta_rule"

Probabilities = NDArray[np.float64]
"""[prompts, N_OPTIONS]."""


@dataclass(frozen=True, slots=True)
class Changed:
    """One way of running, against the oracle."""

    name: str
    counted: int
    """Prompts whose two largest probabilities differ by more than `MARGIN`."""
    changed: int
    changed_percent: float
    max_abs_delta_p: float
    """Over all prompts and options."""
    not_finite: int
    """Prompts with a logit that is not finite."""
    seconds: float
    """Scoring all prompts; warm-up is not in it."""
    replay_ms: dict[str, float]
    """Median replay of each of `TIMED`; empty for what has no graphs of rows."""
    warmup_s: float | None = None


def main() -> None:
    """Run and print."""
    options = parse()
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    machine = this_machine(device)
    print(f"{machine}\n{options.shape}, random weights, {options.prompts:,} prompts, {options.share} to a state")
    loaded = random_model(options.shape, device=device, dtype="bfloat16", attention="sdpa")
    head = label_head(loaded, LABEL_IDS)
    rows = prompts(options.prompts, int(loaded.module.config.vocab_size), options.share)

    began = time.perf_counter()
    oracle = score(oracle_logits(loaded, rows))
    if not np.isfinite(oracle).all():
        sys.exit("the oracle's own logits are not finite: there is nothing to compare with")
    torch.cuda.empty_cache()
    say(f"the oracle took {time.perf_counter() - began:.0f} s")

    print(f"{'':16}{'counted':>8}{'changed':>9}{'percent':>9}{'max |Δp|':>10}{'not finite':>12}{'seconds':>9}")
    began = time.perf_counter()
    logits = batched_logits(loaded, head, rows, "Hugging Face, eager bf16")
    results = [compare("hf-eager-bf16", logits, oracle, time.perf_counter() - began)]
    show(results[0])
    failed = False
    for name in options.engines:
        try:
            results.append(run_engine(name, loaded, head, rows, oracle))
        # The others' figures took minutes, and are not lost with this one's.
        except DeciderError as error:
            failed = True
            print(f"{name:16}failed: {error}", flush=True)
            continue
        show(results[-1])
        if options.json:
            asked = {"shape": options.shape, "prompts": options.prompts, "share": options.share, "margin": MARGIN}
            facts = {**asdict(machine), **asked}
            options.json.write_text(json.dumps({**facts, "rows": [asdict(each) for each in results]}, indent=1) + "\n")
    sys.exit(int(failed))


def show(row: Changed) -> None:
    """One line of the table, and the replays below it."""
    print(
        f"{row.name:16}{row.counted:>8}{row.changed:>9}{row.changed_percent:>9.3f}{row.max_abs_delta_p:>10.5f}"
        f"{row.not_finite:>12}{row.seconds:>9.1f}"
    )
    if row.replay_ms:
        times = ", ".join(f"{shape} {ms:.2f}" for shape, ms in row.replay_ms.items())
        print(f"{'':16}replay in ms: {times}; warm-up {row.warmup_s:.1f} s", flush=True)


def parse() -> argparse.Namespace:
    """The command line; `engines` is a list of names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=(*SHAPES, TINY), required=True)
    parser.add_argument("--prompts", type=int, default=5400)
    parser.add_argument("--engines", help=f"names with commas between, of {', '.join(ENGINES)}")
    parser.add_argument("--compile", action="store_true", help="the one engine compiles (without --engines)")
    parser.add_argument("--fp8", action="store_true", help="the one engine runs large layers in e4m3 (likewise)")
    parser.add_argument("--share", type=int, default=1, metavar="N", help="so many prompts have a state in common")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.engines is not None and (options.compile or options.fp8):
        parser.error("--engines names the options of each engine; leave out --compile and --fp8")
    single = "+".join(name for name in ("compile", "fp8") if getattr(options, name)) or "plain"
    if options.json and not options.json.parent.is_dir():
        parser.error(f"--json is in {options.json.parent}, which is no folder")
    options.engines = (options.engines or single).split(",")
    unknown = [name for name in options.engines if name not in ENGINES]
    if unknown:
        parser.error(f"no engine is called {unknown[0]!r}; choose from {', '.join(ENGINES)}")
    for name in ("prompts", "share"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} is {getattr(options, name)}; it must be at least 1")
    return options


def prompts(n_prompts: int, vocab: int, share: int) -> list[Row]:
    """Random rows with one slot at their end, the same in every run; `share` at a time begin alike if it is above 1."""
    draw = random.Random(0)
    if share == 1:
        lengths = [draw.randint(SHORTEST, LONGEST) for _ in range(n_prompts)]
        return [Row(tuple(draw.choices(range(vocab), k=n)), (n - 1,), (N_OPTIONS,), prefix_tokens=0) for n in lengths]
    rows: list[Row] = []
    while len(rows) < n_prompts:
        state = tuple(draw.choices(range(vocab), k=draw.randint(SHORTEST, LONGEST - LONGEST_OWN)))
        for _ in range(min(share, n_prompts - len(rows))):
            own = tuple(draw.choices(range(vocab), k=draw.randint(SHORTEST_OWN, LONGEST_OWN)))
            ids = state + own
            rows.append(Row(ids, (len(ids) - 1,), (N_OPTIONS,), prefix_tokens=len(state)))
    return rows


def oracle_logits(loaded: LoadedModel, rows: Sequence[Row]) -> list[NDArray[np.floating]]:
    """fp32 on the same device, of the same bf16 weights. The copy is freed again."""
    module = copy.deepcopy(loaded.module).float()
    module.set_attn_implementation("eager")
    exact = replace(loaded, module=module, dtype="float32")
    with ieee_products(), torch_functions(module):
        return batched_logits(exact, label_head(exact, LABEL_IDS), rows, "oracle")


@torch.inference_mode()
def batched_logits(loaded: LoadedModel, head: LabelHead, rows: Sequence[Row], name: str) -> list[NDArray[np.floating]]:
    """Plain eager forwards of right-padded rows of about equal length; as every layer is causal, no mask is needed."""
    order = sorted(range(len(rows)), key=lambda row: len(rows[row].ids), reverse=True)
    results: dict[int, NDArray[np.floating]] = {}
    reported = time.perf_counter()
    while len(results) < len(rows):
        left = order[len(results) :]
        length = len(rows[left[0]].ids)
        batch = left[: max(1, BATCH_TOKENS // length)]
        ids = torch.tensor([rows[row].ids + (0,) * (length - len(rows[row].ids)) for row in batch])
        slots = torch.tensor([rows[row].slots[0] for row in batch], device=loaded.device)
        hidden = last_hidden(loaded.module, ids.to(loaded.device))
        logits = head(hidden[torch.arange(len(batch), device=loaded.device), slots]).cpu().numpy()
        results.update(zip(batch, logits, strict=True))
        if time.perf_counter() - reported > 5 or len(results) == len(rows):
            reported = time.perf_counter()
            say(f"{name}: {len(results):,} of {len(rows):,} prompts")
    return [results[row] for row in range(len(rows))]


def run_engine(name: str, loaded: LoadedModel, head: LabelHead, rows: Sequence[Row], oracle: Probabilities) -> Changed:
    """Warm an engine up, seal it, run all rows, close it."""
    words = name.split("+")
    executor = packs_of(loaded, head, words) if "packed" in words else grid_of(loaded, head, words)
    say(f"{name}: {executor.describe()}")
    # Packs are checked by an eager forward before there are graphs.
    at_start = executor.stats.eager_forwards
    began = time.perf_counter()
    logits = [one[0] for one in executor.label_logits(rows)]
    seconds = time.perf_counter() - began
    timed = {} if isinstance(executor, PackedExecutor) else {f"{n} x {t}": executor.replay_ms((n, t)) for n, t in TIMED}
    replay_ms = {shape: ms for shape, ms in timed.items() if ms is not None}
    n_eager, warmup_s = executor.stats.eager_forwards - at_start, executor.describe().warmup_s
    executor.close()
    if loaded.device != "cpu" and n_eager:
        sys.exit(f"{name}: {n_eager} forwards ran eagerly, so the graphs were not all that was compared")
    return replace(compare(name, logits, oracle, seconds), replay_ms=replay_ms, warmup_s=warmup_s)


def packs_of(loaded: LoadedModel, head: LabelHead, words: Sequence[str]) -> PackedExecutor:
    """Sealed packs, of every size that is captured for serving."""
    options, attention = GridOptions(fp8="fp8" in words), pick_attention("packed")
    executor = executor_for("packed", loaded, head, attention=attention, options=options, say=say)
    assert isinstance(executor, PackedExecutor)
    return executor


def grid_of(loaded: LoadedModel, head: LabelHead, words: Sequence[str]) -> GridExecutor:
    """A sealed grid that captures the lengths the prompts have, and no more."""
    device = torch.device(loaded.device)
    options = GridOptions(compile="compile" in words, fp8="fp8" in words, share_prefixes=False)
    full = Grid()
    grid = replace(full, lengths=tuple(n for n in full.lengths if n <= full.pad_len(LONGEST)))
    capturer = CudaCapturer(device) if device.type == "cuda" else None
    executor = GridExecutor(loaded, head, grid, capturer, lambda line: say(f"grid: {line}"), options=options)
    executor.warmup()
    executor.seal()
    return executor


def score(logits: Sequence[NDArray[np.floating]]) -> Probabilities:
    """Probabilities of the first `N_OPTIONS` labels; NaN for a prompt with a logit that is not finite."""
    nothing = np.full(N_OPTIONS, np.nan)
    return np.stack([probabilities(one, N_OPTIONS, 1.0) if np.isfinite(one).all() else nothing for one in logits])


def compare(name: str, logits: Sequence[NDArray[np.floating]], oracle: Probabilities, seconds: float) -> Changed:
    """A prompt that is not finite counts as changed."""
    own = score(logits)
    finite = np.isfinite(own).all(axis=1)
    best_two = np.sort(oracle, axis=1)[:, -2:]
    counted = best_two[:, 1] - best_two[:, 0] > MARGIN
    changed = counted & (~finite | (np.nan_to_num(own, nan=-1).argmax(axis=1) != oracle.argmax(axis=1)))
    n_counted, n_changed = int(counted.sum()), int(changed.sum())
    if n_counted == 0:
        sys.exit(f"no prompt's two largest probabilities differ by more than {MARGIN}; ask for more --prompts")
    return Changed(
        name=name,
        counted=n_counted,
        changed=n_changed,
        changed_percent=100 * n_changed / n_counted,
        max_abs_delta_p=float(np.abs(own - oracle)[finite].max(initial=0.0)),
        not_finite=int((~finite).sum()),
        seconds=seconds,
        replay_ms={},
    )


@contextmanager
def ieee_products() -> Iterator[None]:
    """Within it, torch multiplies and convolves fp32 in fp32."""
    backends: Any = torch.backends
    owners = (backends.cuda.matmul, backends.cudnn.conv)
    before = [owner.fp32_precision for owner in owners]
    for owner in owners:
        owner.fp32_precision = "ieee"
    try:
        yield
    finally:
        for owner, precision in zip(owners, before, strict=True):
            owner.fp32_precision = precision


@contextmanager
def torch_functions(module: torch.nn.Module) -> Iterator[None]:
    """Within it, the model's file in transformers uses its own functions, not those of other packages.

    transformers wraps each such function; what it wraps is the one in torch.
    """
    modeling = sys.modules[type(module).__module__]
    wrapped = {
        name: function
        for name, function in vars(modeling).items()
        if isinstance(function, FunctionType)
        and hasattr(function, "__wrapped__")
        and function.__module__ == modeling.__name__
    }
    if hasattr(modeling, DELTA_RULE) and DELTA_RULE not in wrapped:
        sys.exit(
            f"{DELTA_RULE} of {modeling.__name__} is wrapped in a way that is not known, so there is no fp32 oracle"
        )
    for name, function in wrapped.items():
        plain = inspect.unwrap(function)
        if plain.__code__.co_filename != modeling.__file__:
            sys.exit(f"{name} of {modeling.__name__} is not transformers' own, so there is no fp32 oracle")
        setattr(modeling, name, plain)
    try:
        yield
    finally:
        for name, function in wrapped.items():
            setattr(modeling, name, function)


def say(line: str) -> None:
    """Progress."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
