"""Whether a request may come in: `Authorization: Bearer KEY`, where the server has keys.

Without keys every request may, whatever it carries. With keys: 403 for a request without one, 401 for a wrong one.
Pages, their files, `/openapi.json` and the health routes are open all the same: they hold no secret, and a supervisor
or a browser has no key to send. `/stats` and `/metrics` tell of other callers' traffic and need one.

It refuses to know where keys come from. Trap: a comparison that stops early tells a key byte by byte, and one that
stops at the first match tells which key it was; so digests are compared, all of them, every time.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass

from decider.serve.refusal import Refusal

_SCHEME = b"bearer "


@dataclass(frozen=True, slots=True)
class Keys:
    """SHA-256 digests of the keys; none means that nobody needs one."""

    digests: tuple[bytes, ...]

    @classmethod
    def of(cls, digests: Iterable[bytes]) -> Keys:
        """From digests in any order."""
        return cls(tuple(sorted(digests)))

    def check(self, authorization: bytes | None) -> None:
        """Raises Refusal 403 where no bearer key is given, 401 where it is none of ours."""
        if not self.digests:
            return
        value = (authorization or b"").strip()
        key = value[len(_SCHEME) :].strip() if value[: len(_SCHEME)].lower() == _SCHEME else b""
        if not key:
            raise Refusal(403, "this server needs an API key; send it as `Authorization: Bearer KEY`")
        digest = hashlib.sha256(key).digest()
        known = False
        for own in self.digests:
            known |= hmac.compare_digest(own, digest)
        if not known:
            raise Refusal(
                401, "the API key is not one of this server's; check it", headers=((b"www-authenticate", b"Bearer"),)
            )


OPEN = Keys(())
"""Everyone may come in."""
