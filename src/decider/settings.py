"""What a user may say about a model and its runs, read once: arguments, then environment, then a TOML file.

It refuses to know what a setting does; it knows names, types and where each value came from. Trap: a misspelt key must
never fall back to a default in silence, so unknown keys, in the file and as `DECIDER_…` variables, are refused.
"""

from __future__ import annotations

import difflib
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from decider.errors import ConfigError

ENVIRONMENT_PREFIX = "DECIDER_"
# Read elsewhere: the cache folder by `decider.model.cache`, the settings file by `load_settings`, keys and what begins
# with `SERVE_PREFIX` by `decider.serve.config`, as is the file's table `SERVE_TABLE`.
OTHER_VARIABLES = ("DECIDER_CACHE", "DECIDER_CONFIG", "DECIDER_API_KEYS")
SERVE_PREFIX = "DECIDER_SERVE_"
SERVE_TABLE = "serve"
EXECUTORS = ("auto", "reference", "grid", "packed")
DTYPES = ("auto", "float32", "bfloat16", "float16")
# As many as a Choice has options.
MOST_PERMUTATIONS = 255
TRUE_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting with its default; `sources` maps a setting's name to where its value came from."""

    model: str | None = None
    """A Hub id, a folder, a `.gguf` file, a name that `decider models` shows, or None for decider-mini."""
    gguf_file: str | None = None
    """The name of a GGUF file inside the folder `model`."""
    device: str = "auto"
    """`auto`, `cpu`, `cuda`, `cuda:N` or `mps`; or several of one kind, an engine on each: names with commas between,
    `cuda:all` for every card. `auto` is always one."""
    executor: str = "auto"
    """`reference`: one row after the other, exact and slow. `grid`: padded batches, on CUDA captured and sealed.
    `packed`: whole requests in one forward, for families with a native backbone. `auto` chooses one of the last two."""
    dtype: str = "auto"
    """Precision of the weights: `float32`, `bfloat16` or `float16`; `auto` chooses by device and measurement."""
    compile: bool = False
    """Fuse the grid's captured forwards with `torch.compile`; CUDA only, and a longer warm-up."""
    fp8: bool = False
    """Run large linear layers in e4m3, in packs from the tokens on where that gains; Hopper and later only."""
    layout: str | None = None
    """`plain`, `chat`, `plain_schema_first` or `chat_schema_first`; None follows the model's `decider_config.json`."""
    decider_config: str | None = None
    """The path of a `decider_config.json` that is read in place of the model folder's. Its variable is
    `DECIDER_DECIDER_CONFIG`; `DECIDER_CONFIG` names the file of settings."""
    temperature: float | None = None
    """Overrides every temperature of the model's configuration, and switches its other calibration off."""
    permutations: int = 1
    """In how many orders of its options each Choice is asked; the probabilities are averaged."""
    truncate: bool = False
    """Cut a state over the cap (and report it) instead of refusing it."""
    max_state_tokens: int = 32_768
    """The state cap in tokens."""
    sources: Mapping[str, str] = field(default_factory=dict)


SETTING_TYPES: Mapping[str, type] = {
    "model": str, "gguf_file": str, "device": str, "executor": str, "dtype": str, "compile": bool, "fp8": bool,
    "layout": str, "decider_config": str, "temperature": float, "permutations": int, "truncate": bool,
    "max_state_tokens": int,
}  # fmt: skip


