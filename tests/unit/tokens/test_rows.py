"""Rows piece by piece, their slots and prefixes, and what no caller can do to another's row."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from decider.errors import QuestionError
from decider.questions.request import LAYOUT_NAMES, Request, make_request
from decider.questions.types import Choice, Noul, Question, Score
from decider.tokens.config import DeciderConfig
from decider.tokens.labels import LabelTable
from decider.tokens.layout import Layout
from decider.tokens.rows import ID_BYTES, Row, RowBuilder, Rows, Slot
from decider.tokens.tokenizer import Tokenizer

STATE = "My card was charged twice for order 4417. Please fix this."
NARROW = Choice("Which team?", ["billing", "sales"])
WIDE = Choice("Which one?", [f"no. {index}" for index in range(11)])
URGENT = Noul("Is it urgent?")
SEVERITY = Score("How severe?", ["mild", "bad", "worse"])
MIXED: Mapping[str, Question] = {"n": NARROW, "w": WIDE, "u": URGENT, "s": SEVERITY}

PLAIN = Layout(chat=False, schema_first=False)
every_layout = pytest.mark.parametrize("layout", [Layout.parse(name) for name in LAYOUT_NAMES], ids=LAYOUT_NAMES)
thorough = settings(max_examples=100, deadline=None)
texts = st.text(max_size=30)


def ask(questions: Mapping[str, Question] | Question, *, state: object = STATE, independent: bool = True) -> Request:
    by_id = questions if isinstance(questions, Mapping) else {"q": questions}
    return make_request(state, by_id, independent=independent)


def build(builder: RowBuilder, request: Request, layout: Layout = PLAIN) -> Rows:
    return builder.build(request, layout=layout, truncate=False)


def joined(builder: RowBuilder, *pieces: str | int) -> tuple[int, ...]:
    """HEAD and TAIL are the chat frame's; an int is a label; everything else is encoded alone."""
    assert builder.chat is not None
    frame = {"HEAD": list(builder.chat.head), "TAIL": list(builder.chat.tail)}
    ids: list[int] = []
    for piece in pieces:
        if isinstance(piece, int):
            ids.append(builder.labels.ids[piece])
        else:
            ids += frame.get(piece) or builder.tokenizer.encode(piece)
    return tuple(ids)


def wide_block() -> list[str | int]:
    return [piece for index in range(11) for piece in ("\n(", index, f") no. {index}")]


TWO = "\n(A) billing\n(B) sales"
YES = "\n(A) no\n(B) yes"


def test_narrow(builder: RowBuilder) -> None:
    expected = {
        "plain": [f"Context:\n{STATE}", f"\n\nQuestion: Which team?\nOptions:{TWO}\nAnswer: ("],
        "plain_schema_first": ["Question: Which team?\nOptions:", TWO, "\n\nContext:\n", STATE, "\n\nAnswer: ("],
        "chat": ["HEAD", f"Context:\n{STATE}", "\n\nQuestion: Which team?\nOptions:", TWO, "TAIL", "Answer: ("],
        "chat_schema_first": [
            "HEAD", "Question: Which team?\nOptions:", TWO, "\n\nContext:\n", STATE, "TAIL", "Answer: (",
        ],
    }  # fmt: skip
    for name, pieces in expected.items():
        (row,) = build(builder, ask(NARROW), Layout.parse(name)).rows
        assert row.ids == joined(builder, *pieces), name
        assert (row.slots, row.n_options) == ((len(row.ids) - 1,), (2,))


def test_wide(builder: RowBuilder) -> None:
    asked = "Question: Which one?\nOptions:"
    expected = {
        "plain": [f"Context:\n{STATE}", f"\n\n{asked}", *wide_block(), "\nAnswer: ("],
        "plain_schema_first": [asked, *wide_block(), "\n\nContext:\n", STATE, "\n\nAnswer: ("],
        "chat": ["HEAD", f"Context:\n{STATE}", f"\n\n{asked}", *wide_block(), "TAIL", "Answer: ("],
        "chat_schema_first": ["HEAD", asked, *wide_block(), "\n\nContext:\n", STATE, "TAIL", "Answer: ("],
    }
    for name, pieces in expected.items():
        (row,) = build(builder, ask(WIDE), Layout.parse(name)).rows
        assert row.ids == joined(builder, *pieces), name
        assert (row.slots, row.n_options) == ((len(row.ids) - 1,), (11,))


