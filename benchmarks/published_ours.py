"""Our side of `beside_published.py`: the packed executor on the rows of the plan, as `decider bench engine` times them.

    python published_ours.py PLAN.json

It prints JSON, a line an event, as `published_peer.py` does: `facts`, `row`, `failed` or `said`. It refuses to
judge. Trap: what is measured is `decider.bench.run.measure_case` and nothing of its own, so that two benchmarks of one
executor say the same.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from decider.bench.cases import Case
from decider.bench.machine import matmul_rate, this_machine
from decider.bench.run import measure_case, open_subject
from decider.run.stats import ReferenceReport
from decider.settings import Settings
from decider.version import VERSION


def main() -> None:
    """Time every row of the plan."""
    plan = json.loads(Path(sys.argv[1]).read_bytes())
    cases = {each["name"]: Case(each["state_tokens"], tuple(each["lengths"])) for each in plan["cases"]}
    settings = Settings(executor="packed", dtype="bfloat16", fp8=plan["fp8"], device=plan["device"])
    subject = open_subject(settings, plan["shape"], min(case.longest for case in cases.values()), say)
    rate = matmul_rate(subject.device, subject.dtype)
    described = subject.executor.describe()
    assert not isinstance(described, ReferenceReport)
    machine = asdict(this_machine(subject.device))
    tell(facts={**machine, "decider": VERSION, "matmul_tflops": rate.tflops, "describe": str(described)})
    tell(facts={"warmup_s": described.warmup_s, "pool_bytes": described.pool_bytes})
    for name, case in cases.items():
        try:
            measured = measure_case(case, subject, None, tflops=rate.tflops, repeats=plan["repeats"])
        except Exception as error:  # noqa: BLE001 - a row that fails is a result, whatever was raised
            tell(failed=name, why=f"{type(error).__name__}: {error}"[:300])
        else:
            tell(row=name, figures=asdict(measured))
    subject.executor.close()


def say(text: str) -> None:
    """Progress of the start."""
    tell(said=text)


def tell(**event: object) -> None:
    """One line, at once: whoever is stopped at a limit keeps what was told before."""
    print(json.dumps(event), flush=True)


if __name__ == "__main__":
    main()
