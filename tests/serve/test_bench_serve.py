"""`decider bench serve` against the real application: everything it sends is answered.

Refuses to judge speed. Trap: labelled lines have keys that are no part of a request, and must be answered all the same.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from serving import served

from decider.cli import main

TICKETS = Path(__file__).parents[2] / "examples" / "tickets.jsonl"


@pytest.mark.parametrize(
    "words", [["--clients", "4"], ["--rate", "100"], ["--clients", "2", "--requests", str(TICKETS)]]
)
def test_every_request_is_answered(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TYPESAFE_API_KEY", raising=False)
    with served() as server:
        file = tmp_path / "load.json"
        short = ["--seconds", "0.5", "--warmup", "0.1", "--json", str(file)]
        assert main(["bench", "serve", "--url", server.url, *words, *short]) == 0
    facts = json.loads(file.read_text(encoding="utf-8"))
    assert facts["failures"] == {}
    assert facts["answered"] > 20
    assert facts["model"] == "decider-fake"
