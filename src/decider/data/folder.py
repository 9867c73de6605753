"""The folder that a build writes: new or an older build's, whole or not at all.

It refuses to know what is in the files. Trap: a folder is replaced as a whole, so every file in it must be of a build;
one file of somebody's own among them, and the folder is refused.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from decider.errors import ConfigError

MANIFEST = "manifest.json"


def check_out(out: Path, made_by: str) -> None:
    """Raises ConfigError unless `out` is missing, empty, or holds what an earlier build by `made_by` wrote alone."""
    if not out.exists():
        return
    if not out.is_dir():
        raise ConfigError(f"{str(out)!r:.120} is a file; name a new or empty folder")
    there = {path.name for path in out.iterdir()}
    if not there:
        return
    try:
        manifest = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
        ours = manifest["made_by"] == made_by and there <= {MANIFEST, *manifest["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        ours = False
    if not ours:
        raise ConfigError(f"{str(out)!r:.120} holds other files than a build's; name a new or empty folder")


def publish_out(out: Path, fill: Callable[[Path], object]) -> None:
    """`out`, made by `fill` beside it and moved into place once it is complete."""
    out = out.resolve()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as work:
            draft, old = Path(work) / "new", Path(work) / "old"
            draft.mkdir()
            fill(draft)
            if out.exists():
                out.rename(old)
            try:
                draft.rename(out)
            except OSError:
                if old.exists():
                    old.rename(out)
                raise
    except OSError as error:
        raise ConfigError(
            f"cannot write {str(out)!r:.120}: {error.strerror or error}; free some space, or name another folder"
        ) from error
