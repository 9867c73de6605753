"""What the README shows of a server works as it stands, but for the port.

Refuses to start the model that the README starts. Trap: `sh` and `py` blocks are not run by `tests/docs`, so a block
about a server that no test here finds is not tested at all.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from serving import served

URL = "http://127.0.0.1:8000"
README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = [
    (language, text)
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    if URL in text
]


def test_a_call_from_the_shell_and_one_from_python() -> None:
    assert [language for language, _ in BLOCKS] == ["sh", "py"]
    printed = []
    with served() as server:
        for language, text in BLOCKS:
            command = ["sh", "-ec"] if language == "sh" else [sys.executable, "-W", "error", "-c"]
            done = subprocess.run(
                [*command, text.replace(URL, server.url)], capture_output=True, text=True, timeout=60, check=False
            )
            assert done.returncode == 0, done.stderr
            printed.append(done.stdout)
    by_curl = json.loads(printed[0])["answers"]["angry"]["noul"]
    assert float(printed[1]) == by_curl
