"""A text as plain words, by which texts are compared that a comma or a capital tells apart.

It refuses to know what is compared. Trap: a text of signs alone has no words, and two such texts are not the same.
"""

from __future__ import annotations

import re
import unicodedata

_WORD = re.compile(r"\w+")


def plain_words(text: str) -> list[str]:
    """The words of `text` without case, accents' encodings and punctuation."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
