"""Which executor runs, and why: what was asked for, else what suits the model and the device.

It refuses to know how executors work. Trap: an executor that cannot run the model must be refused before the weights
are read, and never be replaced in silence by one that can.
"""

from __future__ import annotations

from decider.errors import ConfigError
from decider.run.device import Pick
from decider.run.options import GridOptions

_HAVE = {"compile": ("grid",), "fp8": ("grid", "packed")}
"""Option → the executors that have it."""


def choose_executor(
    wanted: str, device: str, *, options: GridOptions, refusal: str | None, not_captured: str | None
) -> Pick:
    """`wanted`, or for `auto` the one that suits.

    `refusal`: why no native backbone has the model, None if one has. `not_captured`: why packs on this card would run
    without graphs, or not at all; None if they have them, or on another device. Raises ConfigError for packs of a model
    without a native backbone, and for options that an executor has not.
    """
    asked = Pick("executor", wanted, "asked for")
    chosen = asked if wanted != "auto" else _suits(device, options, refusal, not_captured)
    if chosen.value == "packed" and refusal is not None:
        raise ConfigError(f"--executor packed has no backbone for this model: {refusal}")
    for option, executors in _HAVE.items():
        if getattr(options, option) and chosen.value not in executors:
            known = f"{executors[0]} executor" if len(executors) == 1 else f"{' and '.join(executors)} executors"
            raise ConfigError(f"{option} is an option of the {known}, not of {chosen.value}; use --executor grid")
    return chosen


def _suits(device: str, options: GridOptions, refusal: str | None, not_captured: str | None) -> Pick:
    if options.compile:
        return Pick("executor", "grid", "auto: compile is an option of it alone")
    if device == "mps":
        return Pick("executor", "grid", "auto: Metal compiles for each shape, and a grid has few")
    if refusal is not None:
        return Pick("executor", "grid", f"auto: no native backbone ({refusal})")
    if not device.startswith("cuda"):
        return Pick("executor", "packed", "auto: a state that questions share is run once, and nothing is padded")
    if not_captured is not None:
        return Pick("executor", "grid", f"auto: packs cannot be captured here ({not_captured})")
    return Pick("executor", "packed", "auto: captured packs, up to eight times as fast as a grid (docs/log.md)")
