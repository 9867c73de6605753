"""What an operator may say about the server: arguments, then `DECIDER_SERVE_…`, then the settings file's `[serve]`.

It refuses to know HTTP, and to keep a key: only digests leave this module. Trap: a request larger than the queue could
never be admitted, so the limits are checked against each other here and not when the first such request comes.
"""

from __future__ import annotations

import hashlib
import ipaddress
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from decider.errors import ConfigError
from decider.questions.limits import Limits
from decider.settings import SERVE_PREFIX, SERVE_TABLE, checked, parse_word, read_toml, settings_file

KEYS_VARIABLE = "DECIDER_API_KEYS"
KEYS_FILE = "api_keys_file"
MIN_KEY_CHARACTERS = 8
OVERLOAD_STATUSES = (429, 529)


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """Every setting of the server with its default. Raises ConfigError for values that cannot hold together."""

    host: str = "127.0.0.1"
    port: int = 8000
    """0 takes a free one."""
    api_keys: frozenset[bytes] = field(default=frozenset(), repr=False)
    """`key_digest` of each key that is let in; none: everyone is."""
    allowed_hosts: str = ""
    """Names, by commas, that a request may be for beside this machine's own, where it alone connects, without a key."""
    max_connections: int = 4096
    max_body_bytes: int = 4 * 2**20
    """The most bytes of a body as it is sent. Parsing one this large stops everyone else's for about 10 ms."""
    max_decompressed_bytes: int = 4 * 2**20
    """The most bytes of a body's JSON, after decompression."""
    max_held_bytes: int = 256 * 2**20
    """The most bytes of all bodies that are being read, parsed or answered at once; more get `overload_status`."""
    max_state_bytes: int = Limits().max_state_bytes
    max_question_bytes: int = Limits().max_question_bytes
    max_json_depth: int = Limits.HARD_DEPTH
    max_questions: int = Limits().max_questions
    max_row_tokens: int = 65_536
    """The most tokens of one row: the layout, the state and a question."""
    max_request_tokens: int = 131_072
    """The most tokens that running a request costs; a state that its questions share counts once."""
    max_queued_requests: int = 1024
    max_queued_rows: int = 16_384
    max_queued_tokens: int = 262_144
    """The most tokens of requests that wait or run; more are answered with `overload_status`."""
    pack_tokens: int = 2048
    """Tokens that go to the engine at once; a longer row goes alone."""
    deadline_s: float = 10.0
    """Work older than this is dropped: clients have given up by then."""
    read_timeout_s: float = 10.0
    """How long the headers of a request may take to arrive, and then its body."""
    keep_alive_s: float = 75.0
    """How long a connection may be idle."""
    drain_s: float = 30.0
    """How long requests in flight may take once the server is told to stop."""
    overload_status: int = 429
    prepare_threads: int = 2
    """Threads that render and tokenise."""
    log_content: bool = False
    """Write states, questions and answers to the log."""
    warnings: tuple[str, ...] = ()
    """What was found to be unwise while the settings were read."""
    limits: Limits = field(init=False, repr=False)
    """What the parser of a request is held to."""

    def __post_init__(self) -> None:
        for name, kind in SERVE_TYPES.items():
            if name == KEYS_FILE:
                continue
            value = getattr(self, name)
            least = 0 if name == "port" else 1
            if kind is int and value < least:
                raise ConfigError(f"{name} is {value}; it must be at least {least}")
            if kind is float and not 0 < value <= MAX_SECONDS:
                raise ConfigError(f"{name} is {value}; it must be above 0 and at most {MAX_SECONDS:,} seconds")
        if self.port > 65_535:
            raise ConfigError(f"port is {self.port}; it must be at most 65535")
        if self.overload_status not in OVERLOAD_STATUSES:
            raise ConfigError(f"overload_status is {self.overload_status}; it must be 429 or 529")
        if self.max_request_tokens > self.max_queued_tokens:
            raise ConfigError(
                f"max_request_tokens is {self.max_request_tokens}, over max_queued_tokens, {self.max_queued_tokens}; "
                "such a request could never be admitted: lower the first or raise the second"
            )
        one_body = self.max_body_bytes + self.max_decompressed_bytes
        if self.max_held_bytes < one_body:
            raise ConfigError(
                f"max_held_bytes is {self.max_held_bytes}, under max_body_bytes and max_decompressed_bytes together, "
                f"{one_body}; a request of that size could never be read: raise the first or lower one of the others"
            )
        if self.max_json_depth > Limits.HARD_DEPTH:
            raise ConfigError(f"max_json_depth is {self.max_json_depth}; it must be at most {Limits.HARD_DEPTH}")
        limits = Limits(
            max_body_bytes=self.max_decompressed_bytes,
            max_state_bytes=self.max_state_bytes,
            max_question_bytes=self.max_question_bytes,
            max_questions=self.max_questions,
            max_depth=self.max_json_depth,
        )
        object.__setattr__(self, "limits", limits)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


