"""The grid executor on random weights: warm-up, replays, mixed rows, changed answers. Prints one table and the machine.

    python benchmarks/grid.py --shape qwen3.5-2b --json grid.json          (one CUDA card)
    python benchmarks/grid.py --shape tiny                                  (any machine, seconds: checks the script)

The floor is the matrix work of the non-embedding parameters alone, 2 · parameters · tokens, at the rate that an
8192 × 8192 × 8192 bf16 product reaches on the same card in the same run. It refuses to judge; it prints.
Trap: random weights make near-ties common, so changed answers count only prompts whose two best differ by over 0.01.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, PreTrainedConfig, Qwen3_5TextConfig, Qwen3Config

from decider.model.head import LabelHead, label_head
from decider.model.load import LoadedModel
from decider.plan.buckets import Grid
from decider.read import probabilities
from decider.run.forward import make_forward
from decider.run.graphs import CudaCapturer
from decider.run.grid import GridExecutor
from decider.tokens.rows import Row

N_OPTIONS = 4
CASES = ((1, 64), (1, 256), (1, 1024), (8, 256), (32, 256), (16, 512), (32, 1024), (1, 8192))


def config_of(shape: str) -> PreTrainedConfig:
    """The configuration whose random weights are timed."""
    if shape == "qwen3.5-2b":
        return Qwen3_5TextConfig(
            vocab_size=248320, hidden_size=2048, intermediate_size=6144, num_hidden_layers=24, num_attention_heads=8,
            num_key_value_heads=2, head_dim=256, linear_num_key_heads=16, linear_num_value_heads=16,
            tie_word_embeddings=True, max_position_embeddings=32768,
        )  # fmt: skip
    if shape == "qwen3-1.7b":
        return Qwen3Config(
            vocab_size=151936, hidden_size=2048, intermediate_size=6144, num_hidden_layers=28, num_attention_heads=16,
            num_key_value_heads=8, head_dim=128, tie_word_embeddings=True, max_position_embeddings=40960,
        )  # fmt: skip
    return Qwen3Config(
        vocab_size=2048, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, tie_word_embeddings=True, max_position_embeddings=32768,
    )  # fmt: skip


def load_random(shape: str, device: str, dtype: str) -> LoadedModel:
    """A random model of `shape`, as the engine holds a loaded one."""
    torch.manual_seed(0)
    config = config_of(shape)
    with torch.device(device):
        module = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype), attn_implementation="sdpa")
    module.eval().requires_grad_(False)
    positions = int(config.max_position_embeddings)
    return LoadedModel(module, shape, str(config.model_type), positions, device, dtype)


def row(n_tokens: int, vocab: int) -> Row:
    """A random row with one slot at its end."""
    ids = tuple(random.choices(range(vocab // 2), k=n_tokens))
    return Row(ids, (n_tokens - 1,), (N_OPTIONS,), prefix_tokens=0)


def median_ms(work: Callable[[], object], repeats: int, warm_ups: int = 3) -> float:
    """Median wall time, device work included."""
    for _ in range(warm_ups):
        work()
    times_ms = []
    for _ in range(repeats):
        synchronize()
        began = time.perf_counter()
        work()
        synchronize()
        times_ms.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times_ms)


def synchronize() -> None:
    """Wait for the card, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def matmul_tflops(device: str) -> float:
    """Measured rate of one large product: bf16 on a card, a small fp32 one on a CPU."""
    n, dtype = (8192, torch.bfloat16) if device.startswith("cuda") else (1024, torch.float32)
    a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
    return float(2 * n**3 / (median_ms(lambda: a @ b, 10) * 1e-3) / 1e12)


def peer_lengths() -> list[int]:
    """256 lengths, log-normal, seeded as the published engine's timing script seeds them."""
    rng = random.Random(1)
    return [min(1500, max(40, int(rng.lognormvariate(5.3, 0.7)))) for _ in range(256)]


def changed_answers(
    executor: GridExecutor, loaded: LoadedModel, head: LabelHead, vocab: int, n_prompts: int
) -> dict[str, float]:
    """Answers that differ from the same weights run eagerly in fp32; and how many an eager bf16 forward changes."""
    rows = [row(random.randint(40, 400), vocab) for _ in range(n_prompts)]
    ours = executor.label_logits(rows)
    # The same Hugging Face model, eager and padded into batches: one row after the other would take minutes.
    eager = GridExecutor(loaded, head, Grid(), None, print).label_logits(rows)
    exact = dataclasses.replace(loaded, module=loaded.module.float(), dtype="float32")
    exact_head = label_head(exact, list(range(LABELS.start, LABELS.stop)))
    oracle = GridExecutor(exact, exact_head, Grid(), None, print).label_logits(rows)
    counted = changed = changed_eager = 0
    worst = 0.0
    for own, plain, true in zip(ours, eager, oracle, strict=True):
        p, q, r = (probabilities(logits[0], N_OPTIONS, 1.0) for logits in (own, plain, true))
        best, second = sorted(r, reverse=True)[:2]
        if best - second > 0.01:
            counted += 1
            changed += int(p.argmax() != r.argmax())
            changed_eager += int(q.argmax() != r.argmax())
        worst = max(worst, float(abs(p - r).max()))
    return {
        "prompts": n_prompts,
        "counted": counted,
        "changed_percent": 100 * changed / max(counted, 1),
        "eager_bf16_changed_percent": 100 * changed_eager / max(counted, 1),
        "max_abs_delta_p": worst,
    }


