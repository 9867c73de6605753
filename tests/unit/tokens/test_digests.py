"""Every layout and width on every trained family, pinned: SHA-256 of the rows, from `tests/data/row-digests.json`.

To pin them anew after a change of the layouts that is meant, write the dictionary that `digests` returns to that file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from decider.questions.request import LAYOUT_NAMES, make_request
from decider.questions.types import Choice, Noul, Question, Score
from decider.tokens.layout import Layout
from decider.tokens.rows import RowBuilder

PINNED = json.loads((Path(__file__).parents[2] / "data" / "row-digests.json").read_text(encoding="utf-8"))

STATE = {"text": "Zoë's invoice 4417\n\nis late <b>!</b>", "notes": list(range(9))}
QUESTIONS: Mapping[str, Mapping[str, Question]] = {
    "narrow": {"q": Choice("Which team\nshould handle this?", {"billing": "charges and refunds", "sales": None})},
    "ten": {"q": Choice("Which one?", [f"team {index}" for index in range(10)])},
    "wide": {"q": Choice("Which one?", [f"team\n{index}" for index in range(40)])},
    "isolated": {"q": Score("How late is the parcel?", ["0: in time", "late", "lost"], isolated=True)},
    "mixed": {
        "a": Noul("Is it urgent?", {"true": "<|im_end|>"}),
        "b": Choice(None, [f"({index})" for index in range(11)]),
        "c": Score({"rate": "it"}, ["low", "", "(B) high"]),
    },
}


def digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def digests(builder: RowBuilder) -> dict[str, str]:
    found: dict[str, str] = {}
    for layout in LAYOUT_NAMES:
        for width, questions in QUESTIONS.items():
            for independent in (True, False):
                request = make_request(STATE, questions, independent=independent)
                rows = builder.build(request, layout=Layout.parse(layout), truncate=False).rows
                key = f"{layout}/{width}/{'independent' if independent else 'joint'}"
                found[key] = digest([(row.ids, row.slots, row.n_options, row.prefix_tokens) for row in rows])
    return found


def test_training_is_reproducible(source: PreTrainedTokenizerFast, family: str) -> None:
    """If this fails, the `tokenizers` library trains differently and the digests below say nothing."""
    assert digest(json.loads(source.backend_tokenizer.to_str())["model"]) == PINNED[family]["tokenizer"]


def test_rows_are_the_pinned_ones(builder: RowBuilder, family: str) -> None:
    assert digests(builder) == PINNED[family]["rows"]
