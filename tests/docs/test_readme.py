"""The README's code blocks run as they stand. Refuses to know what they print beyond that they work.

Trap: a block that is not run is a block that rots; fences say `bash` or `python` if they run, `sh` if they hold a
placeholder.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(
    r"^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
# These make environments and run this suite; the long tests run them.
MAKE_BLOCKS = {"make demo\n", "make test\n"}
RUN = [(language, text) for language, text in BLOCKS if language in ("bash", "python") and text not in MAKE_BLOCKS]


def test_the_readme_names_both_commands() -> None:
    texts = {text for _, text in BLOCKS}
    assert texts >= MAKE_BLOCKS
    assert len(RUN) >= 6


@pytest.mark.embedded
@pytest.mark.parametrize(
    ("language", "text"), RUN, ids=[f"{language}-{index}" for index, (language, _) in enumerate(RUN)]
)
def test_block_runs(language: str, text: str, embedded_folder: Path) -> None:
    assert embedded_folder.is_dir()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = (
        [sys.executable, "-W", "error", "-c", text]
        if language == "python"
        else ["bash", "-euo", "pipefail", "-c", text]
    )
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "the block printed nothing"
