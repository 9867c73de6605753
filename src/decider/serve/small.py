"""Which requests are prepared and read on the event loop's own thread.

It refuses to look further than it must: past the bound it stops. Trap: a description may be JSON of any size, which is
not measured here, so such a request is never small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from decider.questions.request import Request

INLINE_CHARACTERS = 512
"""About half a millisecond of a tokenizer; waking a thread and coming back costs 0.1 to 0.15 ms."""
INLINE_QUESTIONS = 8
INLINE_ROWS = 16


def is_small(request: Request) -> bool:
    """Whether preparing `request` costs less than waking a thread for it, about."""
    if len(request.state) > INLINE_CHARACTERS or len(request.questions) > INLINE_QUESTIONS:
        return False
    left = INLINE_CHARACTERS - len(request.state)
    for question in request.questions.values():
        criteria: object = question.criteria
        texts: list[object] = [question.instructions]
        if isinstance(criteria, Mapping):
            texts += criteria
            texts += criteria.values()
        elif isinstance(criteria, Sequence):
            texts += criteria
        for text in texts:
            if isinstance(text, str):
                left -= len(text)
            elif text is not None:
                return False
        if left < 0:
            return False
    return True
