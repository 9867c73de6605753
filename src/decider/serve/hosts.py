"""Whom a request says it is for: its `Host`, and that what may be said once only is not said twice.

It refuses to know routes and keys. Trap: a page of any web site may point its own name at 127.0.0.1 and read what a
server there tells it (DNS rebinding), as to the browser both are one site; only the name in `Host` gives it away. So
where a server asks for no key, and relies on being reached from its own machine alone, it answers to its own names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from decider.serve.config import ServeConfig
from decider.serve.refusal import Refusal

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True, slots=True)
class Hosts:
    """The names that are answered to, in lower case, IPv6 addresses in brackets; None: any."""

    names: frozenset[str] | None

    @classmethod
    def of(cls, config: ServeConfig) -> Hosts:
        """Any name where keys are asked for or other machines may connect; else this machine's and `allowed_hosts`."""
        if config.api_keys or not config.is_loopback:
            return cls(None)
        more = (name.strip() for name in config.allowed_hosts.split(","))
        own = f"[{config.host}]" if ":" in config.host else config.host
        return cls(frozenset(name.lower() for name in (*LOOPBACK_NAMES, own, *more) if name))

    def check(self, http_version: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raises Refusal 400 for no `Host` (RFC 9112, 3.2) or several, and several `Authorization`; 421 for a name of
        someone else.
        """
        hosts: list[bytes] = []
        n_authorizations = 0
        for name, value in headers:
            if name == b"host":
                hosts.append(value)
            elif name == b"authorization":
                n_authorizations += 1
        if n_authorizations > 1:
            raise Refusal(400, f"the request has {n_authorizations} Authorization headers; send one")
        if len(hosts) > 1 or (not hosts and http_version != "1.0"):
            raise Refusal(400, f"the request has {len(hosts)} Host headers; send one")
        if self.names is None or not hosts:
            return
        host = hosts[0].decode("latin-1").strip().lower()
        # An IPv6 address has colons, and its bracket after them.
        asked = host if host.endswith("]") else host.rpartition(":")[0] or host
        if asked.removesuffix(".") not in self.names:
            raise Refusal(
                421,
                f"this server asks for no key, so it answers to names of its own machine alone, and {asked[:60]!r} is "
                "none; ask for localhost, or add the name to its setting allowed_hosts",
            )
