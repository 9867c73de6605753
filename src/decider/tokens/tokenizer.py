"""One tokenizer, two readings: callers' text, where control tokens stay text, and the chat template's own text.

It refuses to know prompts and layouts. Trap: `transformers` and `tokenizers` let a caller close the chat turn by typing
`<|im_end|>`; only `encode` may ever see what a caller wrote, and only `encode_control` what the template wrote.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import tokenizers

from decider.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

# A template that opens a think block need not spell what closes it, and `chat` closes it.
_THOUGHT_MARKS = frozenset({"<think>", "</think>", "<|channel>", "<channel|>"})


class Tokenizer:
    """A fast tokenizer that never changes after construction, so every method may be called from any thread.

    Nothing is added around a text (no BOS), nothing is padded or cut.
    """

    __slots__ = ("_control", "_source", "_template", "_text", "control_tokens", "largest_id")

    control_tokens: frozenset[str]
    """What `encode` keeps as text: special tokens, `<|…|>`, think marks, added tokens that the chat template spells."""

    largest_id: int
    """No text is given a larger token id."""

    def __init__(self, source: PreTrainedTokenizerFast) -> None:
        """Copy a fast `transformers` tokenizer; `source` itself is only kept to render its chat template.

        Raises ModelError if a control token cannot be written as text, or if the tokenizer does not survive the copy.
        """
        written = source.backend_tokenizer.to_str()
        spec = json.loads(written)
        self._source = source
        self._template: str | None = source.get_chat_template() if source.chat_template else None
        controls = {
            token["content"]: token["id"] for token in spec["added_tokens"] if _is_control(token, self._template or "")
        }
        self.control_tokens = frozenset(controls)
        self.largest_id = max(source.backend_tokenizer.get_vocab(with_added_tokens=True).values())
        self._control = _frozen(written)
        # Taking tokens out of `added_tokens` would renumber those that stay; special ones can be switched off in place.
        for token in spec["added_tokens"]:
            token["special"] = token["content"] in controls
        self._text = _frozen(json.dumps(spec))
        self._text.encode_special_tokens = True
        for token in spec["added_tokens"]:
            if self._text.token_to_id(token["content"]) != token["id"]:
                raise ModelError(
                    f"the tokenizer gives its added token {token['content']!r} another id than {token['id']} when it "
                    "is loaded again; save it anew with the current transformers"
                )
        for spelling, token_id in controls.items():
            if token_id in self.encode(spelling):
                raise ModelError(
                    f"the tokenizer turns the text {spelling!r} into control token {token_id} even as plain text, so a "
                    "state could close the chat turn; use a model with a byte-level or byte-fallback vocabulary"
                )

    @classmethod
    def from_pretrained(cls, folder: Path) -> Tokenizer:
        """Load the tokenizer of a model folder. No code of the folder is run and nothing is fetched.

        Raises ModelError if there is none, if it cannot be read, or if it is a slow (pure Python) one.
        """
        from transformers import AutoTokenizer, PreTrainedTokenizerFast

        try:
            source = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            raise ModelError(
                f"the tokenizer in {str(folder)!r} cannot be loaded ({type(error).__name__}: {reason}); "
                "the folder needs a sound config.json and the tokenizer.json that belongs to the model"
            ) from error
        if not isinstance(source, PreTrainedTokenizerFast):
            raise ModelError(
                f"the tokenizer in {str(folder)!r} is a slow one ({type(source).__name__}); "
                "convert it to a tokenizer.json with transformers and put that into the folder"
            )
        return cls(source)

    def encode(self, text: str) -> list[int]:
        """Token ids of a caller's text; whatever it spells, no control token comes out."""
        return self._text.encode(text, add_special_tokens=False).ids

    def encode_control(self, text: str) -> list[int]:
        """Token ids of text that the chat template wrote, its control tokens recognised."""
        return self._control.encode(text, add_special_tokens=False).ids

    def render_chat(self, content: str) -> str | None:
        """The chat template with `content` as its one user turn, open for the model's answer, thinking switched off.

        None if the tokenizer has no template. Raises ModelError if the template fails.
        """
        if self._template is None:
            return None
        try:
            rendered = self._source.apply_chat_template(
                [{"role": "user", "content": content}],
                chat_template=self._template,
                tokenize=False,
                add_generation_prompt=True,
                enable_thinking=False,
            )
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            raise ModelError(
                f"the chat template cannot render a single user turn ({type(error).__name__}: {reason}); "
                'repair it, or use layout="plain"'
            ) from error
        assert isinstance(rendered, str), type(rendered)
        return rendered


def _is_control(token: dict[str, object], template: str) -> bool:
    """Whether an entry of `added_tokens` steers the model. White space never does, though templates spell it."""
    spelling = str(token["content"])
    if token["special"] or spelling in _THOUGHT_MARKS or (spelling.startswith("<|") and spelling.endswith("|>")):
        return True
    return not spelling.isspace() and spelling in template


def _frozen(written: str) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer.from_str(written)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer
