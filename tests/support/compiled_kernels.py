"""Compiles the kernels of packs for a Hopper card, in bfloat16 at real sizes, and prints what each takes.

`tests/unit/ops/test_pack_kernels.py` runs this file as a program; it needs Triton, and no card. A line is
`name: bytes of shared memory, bytes of spilled registers`. Refuses to run them. Trap: without the promise that
addresses and strides are multiples of 16, which a real call gives, loads are of two bytes and the registers are others.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from typing import Any

from decider.ops import attention_kernel, convolution_kernel, delta_kernels, head_kernels, norm_kernels
from decider.ops.launches import (
    CONVOLUTION,
    DELTA_CHUNK,
    DELTA_SCAN,
    DELTA_SCAN_LONG,
    HEADS,
    NORM,
    SWIGLU,
    Launch,
    attention_launch,
)

compiler: Any = importlib.import_module("triton.compiler")
backends: Any = importlib.import_module("triton.backends.compiler")
nvidia: Any = importlib.import_module("triton.backends.nvidia")

HOPPER = backends.GPUTarget("cuda", 90, 32)
CUOBJDUMP = os.path.join(os.path.dirname(nvidia.__file__), "bin", "cuobjdump")
X, REAL, COUNT = "*bf16", "fp32", "i32"
NUMBERS = {
    "eps": REAL,
    "offset": REAL,
    "least": REAL,
    "inverse_max": REAL,
    "scale": REAL,
    "epsilon": REAL,
    "linear_from": REAL,
}
# Counts that may be anything; all other integers are strides and sizes.
COUNTS = ("n_tokens", "n_sequences", "n_begun", "n_trunk_chunks", "above", "most")


def compiled(
    name: str, kernel: Any, pointers: Mapping[str, str], constants: Mapping[str, object], launch: Launch
) -> None:
    names = kernel.arg_names
    signature, aligned = {}, {}
    for index, each in enumerate(names):
        signature[each] = "constexpr" if each in constants else pointers.get(each) or NUMBERS.get(each) or COUNT
        if signature[each].startswith("*") or (signature[each] == COUNT and each not in COUNTS):
            aligned[index,] = [["tt.divisibility", 16]]
    source = compiler.ASTSource(
        fn=kernel,
        signature=signature,
        constexprs={(names.index(each),): value for each, value in constants.items()},
        attrs=aligned,
    )
    made = compiler.compile(source, target=HOPPER, options={"num_warps": launch.warps, "num_stages": launch.stages})
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        said = subprocess.run([CUOBJDUMP, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    [spilled] = re.findall(r"STACK:(\d+)", said)
    print(f"{name}: {made.metadata.shared} {spilled}")


def main() -> None:
    none = {"codes": None, "scales": None}
    norm = dict.fromkeys(("x", "added", "weight", "total", "normed"), X)
    flags = {"adds": True, "shifted": True, "keeps": True, "block": 2048}
    compiled("norm", norm_kernels._add_norm_row, norm, {**flags, **none, "quantises": False}, NORM[-1])
    quantised = {"codes": "*fp8e4nv", "scales": "*fp32"}
    compiled("quantising norm", norm_kernels._add_norm_row, norm | quantised, {**flags, "quantises": True}, NORM[-1])
    heads = {"n_heads": 16, "dim": 128, "heads_block": 16, "dim_block": 128}
    gated = dict.fromkeys(("x", "gate", "weight", "result"), X)
    compiled("gated norm", norm_kernels._gated_norm_token, gated, {**heads, **none, "quantises": False}, HEADS[-1])
    turned = dict.fromkeys(("projected", "weight", "cosines", "sines", "result"), X)
    sizes = {"n_heads": 24, "dim": 128, "turned": 128, "heads_block": 32, "dim_block": 128}
    compiled(
        "head norm", head_kernels._norm_and_turn_token, turned, {**sizes, "norms": True, "shifted": False}, HEADS[-1]
    )
    merged = {"merged": X, "result": X}
    block = {"quantises": False, "block": SWIGLU[-1].block}
    compiled("swiglu", head_kernels._swiglu_part, merged, {**block, **none}, SWIGLU[-1])
    taps = dict.fromkeys(("x", "weight", "query", "key", "value"), X) | {"look_back": "*i32"}
    delta = {"n_back": 3, "key_heads": 16, "value_heads": 16, "key_dim": 128, "value_dim": 128, "dim_block": 128}
    rows = {"tokens_block": CONVOLUTION[-1].block}
    compiled("convolution", convolution_kernel._convolved_head, taps, delta | rows, CONVOLUTION[-1])
    heads = {"key_heads": 16, "value_heads": 16, "key_dim": 128, "value_dim": 128, "size": 64, "key_block": 128}
    real = {"decay_rate": "*fp32", "running": "*fp32", "begun": "*fp32"}
    ints = dict.fromkeys(("offsets", "chunks", "trunk_offsets", "trunk_chunks", "parents"), "*i32")
    logits = ("beta_logits", "decay_logits", "decay_bias")
    rule = dict.fromkeys(("query", "key", "value", "read", "new", "within", "result", *logits), X) | real | ints
    inverse = {"levels": 6, "value_block": 128, "precision": "tf32", "is_tree": True}
    for launch in DELTA_CHUNK:
        compiled(launch.name, delta_kernels._prepare_chunk, rule, heads | inverse, launch)
    for launch in (DELTA_SCAN, DELTA_SCAN_LONG):
        flow: dict[str, object] = {"ended": None, "value_block": launch.block, "begins": True, "keeps": False}
        flow |= {"stages": launch.stages, "looks_at": 512 if launch is DELTA_SCAN_LONG else 0}
        compiled(launch.name, delta_kernels._scan_sequence, rule, {**heads, **flow}, launch)
    attended = dict.fromkeys(("query", "key", "value", "gate", "result"), X)
    tables = {"tiles": "*i32", "own_starts": "*i32"}
    for dim in (64, 128, 256):
        launch = attention_launch(dim, 2)
        kept = {"shared": 2, "gated": dim > 128, "has_trunks": True, "dim": dim, "dim_block": dim, "tile_rows": 64}
        constants = {**kept, "keys_block": launch.block}
        compiled(f"attention of {dim}", attention_kernel._attend_tile, attended | tables, constants, launch)


if __name__ == "__main__":
    main()
