"""What a user calls a model, to a folder on this machine.

It refuses to load anything. Trap: `org/name` is both a Hub id and a relative path; a folder that exists wins. Only the
shipped models' names win over a folder, so that the default does not depend on where it runs; write `./default`.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from decider.errors import ModelError
from decider.model.cache import publish
from decider.model.embedded import (
    ALIASES,
    NAME,
    WHEEL_BYTES,
    ModelFolder,
    embedded_folder,
    hub_target,
    wheel_target,
)
from decider.model.hub import snapshot
from decider.model.mini import MINI, default_folder, mini_folder, mini_target, missing
from decider.model.wheel import Say
from decider.tokens.config import BESIDE

__all__ = ["SHIPPED", "ModelFolder", "ModelListing", "list_models", "resolve"]

SHIPPED = (MINI, "default", *ALIASES)
"""Names of the models that come with this package; no folder or Hub id is meant by them."""
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_ADAPTER = "adapter.safetensors"


@dataclass(frozen=True, slots=True)
class ModelListing:
    """One line of `decider models`."""

    name: str
    origin: str
    state: str


def resolve(model: str | Path | None, *, gguf_file: str | None, cache: Path, say: Say) -> ModelFolder:
    """The folder for a Hub id, a local folder, a `.gguf` file, or one of `SHIPPED`; None is the default, decider-mini.

    `gguf_file` names a file inside the folder or repository. GGUF files are converted once into `cache`, and adapters
    (a folder with `adapter.safetensors` and no model) merged there. Raises ModelError.
    """
    # A Path is never an alias: it is how code names a folder that is called like one.
    if model is None or (isinstance(model, str) and model in SHIPPED):
        if gguf_file is not None:
            raise ModelError(f"gguf_file {gguf_file!r} is given without a folder; name the folder as the model")
        if model in ALIASES:
            return embedded_folder(cache, say)
        return mini_folder(cache, say) if model == MINI else default_folder(cache, say)
    name = str(model)
    path, kind = _look(name)
    if kind == "folder":
        return _from_folder(path, gguf_file, cache, say)
    if kind == "file" and path.suffix == ".gguf":
        if gguf_file is not None:
            raise ModelError(f"gguf_file {gguf_file!r} is given, but {name[:80]!r} is a file already; name only one")
        return _converted(path, name, cache, say)
    if kind == "file" or name.endswith(".gguf") or not _HUB_ID.fullmatch(name):
        near = difflib.get_close_matches(name, SHIPPED, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ModelError(
            f"no model {name[:80]!r}: {hint}give a Hub id like 'org/name', a folder, a .gguf file, {MINI!r} or {NAME!r}"
        )
    fetched = snapshot(name, say, only=gguf_file)
    if gguf_file is not None:
        return _converted(fetched / gguf_file, name, cache, say)
    return ModelFolder(fetched, name, "the Hugging Face Hub")


def _look(name: str) -> tuple[Path, str]:
    """The path `name` spells and what is there: "folder", "file" or "" (nothing, or no path this system can have)."""
    path = Path(name)
    try:
        path = path.expanduser()
        return path, "folder" if name and path.is_dir() else "file" if path.is_file() else ""
    except (OSError, ValueError, RuntimeError):
        return path, ""


def _from_folder(path: Path, gguf_file: str | None, cache: Path, say: Say) -> ModelFolder:
    if gguf_file is not None:
        return _converted(path / gguf_file, str(path), cache, say)
    if not (path / "config.json").is_file():
        if (path / _ADAPTER).is_file():
            return _adapted(path, cache, say)
        found = sorted(file.name for file in path.glob("*.gguf"))
        remedy = (
            f"name one of its GGUF files: gguf_file={found[0]!r}" if found else "it needs config.json and safetensors"
        )
        raise ModelError(f"folder {str(path)!r} has no config.json; {remedy}")
    return ModelFolder(path, str(path), "a local folder")


def _converted(file: Path, name: str, cache: Path, say: Say) -> ModelFolder:
    """The converted copy of a GGUF file, which also carries the `decider_config.json` and the wordings beside it."""
    if not file.is_file():
        raise ModelError(f"there is no GGUF file {str(file)!r}; check the folder and the name")
    beside = [part for name in BESIDE if (part := file.parent / name).is_file()]
    stamps = [_stamp(part) for part in (file, *beside)]
    key = hashlib.sha256(repr(stamps).encode()).hexdigest()[:12]

    def fill(draft: Path) -> None:
        from decider.model.gguf import convert

        convert(file, draft, say)
        for part in beside:
            shutil.copy(part, draft / part.name)

    return ModelFolder(publish(cache / "gguf" / f"{file.stem}-{key}", fill), name, f"{file.name}, converted")


def _adapted(path: Path, cache: Path, say: Say) -> ModelFolder:
    """The model that the folder's adapter was trained on, with it merged; the folder's `decider_config.json` beside."""
    from decider.model.adapter import load_adapter, write_served

    base = resolve(load_adapter(path / _ADAPTER).base, gguf_file=None, cache=cache, say=say)
    made_of = [path / _ADAPTER, *(path / name for name in BESIDE), base.path]
    stamps = [_stamp(file) for file in made_of if file.exists()]
    key = hashlib.sha256(repr(stamps).encode()).hexdigest()[:12]

    def fill(draft: Path) -> None:
        say(f"merging the adapter into {base.name}")
        write_served(path, base.path, draft)

    target = publish(cache / "adapted" / f"{path.resolve().name}-{key}", fill)
    return ModelFolder(target, str(path), f"an adapter of {base.name}, merged")


def _stamp(file: Path) -> tuple[str, int, int]:
    return str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns


def list_models(cache: Path) -> tuple[ModelListing, ...]:
    """The shipped models and every GGUF file converted so far. Looks at files and folders only."""
    ready = next((folder for folder in (wheel_target(cache), hub_target(cache)) if folder.is_dir()), None)
    state = f"ready, {_megabytes(ready)} MB" if ready else f"fetched on first use, {WHEEL_BYTES / 1e6:.0f} MB"
    lacking = missing()
    gguf = cache / "gguf"
    converted = sorted(folder for folder in gguf.glob("[!.]*") if folder.is_dir()) if gguf.is_dir() else []
    return (
        _mini_listing(cache, state) if lacking is None else ModelListing(MINI, "not here", f"{lacking} is missing"),
        ModelListing(NAME, f"its base, not trained for decisions{' (the default here)' if lacking else ''}", state),
        *(ModelListing(str(folder), "converted from GGUF", f"ready, {_megabytes(folder)} MB") for folder in converted),
    )


def _mini_listing(cache: Path, base_state: str) -> ModelListing:
    merged = mini_target(cache)
    state = f"ready, {_megabytes(merged)} MB" if merged.is_dir() else f"merged on first use; its base: {base_state}"
    return ModelListing(MINI, f"{NAME} trained for decisions (the default)", state)


def _megabytes(folder: Path) -> int:
    return round(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6)
