"""The published engine's side of `beside_published.py`: a process of its own, with nothing of this package on its path.

    python -P published_peer.py PLAN.json

It reads the plan that `beside_published.py` writes, and prints JSON, a line an event: `facts`, `row` or `failed`. What
it calls is what that engine offers a caller: `EngineV2`, its rows and shared states, and the plan of its batches.

It refuses to import anything of ours, to know how that engine works, and to print a traceback, which would quote its
source. Trap: both packages are imported as `decider`, so it looks where the one it got lies before it times anything.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module, metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers

MOST_RUNS, LEAST_RUNS, ENOUGH_S = 20, 3, 0.5
"""Slow calls are repeated less often."""
SIDE = 8192
WIDEST = 32
"""Rows of a batch, as that engine's own plans are asked for."""


def main() -> None:
    """Time every row of the plan."""
    sys.tracebacklimit = 0
    plan = json.loads(Path(sys.argv[1]).read_bytes())
    engine_v2, batching = (import_module(f"decider.{name}") for name in ("engine_v2", "batching"))
    home = Path(str(engine_v2.__file__)).resolve()
    if Path(plan["site"]).resolve() not in home.parents:
        sys.exit(f"`decider` was imported from {home}, which is not the published engine; take it off the path")
    device = torch.device(plan["device"])
    tell(facts=facts_of(device))
    model = make_model(plan, device)
    tell(facts={"attention": model.lm.config._attn_implementation, "delta rule": fast_rule(model.lm)})
    engine = engine_v2.EngineV2(model=model)
    offered = [tuple(shape) for shape in engine.graph_shapes()]
    wanted = offered if plan["shapes"] is None else [tuple(shape) for shape in plan["shapes"]]
    if missing := sorted(set(wanted) - set(offered)):
        sys.exit(f"that engine offers no graph of {missing[0]}; it is another version than the shapes were read from")
    before = reserved_bytes(device)
    seconds = engine.warmup(shapes=wanted)
    engine.seal()
    tell(
        facts={
            "warmup_s": seconds,
            "graphs": f"{len(wanted)} of {len(offered)}",
            "pool_bytes": reserved_bytes(device) - before,
        }
    )
    for case in plan["cases"]:
        try:
            figures = time_case(engine, batching.plan_batches, case, plan, device)
        except Exception as error:  # noqa: BLE001 - a row that fails is a result, whatever was raised
            tell(failed=case["name"], why=f"{type(error).__name__}: {error}"[:300])
        else:
            tell(row=case["name"], figures=figures)


def time_case(engine: Any, plan_batches: Any, case: Any, plan: Any, device: torch.device) -> dict[str, float]:
    """Milliseconds of the ways there are: full rows, the state shared, the graph alone."""
    items = [{"ids": ids, "slots": [len(ids) - 1], "nopts": [plan["n_options"]]} for ids in case["rows"]]
    lengths = [len(ids) for ids in case["rows"]]

    def ms(call: Callable[[], object]) -> float:
        return median_ms(call, plan["repeats"], device)

    if case["state_tokens"]:
        return {"shared_ms": ms(lambda: engine.score_shared(items)), "rows_ms": ms(lambda: engine.score_items(items))}
    if len(set(lengths)) > 1:
        batches = list(plan_batches(lengths, engine.pad_len, engine.max_rows, WIDEST))
        padded = sum(engine.b_plan(len(places), length)[0] * length for length, places in batches)

        def mixed() -> None:
            # The plan is part of the call, as it is of ours.
            for _, places in plan_batches(lengths, engine.pad_len, engine.max_rows, WIDEST):
                engine.score_items([items[place] for place in places])

        return {"rows_ms": ms(mixed), "padded_tokens": padded}
    figures = {"rows_ms": ms(lambda: engine.score_items(items))}
    if (shape := (len(items), lengths[0])) in engine.graphs:
        figures["replay_ms"] = ms(engine.graphs[shape][2].replay)
    return figures


def make_model(plan: Any, device: torch.device) -> SimpleNamespace:
    """What that engine takes as a model: random weights, the labels' ids, and a tokenizer that knows padding alone."""
    config = getattr(transformers, plan["config_class"])(**plan["config"])
    torch.manual_seed(0)
    with device:
        module = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    module = module.to(device, torch.bfloat16)
    labels = torch.tensor(plan["label_ids"], device=device)
    return SimpleNamespace(tok=SimpleNamespace(pad_token_id=0), lm=module.eval(), letters=labels, softcap=None)


def facts_of(device: torch.device) -> dict[str, object]:
    """The card, the versions, and how fast it multiplies at this hour."""
    facts: dict[str, object] = {
        "machine": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    for package in ("flash-linear-attention", "decider-ai"):
        try:
            facts[package.replace("-", "_")] = metadata.version(package)
        except metadata.PackageNotFoundError:
            facts[package.replace("-", "_")] = None
    if device.type == "cuda":
        a, b = (torch.randn(SIDE, SIDE, device=device, dtype=torch.bfloat16) for _ in range(2))
        facts["matmul_tflops"] = 2 * SIDE**3 / median_ms(lambda: a @ b, 10, device) / 1e9
    return facts


def fast_rule(module: torch.nn.Module) -> str | None:
    """Where a hybrid's delta rule comes from: not from flash-linear-attention, it is many times slower."""
    home = sys.modules[type(module).__module__]
    if not hasattr(home, "chunk_gated_delta_rule"):
        return None
    rule = home.chunk_gated_delta_rule
    return "transformers' own" if rule is None else str(getattr(rule, "__module__", rule))


def reserved_bytes(device: torch.device) -> int:
    """Of the caching allocator."""
    return torch.cuda.memory_reserved(device) if device.type == "cuda" else 0


def median_ms(call: Callable[[], object], repeats: int | None, device: torch.device) -> float:
    """On the host's clock, until the device is through, after one call that warms up."""

    def timed() -> float:
        began = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - began

    first = timed()
    times: Sequence[float] = [
        timed() for _ in range(repeats or max(LEAST_RUNS, min(MOST_RUNS, int(ENOUGH_S / max(first, 1e-9)))))
    ]
    return 1e3 * statistics.median(times)


def tell(**event: object) -> None:
    """One line, at once: whoever is stopped at a limit keeps what was told before."""
    print(json.dumps(event), flush=True)


if __name__ == "__main__":
    main()
