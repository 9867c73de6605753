"""The interpreter's switch interval is shortened for a block, and put back after it, whatever happens in there."""

from __future__ import annotations

import sys

import pytest

from decider.serve.turns import SWITCH_S, short_turns


def test_the_interval_is_put_back() -> None:
    before = sys.getswitchinterval()
    assert before > SWITCH_S
    with short_turns():
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
    assert sys.getswitchinterval() == before
    with pytest.raises(KeyError), short_turns():
        raise KeyError
    assert sys.getswitchinterval() == before