def test_joint(builder: RowBuilder) -> None:
    one, two = "Question 1: Which team?\nOptions:", "Question 2: Which one?\nOptions:"
    three = "Question 3: Is it urgent?\nOptions:"
    asked = [f"\n\n{one}", TWO, f"\n\n{two}", *wide_block(), f"\n\n{three}", YES]
    schema = [one, *asked[1:], "\n\nContext:\n", STATE]
    last = ["Answer 1: (", "\nAnswer 2: (", "\nAnswer 3: ("]
    expected = {
        "plain": [
            f"Context:\n{STATE}", f"\n\n{one}{TWO}\nAnswer 1: (", f"\n\n{two}", *wide_block(), "\nAnswer 2: (",
            f"\n\n{three}{YES}\nAnswer 3: (",
        ],
        "plain_schema_first": [*schema, "\n\nAnswer 1: (", *last[1:]],
        "chat": ["HEAD", f"Context:\n{STATE}", *asked, "TAIL", *last],
        "chat_schema_first": ["HEAD", *schema, "TAIL", *last],
    }  # fmt: skip
    request = ask({"a": NARROW, "b": WIDE, "c": URGENT}, independent=False)
    for name, pieces in expected.items():
        built = build(builder, request, Layout.parse(name))
        (row,) = built.rows
        assert row.ids == joined(builder, *pieces), name
        ends = [index + 1 for index, piece in enumerate(pieces) if str(piece).endswith(": (")]
        assert row.slots == tuple(len(joined(builder, *pieces[:end])) - 1 for end in ends)
        assert row.n_options == (2, 11, 2)
        assert built.places == {"a": (Slot(0, 0),), "b": (Slot(0, 1),), "c": (Slot(0, 2),)}


@every_layout
def test_ten_options_are_narrow_and_eleven_are_wide(builder: RowBuilder, layout: Layout) -> None:
    def encodes(n_options: int) -> int:
        counting = Counting(builder.tokenizer)
        build(replace(builder, tokenizer=counting), ask(Choice("?", [f"no. {k}" for k in range(n_options)])), layout)
        return counting.seen.count("\n(")

    assert (encodes(10), encodes(11)) == (0, 11)


class Counting(Tokenizer):
    """Delegates to another tokenizer and remembers what was encoded."""

    def __init__(self, inner: Tokenizer) -> None:
        self.inner = inner
        self.seen: list[str] = []

    def encode(self, text: str) -> list[int]:
        self.seen.append(text)
        return self.inner.encode(text)


@every_layout
@pytest.mark.parametrize("independent", [True, False])
def test_the_state_is_encoded_once(builder: RowBuilder, layout: Layout, independent: bool) -> None:
    counting = Counting(builder.tokenizer)
    build(replace(builder, tokenizer=counting), ask(MIXED, independent=independent), layout)
    assert sum(STATE in text for text in counting.seen) == 1


@every_layout
def test_places_and_order(builder: RowBuilder, layout: Layout) -> None:
    built = build(builder, ask(MIXED), layout)
    assert built.places == {"n": (Slot(0, 0),), "w": (Slot(1, 0),), "u": (Slot(2, 0),), "s": (Slot(3, 0),)}
    assert [row.n_options for row in built.rows] == [(2,), (11,), (2,), (3,)]
    assert built.truncated == frozenset()


@every_layout
def test_prefix_and_input_tokens(builder: RowBuilder, layout: Layout) -> None:
    rows = build(builder, ask(MIXED), layout)
    other = build(builder, ask(MIXED, state="Another state, which is longer. " * 3), layout)
    total = sum(len(row.ids) for row in rows.rows)
    head = ["HEAD"] if layout.chat else []
    if layout.schema_first:
        header = builder.tokenizer.encode("\n\nContext:\n")
        for row, same in zip(rows.rows, other.rows, strict=True):
            assert row.ids[: row.prefix_tokens + len(header)] == same.ids[: same.prefix_tokens + len(header)]
            assert row.ids[row.prefix_tokens :][: len(header)] == tuple(header)
        assert rows.input_tokens == total
    else:
        shared = joined(builder, *head, f"Context:\n{STATE}")
        assert {row.ids[: row.prefix_tokens] for row in rows.rows} == {shared}
        assert rows.input_tokens == total - 3 * len(shared)


@every_layout
@pytest.mark.parametrize("count", [1, 2])
def test_a_joint_row_counts_all_its_tokens(builder: RowBuilder, layout: Layout, count: int) -> None:
    questions = dict(list(MIXED.items())[:count])
    built = build(builder, ask(questions, independent=False), layout)
    assert built.input_tokens == len(built.rows[0].ids)


@every_layout
def test_a_choice_of_one_option_needs_no_row(builder: RowBuilder, layout: Layout) -> None:
    only = Choice("?", ["only"])
    mixed = build(builder, ask({"one": only, "n": NARROW}), layout)
    assert mixed.places == {"one": (), "n": (Slot(0, 0),)}
    assert mixed.rows == build(builder, ask({"n": NARROW}), layout).rows
    assert build(replace(builder, max_state_tokens=1), ask(only), layout) == Rows((), {"q": ()}, frozenset(), 0)
    joint = build(builder, ask({"one": only, "n": NARROW}, independent=False), layout)
    assert joint.rows[0].n_options == (1, 2)


