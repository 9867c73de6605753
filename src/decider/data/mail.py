"""E-mails of the SpamAssassin corpus as subject and text, and whether each is spam.

It refuses to read headers other than the subject: they say which mailbox a message came from, and that tells the
answer. Trap: the corpus is of 2002 and 2003, broken on purpose in places; what cannot be decoded is kept with marks,
not lost.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from email import message_from_string
from email.header import decode_header
from email.message import Message

from decider.data.archive import Archive
from decider.data.items import Item, noul

FOLDER = "package/data/"
SPAM, HAM = ("spam-1", "spam-2"), ("easy-ham-1", "easy-ham-2", "hard-ham-1")
MAX_CHARS = 1000
"""Of the text; what follows is cut."""
_HIDDEN = re.compile(r"<(script|style|title)\b.*?</\1\s*>|<!--.*?-->", re.S | re.I)
_TAG = re.compile(r"<[!/?a-zA-Z][^>]*>")


def spam(archive: Archive) -> Iterator[Item]:
    """Every message that has a text."""
    question = noul(
        "Is this e-mail spam?", yes="unasked advertising or fraud", no="a message or newsletter that is wanted"
    )
    for name in archive.namelist():
        if name.startswith(FOLDER) and name.endswith(".json") and name.count("/") > 2:
            entry = json.loads(archive.read(name))
            subject, text = _read(entry["text"])
            if text:
                is_spam = entry["group"] in SPAM
                assert is_spam or entry["group"] in HAM, name
                state = {"subject": subject, "text": text}
                yield Item(state, {"spam": question}, {"spam": is_spam}, group=f"{subject}\n{text}")


def _read(raw: str) -> tuple[str, str]:
    message = message_from_string(raw)
    text = _printable(_body(message)[: 2 * MAX_CHARS])
    if len(text) > MAX_CHARS:
        text = text[:MAX_CHARS].rpartition(" ")[0] + " …"
    return _subject(message), text


def _subject(message: Message) -> str:
    parts = []
    for content, charset in decode_header(str(message.get("Subject", ""))):
        parts.append(content if isinstance(content, str) else _decoded(content, charset))
    return _printable(" ".join(parts))


def _body(message: Message) -> str:
    """The first part of plain text, else the first of HTML without its tags."""
    found: dict[str, str] = {}
    for part in message.walk():
        kind = part.get_content_type()
        if kind in ("text/plain", "text/html") and kind not in found:
            content = part.get_payload(decode=True)
            if isinstance(content, bytes):
                text = _decoded(content, part.get_content_charset())
                if kind == "text/html" or re.search(r"<(html|body|table|font)\b", text[:2000], re.I):
                    text = html.unescape(_TAG.sub(" ", _HIDDEN.sub(" ", text)))
                text = " ".join(text.split())
                if text:
                    found[kind] = text
    return found.get("text/plain") or found.get("text/html", "")


def _decoded(content: bytes, charset: str | None) -> str:
    try:
        text = content.decode(charset or "latin-1", errors="replace")
    except LookupError:
        # An encoding that does not exist, as spam likes to name.
        text = content.decode("latin-1")
    # Half of a surrogate pair cannot be written as UTF-8.
    return text.encode("utf-8", errors="replace").decode()


def _printable(text: str) -> str:
    """Without control characters, one space between words."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
