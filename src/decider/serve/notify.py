"""What systemd is told: ready, alive, stopping (the protocol of `sd_notify(3)`).

It refuses to depend on systemd: without `NOTIFY_SOCKET` nothing is sent. Trap: the name may begin with `@`, which
stands for the zero byte of an abstract socket.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping

READY, ALIVE, STOPPING = "READY=1", "WATCHDOG=1", "STOPPING=1"


class Notifier:
    """Sends states to the socket that `environ` names, or nowhere."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        name = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + name[1:] if name.startswith("@") else name

    def send(self, state: str) -> None:
        """Best effort, as a supervisor that has gone has no use for it."""
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.connect(self._address)
            channel.sendall(state.encode())