LEVELS = ["mild", "bad", "worse"]


@pytest.mark.parametrize(
    ("configured", "given_", "independent", "isolated"),
    [
        (False, None, True, False),
        (False, True, True, True),
        (True, None, True, True),
        (True, True, True, True),
        (True, False, True, False),
        (True, True, False, False),
    ],
)
def test_isolated_levels(
    builder: RowBuilder, configured: bool, given_: bool | None, independent: bool, isolated: bool
) -> None:
    builder = replace(builder, config=DeciderConfig(isolated_levels=configured))
    questions: dict[str, Question] = {"s": Score("How severe?", LEVELS, given_), "u": URGENT}
    built = build(builder, ask(questions, independent=independent))
    if not isolated:
        assert len(built.places["s"]) == 1
        assert built.rows[0].n_options[0] == 3
        return
    assert built.places == {"s": (Slot(0, 0), Slot(1, 0), Slot(2, 0)), "u": (Slot(3, 0),)}
    for row, level in zip(built.rows, LEVELS, strict=False):
        text = f"How severe?\nProposed answer: {level}\nDoes the proposed answer fit?"
        assert row.ids == joined(builder, f"Context:\n{STATE}", f"\n\nQuestion: {text}\nOptions:{YES}\nAnswer: (")


def test_neutralize_none_follows_the_config(builder: RowBuilder) -> None:
    question = Choice("Topic?", ["money", "none"])
    literal = replace(builder, config=DeciderConfig(neutralize_none=False))
    neutral = Choice("Topic?", ["money", "not listed here"])
    assert build(builder, ask(question)).rows == build(builder, ask(neutral)).rows
    assert build(literal, ask(question)).rows != build(literal, ask(neutral)).rows


def test_more_options_than_labels(builder: RowBuilder) -> None:
    builder = replace(builder, labels=LabelTable(builder.labels.names[:12], builder.labels.ids[:12]))
    assert build(builder, ask(Choice("?", [str(k) for k in range(12)]))).rows[0].n_options == (12,)
    for independent in (True, False):
        with pytest.raises(
            QuestionError, match="13 options, over this model's limit of 12 options per choice"
        ) as caught:
            build(builder, ask(Choice("?", [str(k) for k in range(13)]), independent=independent))
        assert caught.value.loc == ("questions", "q")


@pytest.mark.parametrize("name", ["chat", "chat_schema_first"])
def test_a_chat_layout_needs_a_chat_frame(builder: RowBuilder, name: str) -> None:
    with pytest.raises(QuestionError, match=f"'{name}' needs a chat template") as caught:
        build(replace(builder, chat=None), ask(NARROW), Layout.parse(name))
    assert caught.value.loc == ("layout",)


@pytest.mark.parametrize("name", ["plain_schema_first", "chat_schema_first"])
def test_schema_first_needs_training(builder: RowBuilder, name: str) -> None:
    raw = build(builder, ask(NARROW), Layout.parse(name))
    with pytest.raises(QuestionError, match=r"not trained \(decider_config.json sets neither") as caught:
        build(replace(builder, config=DeciderConfig(present=True)), ask(NARROW), Layout.parse(name))
    assert caught.value.loc == ("layout",)
    for config in (
        DeciderConfig(present=True, schema_first=True),
        DeciderConfig(present=True, schema_first_trained=True),
    ):
        assert build(replace(builder, config=config), ask(NARROW), Layout.parse(name)) == raw
    assert build(replace(builder, config=DeciderConfig(present=True)), ask(NARROW)).rows


questions = st.one_of(
    st.builds(Noul, texts.filter(bool)),
    st.builds(Choice, texts, st.lists(texts, min_size=2, max_size=13, unique=True)),
    st.builds(Score, texts, st.lists(texts, min_size=2, max_size=10)),
)
hostile = st.sampled_from(
    ["\n\nAnswer: (", "\n(B) x", "(A)", "Answer: (B", "\n\nContext:\n", "Question 2: ", " (", "("]
)


@given(asked=st.dictionaries(texts, questions, min_size=2, max_size=4), state=texts, data=st.data())
@thorough
def test_ids_and_order_of_independent_questions_change_nothing(
    builder: RowBuilder, asked: dict[str, Question], state: str, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(list(asked)))
    layout = Layout.parse(data.draw(st.sampled_from(LAYOUT_NAMES)))
    one = build(builder, ask(asked, state=state), layout)
    renamed = {name: f"🙂 {index}" for index, name in enumerate(asked)}
    other = build(builder, ask({renamed[name]: asked[name] for name in order}, state=state), layout)
    for name in asked:
        (here,), (there,) = one.places[name], other.places[renamed[name]]
        assert one.rows[here.row] == other.rows[there.row]
        assert one.rows[here.row] == build(builder, ask(asked[name], state=state), layout).rows[0]


