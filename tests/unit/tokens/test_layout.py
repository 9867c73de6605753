"""The four layout names."""

from __future__ import annotations

import pytest

from decider.errors import ConfigError
from decider.questions.request import LAYOUT_NAMES
from decider.tokens.layout import Layout


def test_names_round_trip() -> None:
    layouts = [Layout(chat=chat, schema_first=first) for first in (False, True) for chat in (False, True)]
    assert tuple(layout.name for layout in layouts) == LAYOUT_NAMES
    assert [Layout.parse(name) for name in LAYOUT_NAMES] == layouts


@pytest.mark.parametrize("name", ["", "Plain", "chat_schema", "x" * 500])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="unknown layout") as caught:
        Layout.parse(name)
    assert len(str(caught.value)) < 250


def test_a_near_miss_gets_a_hint() -> None:
    with pytest.raises(ConfigError, match="did you mean 'chat_schema_first'"):
        Layout.parse("chat_schema_frist")