def load_settings(arguments: Mapping[str, object], *, environ: Mapping[str, str], file: Path | None = None) -> Settings:
    """Merge the three sources. `arguments` that are None were not given. `file` (or `DECIDER_CONFIG`) is a TOML file.

    Raises ConfigError for an unknown key, a value of the wrong type, or a file that is missing or no TOML.
    """
    path = settings_file(environ, file)
    of_model = {} if path is None else {key: value for key, value in read_toml(path).items() if key != SERVE_TABLE}
    layers = [
        ("default", {}),
        (str(path), of_model),
        ("environment", _from_environment(environ)),
        ("argument", {key: value for key, value in arguments.items() if value is not None}),
    ]
    values: dict[str, object] = {}
    sources = dict.fromkeys(SETTING_TYPES, "default")
    for source, layer in layers:
        for key, value in layer.items():
            values[key] = checked(key, value, source, SETTING_TYPES)
            sources[key] = source
    settings = Settings(**values, sources=sources)  # type: ignore[arg-type]
    if settings.executor not in EXECUTORS:
        raise ConfigError(f"executor is {settings.executor!r:.60}; it must be one of {', '.join(EXECUTORS)}")
    if settings.dtype not in DTYPES:
        raise ConfigError(f"dtype is {settings.dtype!r:.60}; it must be one of {', '.join(DTYPES)}")
    if settings.temperature is not None:
        check_temperature(settings.temperature)
    check_permutations(settings.permutations)
    if settings.max_state_tokens < 1:
        raise ConfigError(f"max_state_tokens is {settings.max_state_tokens}; it must be at least 1")
    return settings


def check_temperature(value: object, *, what: str = "temperature") -> float:
    """`value` as a float. Raises ConfigError unless it is a finite number above 0 (a boolean is none)."""
    # An integer may be too large for `math.isfinite`; NaN fails both comparisons.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= sys.float_info.max:
        raise ConfigError(f"{what} is {_shown(value)}; it must be a finite number above 0, for example 1.0")
    return float(value)


def check_permutations(value: object) -> int:
    """`value` if it is a whole number from 1 to `MOST_PERMUTATIONS`, else ConfigError."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_PERMUTATIONS:
        raise ConfigError(
            f"permutations is {_shown(value)}; it must be a whole number from 1 (off) to {MOST_PERMUTATIONS}"
        )
    return value


def settings_file(environ: Mapping[str, str], file: Path | None) -> Path | None:
    """The TOML file that is read: `file`, or the one `DECIDER_CONFIG` names, or none."""
    return file or (Path(environ["DECIDER_CONFIG"]) if environ.get("DECIDER_CONFIG") else None)


def read_toml(path: Path) -> dict[str, object]:
    """What the settings file at `path` holds, unchecked. Raises ConfigError if it is missing or no TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the settings file {path}: {error}") from error
    # Numbers of thousands of digits and deep nesting raise their own.
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the settings file {path} is not valid TOML: {error}") from error


def _from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    found: dict[str, object] = {}
    for variable, text in environ.items():
        elsewhere = variable in OTHER_VARIABLES or variable.startswith(SERVE_PREFIX)
        if not variable.startswith(ENVIRONMENT_PREFIX) or elsewhere:
            continue
        key = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        found[key] = parse_word(SETTING_TYPES.get(key), text, variable)
    return found


def parse_word(kind: type | None, text: str, variable: str) -> object:
    """The value of a `variable` whose setting is of type `kind`; its text where that is None. Raises ConfigError."""
    try:
        if kind is bool:
            return TRUE_WORDS[text.strip().lower()]
        return kind(text) if kind else text
    except (KeyError, ValueError) as error:
        wanted = {bool: "true or false", int: "a whole number"}.get(kind or str, "a number")
        raise ConfigError(f"{variable} is {text!r}; it must be {wanted}") from error


def checked(key: str, value: object, source: str, types: Mapping[str, type]) -> object:
    """`value` as one of the type that `types` has for `key`. Raises ConfigError for another type or an unknown key."""
    kind = types.get(key)
    if kind is None:
        near = difflib.get_close_matches(key, types, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known settings: {', '.join(types)}"
        raise ConfigError(f"unknown setting {key!r} ({source}); {hint}")
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return check_temperature(value, what=key)
    if kind is str and value == "":
        raise ConfigError(f"setting {key!r} is empty ({source}); give a value, or leave it out")
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ConfigError(f"setting {key!r} is {_shown(value)} ({source}); it must be of type {kind.__name__}")
    return value


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:
        return f"a {type(value).__name__} of thousands of digits"
    return text if len(text) <= 60 else text[:59] + "…"


assert set(SETTING_TYPES) == {field.name for field in fields(Settings)} - {"sources"}
