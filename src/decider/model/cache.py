"""The user's cache folder, and how a folder appears in it: whole or not at all.

It refuses to know what is cached. Trap: two processes may make the same folder at once; the loser keeps the winner's.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import platformdirs

from decider.errors import ModelError

ABANDONED_S = 6 * 3600


def cache_dir() -> Path:
    """`$DECIDER_CACHE`, else this system's usual place for a user's caches."""
    asked = os.environ.get("DECIDER_CACHE")
    return Path(os.path.expanduser(asked)) if asked else Path(platformdirs.user_cache_dir("decider"))


def publish(target: Path, fill: Callable[[Path], object]) -> Path:
    """`target`, made by `fill` in a folder beside it and moved into place once it is complete.

    What `fill` raises leaves nothing behind. Raises ModelError if the cache cannot be written.
    """
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target)
        draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise ModelError(f"cannot write to the cache {target.parent}: {error.strerror}; set DECIDER_CACHE") from error
    try:
        fill(draft)
        # safetensors writes files only their owner can read, mkdtemp such a folder; a cache may be shared.
        for path in (draft, *draft.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        _move(draft, target)
    except OSError as error:
        raise ModelError(f"cannot fill the cache {target}: {error}; free some space, or set DECIDER_CACHE") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def _move(draft: Path, target: Path) -> None:
    try:
        draft.rename(target)
    except OSError:
        if not target.is_dir():
            raise


def _sweep(target: Path) -> None:
    """Remove drafts of `target` that a killed process left; a younger one may still be at work."""
    for draft in target.parent.glob(f".{target.name}-*"):
        if time.time() - draft.stat().st_mtime > ABANDONED_S:
            shutil.rmtree(draft, ignore_errors=True)
