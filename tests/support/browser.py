"""Headless Chromium for tests, driven over the W3C WebDriver protocol: JSON over HTTP to Debian's chromedriver.

It installs the two packages where it may and knows no page of ours. Trap: what a page logs is handed out once; `logs`
gives what came since the last call.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PACKAGES = ("chromium", "chromium-driver")
INSTALL = f"apt-get install --yes --no-install-recommends {' '.join(PACKAGES)}"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
)  # fmt: skip
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""The key of an element's reference (W3C WebDriver, section 12)."""
WAIT_S = 10.0
KEYS = {
    "Tab": "\ue004", "Enter": "\ue007", "Space": " ", "Right": "\ue014", "Left": "\ue012", "Down": "\ue015",
    "Control": "\ue009", "Shift": "\ue008", "End": "\ue010", "Home": "\ue011",
}  # fmt: skip


def require_chromium() -> None:
    """Debian's Chromium and its driver; installed where this is root, else an AssertionError with the line to run."""
    if shutil.which("chromium") and shutil.which("chromedriver"):
        return
    line = f"apt-get update && {INSTALL}"
    assert os.geteuid() == 0, f"the browser tests need Chromium; run: sudo sh -c '{line}'"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, f"{line} failed:\n{done.stderr[-2000:]}"


class Browser:
    """One window. Elements are found by CSS selector."""

    def __init__(self, driver: str) -> None:
        self._driver = driver
        options = {"binary": shutil.which("chromium"), "args": [*FLAGS]}
        always = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self._profile = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        options["args"] = [*FLAGS, f"--user-data-dir={self._profile.name}"]
        made = self._call("POST", "/session", {"capabilities": {"alwaysMatch": always}})
        self._session = f"/session/{made['sessionId']}"

    def close(self) -> None:
        self._call("DELETE", self._session)
        self._profile.cleanup()

    def go(self, url: str) -> None:
        self.post("/url", {"url": url})

    def script(self, text: str, *arguments: Any) -> Any:
        """The value of a function's body; a promise is awaited."""
        return self.post("/execute/sync", {"script": text, "args": list(arguments)})

    def text(self, selector: str) -> str:
        """Text as it is in the document, shown or not."""
        return str(self.script("return document.querySelector(arguments[0]).textContent", selector))

    def click(self, selector: str) -> None:
        element = self.post("/element", {"using": "css selector", "value": selector})[ELEMENT]
        self.post(f"/element/{element}/click", {})

    def keys(self, *names: str, holding: str | None = None) -> None:
        """Press keys where the focus is, one after the other: names of `KEYS`, or text."""
        pressed = [char for name in names for char in ([KEYS[name]] if name in KEYS else name)]
        strokes = [{"type": kind, "value": char} for char in pressed for kind in ("keyDown", "keyUp")]
        if holding is not None:
            held = KEYS[holding]
            strokes = [{"type": "keyDown", "value": held}, *strokes, {"type": "keyUp", "value": held}]
        self.post("/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": strokes}]})

    def wait(self, condition: str, *arguments: Any) -> None:
        """Until the JavaScript expression `condition` is true. Raises AssertionError after `WAIT_S`."""
        until(lambda: bool(self.script(f"return Boolean({condition})", *arguments)), condition)

    def logs(self) -> list[str]:
        """What the console was told since the last call: faults of scripts, of requests and of the CSP among it."""
        return [f"{each['level']} {each['message']}" for each in self.post("/se/log", {"type": "browser"})]

    def devtools(self, command: str, **parameters: Any) -> Any:
        """A command of the DevTools protocol."""
        return self.post("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def screen(self, width: int, height: int, *, dark: bool = False, calm: bool = True) -> None:
        """The window's size in CSS pixels, and what its user prefers."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if calm else "no-preference"},
        ]
        self.devtools("Emulation.setEmulatedMedia", features=features)

    def shot(self, path: Path) -> None:
        """The whole page as a PNG."""
        size = self.devtools("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.devtools("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return self._call("POST", self._session + path, body)

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._driver + path, content, {"content-type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path}: {json.load(error)['value']['message']}") from error


def until(condition: Callable[[], bool], what: str) -> None:
    """Raises AssertionError where `condition` is not true within `WAIT_S`."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {WAIT_S:.0f} s: {what}"
        time.sleep(0.02)


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser with a new, empty profile, and its driver; both are gone afterwards."""
    require_chromium()
    driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert driver.stdout is not None
        port = None
        for line in driver.stdout:
            if port := re.search(r"started successfully on port (\d+)", line):
                break
        assert port, "chromedriver did not start"
        window = Browser(f"http://127.0.0.1:{port[1]}")
        try:
            yield window
        finally:
            window.close()
    finally:
        driver.terminate()
        driver.communicate(timeout=10)
