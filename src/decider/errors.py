"""The one exception tree. Every error is a sentence that names the value, the limit and the remedy.

    DeciderError
    ├── InputError                  what a caller asked is at fault                        400
    │   ├── SchemaError             the shape is wrong: type, missing field, duplicate     422
    │   ├── QuestionError           well-formed, but it cannot be answered                 400
    │   └── TooLargeError           over a limit of size, count or length                  413
    ├── SetupError                  what an operator configured is at fault                500
    │   ├── ConfigError             a setting or `decider_config.json`
    │   ├── ModelError              a model cannot be found, fetched, read or supported
    │   ├── DeviceError             a device or dtype that is not there
    │   └── MissingDependencyError  an optional package; carries its install line
    ├── OverloadError               sound, but there is no room or no time for it now      429
    └── EngineError                 the engine failed at run time                          503

Refuses to know HTTP beyond a status number. Trap: a bug of ours is an `assert`, never one of these.
"""

from __future__ import annotations

from typing import ClassVar


def printable(text: str) -> str:
    """`text` with every control and other unprintable character escaped, so that it cannot steer a terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def first_line(error: BaseException) -> str:
    """What another library's error says, cut to its first line; its class where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def sticky(error: BaseException) -> str | None:
    """What CUDA cannot recover from within this process, if `error` or a cause of it is that."""
    link: BaseException | None = error
    while link is not None:
        # By name, so that a server without torch (a fake engine) needs none.
        names = {each.__name__ for each in type(link).__mro__}
        if "AcceleratorError" in names or "CUDA error" in str(link):
            return f"the device failed for good ({first_line(link)})"
        link = link.__cause__
    return None


class DeciderError(Exception):
    """Base of everything this package raises on purpose. `status` is the HTTP status a server answers with."""

    status: ClassVar[int] = 500


class InputError(DeciderError):
    """A caller's request is at fault; `loc` is the path to the fault inside the request, outermost first."""

    status = 400

    def __init__(self, message: str, *, loc: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.loc = loc

    def __str__(self) -> str:
        where = ".".join(printable(str(part)) for part in self.loc)
        return f"{where}: {self.message}" if where else self.message


class SchemaError(InputError):
    """The request does not have the documented shape."""

    status = 422


class QuestionError(InputError):
    """The request is well-formed but has no answer: 256 options, a Noul without any text, an unknown model name."""

    status = 400


class TooLargeError(InputError):
    """A size, count or length is over its limit."""

    status = 413


class SetupError(DeciderError):
    """The installation, a setting or a model is at fault, not the request."""


class ConfigError(SetupError):
    """A setting or a `decider_config.json` that cannot be used."""


class ModelError(SetupError):
    """A model that cannot be found, fetched, read or supported."""


class DeviceError(SetupError):
    """A device or dtype this machine does not have."""


class MissingDependencyError(SetupError):
    """An optional package is missing; the message ends with the line that installs it."""


class OverloadError(DeciderError):
    """There is no room for the request now, or its deadline passed while it waited; the same request may work later."""

    status = 429

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        """Seconds after which room is expected, from the throughput that was measured."""


class EngineError(DeciderError):
    """The engine failed while it ran; the request was sound."""

    status = 503
