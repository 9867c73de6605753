"""Checkpoints from the Hugging Face Hub, through its own cache. It refuses to know what is in them.

Trap: a repository can hold the same weights in several formats; only safetensors, what a tokenizer needs and what
decider wrote are fetched.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath

from decider.errors import ModelError, first_line
from decider.tokens.config import BESIDE

PATTERNS = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt", *BESIDE)
IGNORED = ("*/*",)


def snapshot(repository: str, say: Callable[[str], None], *, only: str | None = None) -> Path:
    """The local folder of `repository` (with the file `only`, or the usual patterns). Raises ModelError."""
    import huggingface_hub

    say(f"looking for {repository} in the Hub's cache and on the Hub")
    try:
        return Path(
            huggingface_hub.snapshot_download(
                repository,
                allow_patterns=[only, *(str(PurePosixPath(only).with_name(name)) for name in BESIDE)]
                if only
                else list(PATTERNS),
                ignore_patterns=None if only else list(IGNORED),
            )
        )
    # The Hub's client lets its transports' own exceptions through, and those change between its releases.
    except Exception as error:
        raise ModelError(
            f"cannot fetch {repository!r} from the Hub: {first_line(error)}; check the name and the "
            "network, or give a local folder"
        ) from error
