"""How fast a training step is: plain layers beside compiled ones, on the same steps, and how far their losses differ.

    python benchmarks/training_speed.py DATA [--model M] [--device cuda] [--pack-tokens 32768] [--steps 8]

DATA is what `decider data build train` wrote. Steps are made before the clock runs. Trap: the first steps compile; they
are run and not counted.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace
from pathlib import Path

import torch

from decider.evaluate.tables import read_data
from decider.settings import load_settings
from decider.train.base import open_base
from decider.train.compiled import why_not_compiled
from decider.train.feed import items_per_step
from decider.train.recipe import recipe_of
from decider.train.run import Station, gradients_of, model_of
from decider.train.step import optimizer_of, train_step


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--method", default="lora")
    parser.add_argument("--rank", type=int, default=64)
    parser.add_argument("--pack-tokens", type=int, default=32_768)
    parser.add_argument("--steps", type=int, default=8)
    given = parser.parse_args()

    device = torch.device(given.device)
    settings = load_settings({"model": given.model, "device": given.device}, environ={})
    recipe = recipe_of(
        "mini",
        {
            "method": given.method,
            "rank": given.rank,
            "pack_tokens": given.pack_tokens,
            "tokens_per_step": 2 * given.pack_tokens,
            "dtype": "bfloat16" if device.type == "cuda" else "float32",
        },
    )
    base = open_base(settings, max_state_tokens=recipe.max_state_tokens, schema_first=False, say=print)
    train = given.data / "train.jsonl"
    items = read_data(train, None)
    fault = why_not_compiled(base.spec, device)
    forwards = ["plain"] if fault else ["plain", "compiled"]
    print(
        f"{base.folder.name}, {recipe.method} of rank {recipe.rank}, packs of {given.pack_tokens:,}, {recipe.dtype}, "
        f"{device}"
    )
    if device.type == "cuda":
        print(torch.cuda.get_device_name(device))
    if fault:
        print(f"no compiled layers: {fault}")
    for forward in forwards:
        own = replace(recipe, forward=forward)
        station = Station(train, base.folder.path, None, None, base.spec.max_positions, base.spec.taps, 0, own)
        station = replace(station, items_per_step=items_per_step(station.kitchen(items), own.tokens_per_step))
        kitchen = station.kitchen(items)
        batches = [kitchen.step(number) for number in range(given.steps)]
        model = model_of(base, own, device)
        gradients, optimizer = gradients_of(model, own), optimizer_of(model.trainee, own)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        times, losses = [], []
        for batch in (batches[0], *batches):
            began = time.perf_counter()
            losses.append(train_step(model.trainee, gradients, optimizer, batch, own).loss)
            times.append(time.perf_counter() - began)
        padded = statistics.mean(batch.pack_tokens for batch in batches)
        rows = statistics.mean(batch.row_tokens for batch in batches)
        step_s = statistics.median(times[1:])
        peak = torch.cuda.max_memory_allocated(device) / 1e9 if device.type == "cuda" else float("nan")
        print(
            f"{forward:9} {1000 * step_s:8.1f} ms a step  {padded / step_s:11,.0f} tokens/s with padding  "
            f"{rows / step_s:11,.0f} row tokens/s  peak {peak:5.1f} GB  first step {times[0]:5.1f} s  "
            f"losses {losses[1]:.5f} … {losses[-1]:.5f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
