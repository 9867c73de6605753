"""The state cap: what it counts, what it refuses, what it cuts, and that it is each question's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from decider.errors import TooLargeError
from decider.questions.request import LAYOUT_NAMES, Request, make_request
from decider.questions.types import Choice, Noul, Question, Score
from decider.tokens.layout import Layout
from decider.tokens.rows import RowBuilder, Rows

STATE = "My card was charged twice for order 4417. Please fix this."
NARROW = Choice("Which team?", ["billing", "sales"])
WIDE = Choice("Which one?", [f"no. {index}" for index in range(11)])
MIXED: Mapping[str, Question] = {"n": NARROW, "w": WIDE, "s": Score("How severe?", ["mild", "bad", "worse"])}

PLAIN = Layout(chat=False, schema_first=False)
every_layout = pytest.mark.parametrize("layout", [Layout.parse(name) for name in LAYOUT_NAMES], ids=LAYOUT_NAMES)


def ask(questions: Mapping[str, Question] | Question, *, state: str = STATE, independent: bool = True) -> Request:
    by_id = questions if isinstance(questions, Mapping) else {"q": questions}
    return make_request(state, by_id, independent=independent)


def build(builder: RowBuilder, request: Request, layout: Layout = PLAIN, *, truncate: bool = False) -> Rows:
    return builder.build(request, layout=layout, truncate=truncate)


@every_layout
def test_the_cap_counts_the_context_header_in_state_first_layouts_only(builder: RowBuilder, layout: Layout) -> None:
    counted = len(builder.tokenizer.encode(STATE if layout.schema_first else f"Context:\n{STATE}"))
    exact = build(replace(builder, max_state_tokens=counted), ask(NARROW), layout)
    assert exact == build(builder, ask(NARROW), layout)
    with pytest.raises(TooLargeError) as caught:
        build(replace(builder, max_state_tokens=counted - 1), ask(NARROW), layout)
    message = str(caught.value)
    assert f"{counted} tokens, over the maximum context length of {counted - 1} tokens (max_state_tokens)" in message
    assert "truncate=True (--truncate)" in message
    assert caught.value.loc == ("state",)


@every_layout
@pytest.mark.parametrize("independent", [True, False])
def test_truncation_cuts_the_end_of_the_state(builder: RowBuilder, layout: Layout, independent: bool) -> None:
    request = ask(MIXED, independent=independent)
    whole = build(builder, request, layout)
    cut = build(replace(builder, max_state_tokens=4), request, layout, truncate=True)
    state = len(builder.tokenizer.encode(STATE if layout.schema_first else f"Context:\n{STATE}"))
    header = len(builder.tokenizer.encode("\n\nContext:\n"))
    for long, short in zip(whole.rows, cut.rows, strict=True):
        end = long.prefix_tokens + header + state if layout.schema_first else long.prefix_tokens
        assert short.ids == long.ids[: end - state + 4] + long.ids[end:]
        assert short.slots == tuple(slot - state + 4 for slot in long.slots)
    assert cut.truncated == set(MIXED)


@every_layout
def test_the_positions_bound_the_state_too(builder: RowBuilder, layout: Layout) -> None:
    (row,) = build(builder, ask(NARROW), layout).rows
    fits = replace(builder, max_positions=len(row.ids))
    assert build(fits, ask(NARROW), layout).rows == (row,)
    tight = replace(builder, max_positions=len(row.ids) - 1)
    with pytest.raises(TooLargeError, match=rf"maximum context length of .*{len(row.ids) - 1} positions less"):
        build(tight, ask(NARROW), layout)
    cut = build(tight, ask(NARROW), layout, truncate=True)
    assert len(cut.rows[0].ids) == len(row.ids) - 1
    assert cut.truncated == {"q"}


@every_layout
def test_a_long_question_does_not_shorten_the_state_of_others(builder: RowBuilder, layout: Layout) -> None:
    long = Noul("urgent " * 40)
    (row,) = build(builder, ask(long), layout).rows
    builder = replace(builder, max_positions=len(row.ids) - 3)
    built = build(builder, ask({"short": NARROW, "long": long}), layout, truncate=True)
    assert built.truncated == {"long"}
    shared = 0 if layout.schema_first else min(row.prefix_tokens for row in built.rows)
    assert built.input_tokens == sum(len(row.ids) for row in built.rows) - shared
    assert built.rows[:1] == build(builder, ask({"short": NARROW}), layout, truncate=True).rows
    assert built.rows[1:] == build(builder, ask({"long": long}), layout, truncate=True).rows
    with pytest.raises(TooLargeError):
        build(builder, ask({"short": NARROW, "long": long}, independent=False), layout)


def test_isolated_levels_see_the_same_state(builder: RowBuilder) -> None:
    question = Score("How severe?", ["mild", "worse and worse and worse"], isolated=True)
    mild, worse = build(builder, ask(question)).rows
    builder = replace(builder, max_positions=len(worse.ids) - 3)
    short, full = build(builder, ask(question), truncate=True).rows
    assert short.ids[: short.prefix_tokens] == full.ids[: full.prefix_tokens] == worse.ids[: worse.prefix_tokens - 3]
    assert len(mild.ids) < builder.max_positions


@every_layout
def test_a_question_that_leaves_no_room(builder: RowBuilder, layout: Layout) -> None:
    (row,) = build(builder, ask(NARROW, state="x"), layout).rows
    state_tokens = len(builder.tokenizer.encode("x" if layout.schema_first else "Context:\nx"))
    builder = replace(builder, max_positions=len(row.ids) - state_tokens)
    for truncate in (False, True):
        with pytest.raises(TooLargeError, match="maximum context length") as caught:
            build(builder, ask(NARROW, state="x"), layout, truncate=truncate)
        assert caught.value.loc == ("questions", "q")
    with pytest.raises(TooLargeError) as caught:
        build(builder, ask(MIXED, independent=False), layout, truncate=True)
    assert caught.value.loc == ("questions",)