MAX_SECONDS = 86_400
SERVE_TYPES: Mapping[str, type] = {
    "host": str, "port": int, KEYS_FILE: str, "allowed_hosts": str, "max_connections": int, "max_body_bytes": int,
    "max_decompressed_bytes": int, "max_held_bytes": int, "max_state_bytes": int, "max_question_bytes": int,
    "max_json_depth": int, "max_questions": int, "max_row_tokens": int, "max_request_tokens": int,
    "max_queued_requests": int, "max_queued_rows": int, "max_queued_tokens": int, "pack_tokens": int,
    "deadline_s": float, "read_timeout_s": float, "keep_alive_s": float, "drain_s": float, "overload_status": int,
    "prepare_threads": int, "log_content": bool,
}  # fmt: skip


def load_serve_config(
    arguments: Mapping[str, object], *, environ: Mapping[str, str], file: Path | None = None
) -> ServeConfig:
    """Merge the three sources. `arguments` that are None were not given; keys are named by `api_keys_file`.

    Keys come from the first source that has any: a file that an argument names, `DECIDER_API_KEYS` (separated by
    commas) or a file that the environment names, a file that the table names. Raises ConfigError as `load_settings`
    does, and for a key file that cannot be used.
    """
    path = settings_file(environ, file)
    layers = [
        (f"[{SERVE_TABLE}] of {path}", {} if path is None else _table(path)),
        ("environment", _from_environment(environ)),
        ("argument", {key: value for key, value in arguments.items() if value is not None}),
    ]
    values: dict[str, object] = {}
    keys: list[str] = []
    warnings: list[str] = []
    for source, layer in layers:
        for key, value in layer.items():
            values[key] = checked(key, value, source, SERVE_TYPES)
        key_file = layer.get(KEYS_FILE)
        listed = environ.get(KEYS_VARIABLE) if source == "environment" else None
        if key_file is not None and listed is not None:
            raise ConfigError(f"{KEYS_VARIABLE} and {SERVE_PREFIX}{KEYS_FILE.upper()} are both set; unset one")
        if key_file is not None:
            keys, warnings = _read_keys(Path(str(key_file)))
        elif listed is not None:
            keys = [_checked_key(key.strip(), KEYS_VARIABLE) for key in listed.split(",")]
            warnings = []
    values.pop(KEYS_FILE, None)
    digests = frozenset(key_digest(key) for key in keys)
    return ServeConfig(**values, api_keys=digests, warnings=tuple(warnings))  # type: ignore[arg-type]


def key_digest(key: str | bytes) -> bytes:
    """The SHA-256 of a key (latin-1 text, as headers are, or bytes): what keys are stored and compared as."""
    return hashlib.sha256(key.encode("latin-1") if isinstance(key, str) else key).digest()


def _table(path: Path) -> dict[str, object]:
    table = read_toml(path).get(SERVE_TABLE, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{SERVE_TABLE!r} in {path} is no table; write its settings below a line [{SERVE_TABLE}]")
    return table


def _from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    found = {}
    for variable, text in environ.items():
        if variable.startswith(SERVE_PREFIX):
            key = variable.removeprefix(SERVE_PREFIX).lower()
            found[key] = parse_word(SERVE_TYPES.get(key), text, variable)
    return found


def _read_keys(path: Path) -> tuple[list[str], list[str]]:
    """The keys of a file, one a line, and what is unwise about it; empty lines and those from `#` on are none."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise ConfigError(f"cannot read the API keys in {str(path)!r:.120}: {reason}") from error
    keys = [
        _checked_key(line.strip(), f"line {number} of {path}")
        for number, line in enumerate(lines, start=1)
        if line.strip() and not line.strip().startswith("#")
    ]
    if not keys:
        raise ConfigError(f"{str(path)!r:.120} holds no API key; write one a line, or leave the option out")
    unwise = f"every user of this machine can read the API keys in {path}; run `chmod 600` on it"
    return keys, [unwise] if mode & stat.S_IROTH else []


def _checked_key(key: str, where: str) -> str:
    if len(key) < MIN_KEY_CHARACTERS or not all("!" <= character <= "~" for character in key):
        raise ConfigError(
            f"an API key ({where}) is no key: it must be {MIN_KEY_CHARACTERS} or more visible ASCII characters "
            "without a space"
        )
    return key


assert set(SERVE_TYPES) == {each.name for each in fields(ServeConfig)} - {"api_keys", "warnings", "limits"} | {
    KEYS_FILE
}
