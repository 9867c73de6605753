"""The kernels of packs on a processor: interpreted against their plain forms, and compiled for a card.

Both run in processes of their own: Triton decides when it is imported whether it interprets. Refuses to measure. Trap:
a test that is left out where Triton is missing would be left out for ever; `make test-long` installs it on Linux.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from decider.ops.launches import (
    DELTA_CHUNK,
    DELTA_LONG_SHARED_BYTES,
    DELTA_SCAN,
    DELTA_SCAN_LONG,
    shared_bytes,
)

SUPPORT = Path(__file__).parents[2] / "support"
SOURCE = Path(__file__).parents[3] / "src"
pytestmark = pytest.mark.long

# By Triton 3.9; 3.6, which the measured card had, spills none. Tails of one stage spill none in either, and have to run
# on a card before they are taken.
SPILLED_BYTES = {"delta, sequences": 64, "attention of 128": 240, "attention of 256": 112}
HAS_WHEELS = sys.platform == "linux" and platform.machine() == "x86_64"


def run(*command: str, **environment: str) -> str:
    """What a process printed that must succeed."""
    if importlib.util.find_spec("triton") is None:
        if not HAS_WHEELS:
            pytest.skip(f"Triton has no package for {sys.platform} on {platform.machine()}")
        pytest.fail("Triton is not installed; install the extra again: pip install -e '.[kernels]'")
    paths = os.pathsep.join((str(SOURCE), str(SUPPORT)))
    found = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout[-6000:] + found.stderr[-3000:]
    return found.stdout


def test_interpreted_kernels_are_their_plain_forms() -> None:
    said = run(
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        str(SUPPORT / "interpreted_kernels.py"),
        TRITON_INTERPRET="1",
    )
    assert "passed" in said
    assert "skipped" not in said


def test_kernels_compile_for_a_hopper_card() -> None:
    """At the sizes that are measured. A spill costs as much as all that a kernel saves."""
    said = run(str(SUPPORT / "compiled_kernels.py"), TRITON_INTERPRET="0")
    delta = {launch.name for launch in (*DELTA_CHUNK, DELTA_SCAN, DELTA_SCAN_LONG)}
    lines = dict(line.split(": ") for line in said.splitlines())
    assert set(lines) == {
        *("norm", "quantising norm", "gated norm", "head norm", "swiglu", "convolution"),
        *delta,
        *(f"attention of {dim}" for dim in (64, 128, 256)),
    }
    for name, found in lines.items():
        shared, spilled = map(int, found.split())
        assert spilled <= SPILLED_BYTES.get(name, 0), name
        # A card with less has no kernels, or not this launch.
        least = DELTA_LONG_SHARED_BYTES if name == DELTA_SCAN_LONG.name else shared_bytes(64, has_delta=True)
        assert shared <= (least if name in delta else 227 << 10), name