LABELS = range(1000, 1255)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=("qwen3.5-2b", "qwen3-1.7b", "tiny"), required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--prompts", type=int, default=5000)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--max-length", type=int, default=8192, help="capture no bucket longer than this")
    options = parser.parse_args()
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    dtype = "bfloat16" if device.startswith("cuda") else "float32"
    machine = torch.cuda.get_device_name() if device.startswith("cuda") else platform.processor()
    print(f"{machine}, torch {torch.__version__}, transformers {transformers.__version__}, {options.shape} in {dtype}")

    rate = matmul_tflops(device)
    loaded = load_random(options.shape, device, dtype)
    parameters = sum(p.numel() for p in loaded.module.parameters())
    output = loaded.module.get_output_embeddings()
    matrix_parameters = parameters - output.weight.numel()
    head = label_head(loaded, list(LABELS))
    vocab = int(loaded.module.config.vocab_size)
    capturer = CudaCapturer(torch.device(device)) if device.startswith("cuda") else None
    grid = Grid() if capturer else Grid(lengths=(64, 256, 1024), token_budget=4096)
    grid = dataclasses.replace(grid, lengths=tuple(n for n in grid.lengths if n <= options.max_length))
    reserved_before = torch.cuda.memory_reserved() if capturer else 0
    executor = GridExecutor(loaded, head, grid, capturer, print)
    began = time.perf_counter()
    executor.warmup()
    executor.seal()
    warmup_s = time.perf_counter() - began
    pool_gb = (torch.cuda.memory_reserved() - reserved_before) / 1e9 if capturer else 0.0
    print(executor.describe())
    print(f"warm-up {warmup_s:.1f} s, pool {pool_gb:.2f} GB, matrix rate {rate:.0f} TFLOP/s")

    rows: list[dict[str, Any]] = []
    print(f"{'work':>12} {'replay ms':>10} {'call ms':>9} {'floor ms':>9} {'share':>6}")

    def report(name: str, call_ms: float, replay_ms: float | None, n_tokens: int) -> None:
        floor_ms = 2 * matrix_parameters * n_tokens / (rate * 1e12) * 1e3
        shown = f"{replay_ms:.2f}" if replay_ms else "-"
        print(f"{name:>12} {shown:>10} {call_ms:>9.2f} {floor_ms:>9.2f} {floor_ms / (replay_ms or call_ms):>6.2f}")
        rows.append({"work": name, "ms": call_ms, "replay_ms": replay_ms, "floor_ms": floor_ms, "tokens": n_tokens})

    cases = CASES if capturer else CASES[:2]
    for batch, length in cases:
        many = [row(length, vocab) for _ in range(batch)]
        call_ms = median_ms(lambda many=many: executor.label_logits(many), options.repeats)  # type: ignore[misc]
        replay_ms = None
        graph = executor._captured.get((batch, length))
        if graph is not None:
            replay_ms = median_ms(graph.graph.replay, options.repeats)
        report(f"{batch} x {length}", call_ms, replay_ms, batch * length)
    lengths = peer_lengths()
    mixed = [row(length, vocab) for length in lengths]
    before = executor.stats
    executor.label_logits(mixed)
    padded = executor.stats.padded_tokens - before.padded_tokens
    report("256 mixed", median_ms(lambda: executor.label_logits(mixed), 5, 1), None, sum(lengths))
    print(f"256 mixed rows: {sum(lengths)} tokens, {padded} with padding")
    forward = make_forward(loaded, head)
    with torch.inference_mode():
        ids, slots = torch.randint(0, vocab, (1, 256), device=device), torch.tensor([255], device=device)
        print(f"eager 1 x 256: {median_ms(lambda: forward(ids, slots), options.repeats):.2f} ms")
    changed = changed_answers(executor, loaded, head, vocab, options.prompts)
    print(changed)
    if options.json:
        options.json.write_text(
            json.dumps(
                {
                    "machine": machine, "torch": torch.__version__, "transformers": transformers.__version__,
                    "shape": options.shape, "dtype": dtype, "matmul_tflops": rate, "warmup_s": warmup_s,
                    "pool_gb": pool_gb, "graphs": len(executor.report.graphs), "rows": rows, "mixed_padded": padded,
                    "changed": changed, "stats": dataclasses.asdict(executor.stats),
                },
                indent=1,
            )
        )  # fmt: skip


if __name__ == "__main__":
    main()