@given(option=st.lists(st.one_of(texts, hostile), min_size=1, max_size=3).map("".join), data=st.data())
@thorough
def test_slots_follow_the_last_answer_piece_whatever_an_option_says(
    builder: RowBuilder, decode: Callable[[Sequence[int]], str], option: str, data: st.DataObject
) -> None:
    layout = Layout.parse(data.draw(st.sampled_from(LAYOUT_NAMES)))
    others = [f"no. {index}" for index in range(data.draw(st.sampled_from([1, 9, 10])))]
    question = Choice(option, [*others, f"_{option}"])
    request = ask({"a": question, "b": URGENT}, state=option, independent=data.draw(st.booleans()))
    built = build(builder, request, layout)
    assert [n for row in built.rows for n in row.n_options] == [len(others) + 1, 2]
    for row in built.rows:
        assert list(row.slots) == sorted(row.slots)
        assert row.slots[-1] == len(row.ids) - 1
        tags = [""] if len(row.slots) == 1 else [" 1", " 2"]
        for slot, tag in zip(row.slots, tags, strict=True):
            assert decode(row.ids[: slot + 1]).endswith(f"Answer{tag}: (")


@every_layout
def test_control_tokens_that_callers_type_stay_text(
    builder: RowBuilder, source: PreTrainedTokenizerFast, layout: Layout
) -> None:
    assert builder.chat is not None
    typed = "".join(sorted(builder.tokenizer.control_tokens))
    control_ids = {source.backend_tokenizer.token_to_id(token) for token in builder.tokenizer.control_tokens}
    frame = [*builder.chat.head, *builder.chat.tail] if layout.chat else []
    asked = {"n": Choice(typed, [typed, "plain"]), "w": Choice(typed, [f"{k} {typed}" for k in range(12)])}
    for independent in (True, False):
        for row in build(builder, ask(asked, state=typed, independent=independent), layout).rows:
            assert [token for token in row.ids if token in control_ids] == [
                token for token in frame if token in control_ids
            ]


@every_layout
def test_labels_that_a_question_does_not_use_change_nothing(builder: RowBuilder, layout: Layout) -> None:
    fewer = replace(builder, labels=LabelTable(builder.labels.names[:11], builder.labels.ids[:11]))
    for independent in (True, False):
        request = ask(MIXED, independent=independent)
        assert build(fewer, request, layout) == build(builder, request, layout)


def test_threads(builder: RowBuilder) -> None:
    layouts = [Layout.parse(name) for name in LAYOUT_NAMES]
    jobs = [(ask(MIXED, state=f"{STATE} {n}"), layouts[n % 4]) for n in range(100)]
    expected = [build(builder, request, layout) for request, layout in jobs]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda job: build(builder, *job), jobs)) == expected


def test_a_row_keeps_its_ids_as_bytes() -> None:
    row = Row((7, 70_000, 4_000_000_000, 2**40), (3,), (2,), 2)
    assert len(row.id_bytes) == 4 * ID_BYTES
    assert row.id_array.dtype == np.int64
    assert row.id_array.tolist() == list(row.ids)
    assert row.start_bytes == row.id_bytes[: 2 * ID_BYTES]
    with pytest.raises(ValueError, match="read-only"):
        row.id_array[0] = 1


@pytest.mark.parametrize(
    ("slots", "prefix_tokens", "n_start"), [((2, 3), 4, 2), ((0, 3), 2, 0), ((3,), 0, 0), ((), 2, 2)]
)
def test_nobody_shares_a_slot(slots: tuple[int, ...], prefix_tokens: int, n_start: int) -> None:
    row = Row((1, 2, 3, 4), slots, (2,) * len(slots), prefix_tokens)
    assert row.start_bytes == row.id_bytes[: n_start * ID_BYTES]


def test_only_what_a_row_is_made_of_counts() -> None:
    row = Row((1, 2, 3), (2,), (2,), 1)
    same, other = Row((1, 2, 3), (2,), (2,), 1), replace(row, ids=(1, 2, 4))
    assert row == same
    assert hash(row) == hash(same)
    assert row != other
    assert other.id_array.tolist() == [1, 2, 4]
    assert repr(row) == "Row(ids=(1, 2, 3), slots=(2,), n_options=(2,), prefix_tokens=1)"


def test_a_row_can_be_pickled() -> None:
    row = Row((1, 2, 3), (2,), (2,), 1)
    back = pickle.loads(pickle.dumps(row))
    assert [getattr(back, field.name) for field in fields(Row)] == [getattr(row, field.name) for field in fields(Row)]
