"""The packed executor beside the published engine: one shape with random weights, the same rows, one table.

    python benchmarks/beside_published.py --shape qwen3.5-2b --out OUT \
        --peer decider_ai-1.10.0-py3-none-any.whl --wheels FOLDER

The published engine is the package `decider-ai`, run as the wheel it is and never read; FOLDER has the wheels that it
needs and this Python lacks, such as flash-linear-attention's two. They are unpacked into a temporary folder, which a
process of its own has as its path. Both sides run on one card, one after the other, each within `--limit-s`. OUT then
has `ours.json` and `published.json` (either by itself with `--only`), and of both `table.md` and `table.json`, which
`--join OUT/ours.json OUT/published.json` makes of parts that are there. Exit status 1 if a row has no figures.

It refuses to know what a side does (`published_ours.py`, `published_peer.py`). Trap: both packages are imported as
`decider`; whatever puts ours on the other's path makes the two columns one engine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from published_parts import SIDES, Part, read_part, run_part
from published_table import as_json, as_markdown

from decider.bench.cases import CARD_CASES, N_OPTIONS, Case, rows_of
from decider.bench.configs import CONFIGS, LABEL_IDS
from decider.bench.names import SHAPES

HERE = Path(__file__).resolve().parent
QUIET = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for, write it, print the table; the exit status."""
    given = parse(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    if given.join:
        parts = {part.side: part for part in map(read_part, given.join)}
        if set(parts) != set(SIDES):
            sys.exit("--join takes one part of ours and one of the published engine; name two such files")
        if parts["ours"].shape != parts["published"].shape:
            sys.exit(f"the parts are of {parts['ours'].shape} and {parts['published'].shape}; run one of them again")
    else:
        command = shlex.join(["python", "benchmarks/beside_published.py", *(arguments or sys.argv[1:])])
        parts = {}
        for side in SIDES if given.only is None else [given.only]:
            parts[side] = run_side(side, given, command)
            parts[side].write(given.out / f"{side}.json")
    if set(parts) == set(SIDES):
        aims, both = read_aims(), (parts["ours"], parts["published"])
        table = as_markdown(*both, aims)
        (given.out / "table.md").write_text(table + "\n", encoding="utf-8")
        text = json.dumps(as_json(*both, aims), indent=1, ensure_ascii=False)
        (given.out / "table.json").write_text(text + "\n", encoding="utf-8")
        print(table)
    return int(any(part.failed for part in parts.values()))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The words, refused where they do not fit before anything is run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    work = parser.add_mutually_exclusive_group(required=True)
    work.add_argument("--shape", choices=SHAPES, help="what to run")
    work.add_argument("--join", type=Path, nargs=2, metavar="PART.json", help="what was run before")
    parser.add_argument("--fp8", action="store_true", help="ours in FP8; the published engine has bf16 alone")
    parser.add_argument("--only", choices=SIDES, help="one side, for a table that is joined later")
    parser.add_argument("--peer", type=Path, metavar="WHEEL", help="the published engine")
    parser.add_argument("--wheels", type=Path, metavar="FOLDER", help="what it needs besides")
    parser.add_argument(
        "--every-shape", action="store_true", help="capture all of its graphs, for its start-up and memory"
    )
    parser.add_argument("--repeats", type=int, metavar="N", help="calls a median is made of (default: fewer if slow)")
    parser.add_argument("--limit-s", type=float, default=300, metavar="S", help="for each side (default: 300)")
    parser.add_argument("--out", type=Path, required=True, metavar="OUT")
    given = parser.parse_args(arguments)
    if given.shape and given.only != "ours" and (given.peer is None or not given.peer.is_file()):
        parser.error(f"--peer is {given.peer}; it must be the wheel of the published engine, or say --only ours")
    if given.wheels is not None and not given.wheels.is_dir():
        parser.error(f"--wheels is {given.wheels}; it must be a folder of wheels")
    if given.out.exists() and not given.out.is_dir():
        parser.error(f"--out is {given.out}, which is a file; name a folder")
    if given.repeats is not None and given.repeats < 1:
        parser.error(f"--repeats is {given.repeats}; it must be at least 1")
    if not given.limit_s > 0:
        parser.error(f"--limit-s is {given.limit_s:g}; it must be above 0")
    if given.shape and given.only != "ours":
        for wheel in (given.peer, *wheels_in(given.wheels)):
            check_wheel(wheel, needed=wheel != given.peer)
    return given


def run_side(side: str, given: argparse.Namespace, command: str) -> Part:
    """One side on the card, with all of the rows."""
    plan = plan_of(given.shape, CARD_CASES, fp8=given.fp8 and side == "ours", device="cuda", repeats=given.repeats)
    if side == "ours":
        return ours(plan, command=command, limit_s=given.limit_s)
    shapes = None if given.every_shape else read_aims()["published"]["shapes"]
    return published({**plan, "shapes": shapes}, given.peer, given.wheels, command=command, limit_s=given.limit_s)


def plan_of(shape: str, cases: Sequence[Case], *, fp8: bool, device: str, repeats: int | None) -> dict[str, Any]:
    """What both children read: the model's numbers, and the rows with their token ids."""
    config = CONFIGS[shape]
    return {
        "shape": shape,
        "fp8": fp8,
        "device": device,
        "repeats": repeats,
        "config_class": config.config_class,
        "config": dict(config.numbers),
        "label_ids": LABEL_IDS,
        "n_options": N_OPTIONS,
        "cases": [
            {
                "name": name_of(case),
                "state_tokens": case.state_tokens,
                "lengths": case.lengths,
                "rows": [row.ids for row in rows_of(case, config.numbers["vocab_size"])],
            }
            for case in cases
        ],
    }


def name_of(case: Case) -> str:
    """As the tables of the aims have it: plain rows without a state of 0."""
    return str(case).removeprefix("0 + ")


def ours(plan: Mapping[str, Any], *, command: str, limit_s: float) -> Part:
    """Our side, on this process's own path, with the threads that wait as `decider` has them."""
    script = [sys.executable, str(HERE / "published_ours.py")]
    environ = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ, **QUIET}
    return run_part(script, plan, side="ours", command=command, environ=environ, limit_s=limit_s, say=say)


