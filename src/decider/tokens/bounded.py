"""Token ids of a text that may be far too long: no more of it is read than shows that.

It refuses to know what a text is for. Trap: ids at the end of a cut text are not those of the whole one, as the word
there was cut too; so a text counts as too long only where its start has twice the tokens, and never by its characters,
of which one token may hold a hundred.
"""

from __future__ import annotations

from typing import Protocol

CHARACTERS_PER_TOKEN = 8
"""A start of so many characters for each token allowed is read first: English has half as many, JSON and code fewer."""
LEAST_CHARACTERS = 4096


class Encoder(Protocol):
    """What turns text into ids."""

    def encode(self, text: str) -> list[int]:
        """Token ids of a caller's text."""
        ...


def encode_within(encoder: Encoder, text: str, max_tokens: int) -> list[int]:
    """The ids of `text` where it has at most `max_tokens`; otherwise at least the first `max_tokens` + 1.

    The work is in proportion to `max_tokens`, however long the text is, unless its tokens are longer than any
    language's (a megabyte of spaces).
    """
    stop = max(LEAST_CHARACTERS, CHARACTERS_PER_TOKEN * max_tokens)
    while stop < len(text):
        ids = encoder.encode(text[:stop])
        if len(ids) > 2 * max_tokens:
            return ids
        stop *= 2
    return encoder.encode(text)
