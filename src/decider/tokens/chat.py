"""What the chat template puts around a request: a head and a tail of token ids, found and checked once at load.

It refuses to know questions and states. Trap: a template may open a think block for the model. Unless it is closed
here, the answer slot sits inside the model's thoughts and every probability is noise.
"""

from __future__ import annotations

from dataclasses import dataclass

from decider.errors import ModelError
from decider.tokens.labels import REQUIRED_LABELS, LabelTable
from decider.tokens.pieces import ANSWER
from decider.tokens.tokenizer import Tokenizer

_CONTENT = "decider-user-content"
_CLOSERS = (("<think>\n", "</think>\n\n"), ("<think>", "</think>\n\n"), ("<|channel>thought\n", "<channel|>"))
_REMEDY = "use a plain layout, or a model with another chat template"


@dataclass(frozen=True, slots=True)
class ChatFrame:
    """Token ids before and after the user's content."""

    head: tuple[int, ...]
    tail: tuple[int, ...]


def chat_frame(tokenizer: Tokenizer, labels: LabelTable) -> ChatFrame:
    """The frame of the tokenizer's chat template.

    Raises ModelError where the rows would not be what the model was trained on: there is no template, it does not show
    the user's content exactly once, a label merges with the ` (` before it, or the tail with the answer piece after it.
    """
    rendered = tokenizer.render_chat(_CONTENT)
    if rendered is None:
        raise ModelError("the tokenizer has no chat template, which a chat layout needs; use a plain layout")
    if rendered.count(_CONTENT) != 1:
        raise ModelError(f"the chat template shows the user's content {rendered.count(_CONTENT)} times; {_REMEDY}")
    head, tail = rendered.split(_CONTENT)
    tail += next((closer for opener, closer in _CLOSERS if tail.endswith(opener)), "")
    for name, label in zip(REQUIRED_LABELS, labels.ids, strict=False):
        if tokenizer.encode(ANSWER + name) != [*tokenizer.encode(ANSWER), label]:
            raise ModelError(f"the tokenizer merges label {name!r} with the answer piece {ANSWER!r}; {_REMEDY}")
    tail_ids = tokenizer.encode_control(tail)
    if tokenizer.encode_control(tail + ANSWER) != tail_ids + tokenizer.encode_control(ANSWER):
        shown = repr(tail[-40:])
        raise ModelError(f"the chat template's tail merges with the answer piece ({shown} + {ANSWER!r}); {_REMEDY}")
    return ChatFrame(tuple(tokenizer.encode_control(head)), tuple(tail_ids))