def published(plan: Mapping[str, Any], peer: Path, wheels: Path | None, *, command: str, limit_s: float) -> Part:
    """The published engine's side, on a path that is its wheels and nothing else of this process's."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DECIDER_"))}
    with tempfile.TemporaryDirectory() as site:
        for wheel in (*wheels_in(wheels), peer):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(site)
        # -P: the folder of the script is not on the path either.
        part = run_part(
            [sys.executable, "-P", str(HERE / "published_peer.py")],
            {**plan, "site": site},
            side="published",
            command=command,
            # A warning would quote the line of source that it is about.
            environ={**environ, **QUIET, "PYTHONPATH": site, "PYTHONWARNINGS": "ignore"},
            limit_s=limit_s,
            say=say,
        )
    digest = hashlib.sha256(peer.read_bytes()).hexdigest()
    return replace(part, facts={**part.facts, "wheel": f"{peer.name} (sha256 {digest[:16]})"})


def wheels_in(folder: Path | None) -> list[Path]:
    """Of a folder, where there is one."""
    return [] if folder is None else sorted(folder.glob("*.whl"))


def check_wheel(wheel: Path, *, needed: bool) -> None:
    """Exits for one that is not plain Python, that is no archive, or that is only `needed` and has a `decider` too."""
    if not wheel.name.endswith("-none-any.whl"):
        sys.exit(f"{wheel.name} is not plain Python, so unpacking does not install it; leave it out, and install it")
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
    except zipfile.BadZipFile:
        sys.exit(f"{wheel.name} is no wheel: it cannot be unpacked; fetch it again")
    if needed and any(name.startswith("decider/") for name in names):
        sys.exit(f"{wheel.name} brings a `decider` of its own; take it out of --wheels")


def read_aims() -> dict[str, Any]:
    """`published_aims.toml`."""
    return tomllib.loads((HERE / "published_aims.toml").read_text(encoding="utf-8"))


def say(line: str) -> None:
    """Progress, on standard error."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
