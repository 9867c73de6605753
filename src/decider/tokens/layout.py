"""The four prompt layouts: plain or chat, state first or schema first.

It refuses to know what a layout looks like (`rows`) and which one a model wants (`config`). Trap: a checkpoint answers
well only in the layout it was trained on; never pick another one silently.
"""

from __future__ import annotations

from dataclasses import dataclass

from decider.errors import ConfigError
from decider.questions.faults import hint, show
from decider.questions.request import LAYOUT_NAMES


@dataclass(frozen=True, slots=True)
class Layout:
    """`chat`: inside the chat template. `schema_first`: the questions before the state."""

    chat: bool
    schema_first: bool

    @classmethod
    def parse(cls, name: str) -> Layout:
        """The layout called `name`. Raises ConfigError for any name but the four of `LAYOUT_NAMES`."""
        if name not in LAYOUT_NAMES:
            raise ConfigError(f"unknown layout {show(name)}; {hint(name, LAYOUT_NAMES)}")
        return cls(chat=name.startswith("chat"), schema_first=name.endswith("_schema_first"))

    @property
    def name(self) -> str:
        """One of `LAYOUT_NAMES`; `Layout.parse(layout.name) == layout`."""
        return ("chat" if self.chat else "plain") + ("_schema_first" if self.schema_first else "")
