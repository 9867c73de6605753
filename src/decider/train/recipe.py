"""How a run trains: every number that its result depends on, as one frozen value that is written beside the result.

It refuses to know devices and paths. Trap: a run that is resumed under another recipe is neither run. So a checkpoint
carries its recipe, and a difference is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

from decider.errors import ConfigError
from decider.train.augment import Augmentation
from decider.train.loss import LossSpec

METHODS = ("lora", "full")
FORWARDS = ("auto", "plain", "compiled")
RATES: Mapping[str, float] = MappingProxyType({"lora": 5e-4, "full": 1e-4})
"""Learning rates where none is given."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Raises ConfigError for a value out of range."""

    method: str = "lora"
    rank: int = 16
    scale: float = 2.0
    """What a low-rank product is multiplied by."""
    learning_rate: float = RATES["lora"]
    """The highest; reached after `warmup`, then it falls as a cosine to `final_rate` of it."""
    warmup: float = 0.05
    """Share of the run."""
    final_rate: float = 0.02
    epochs: float | None = None
    """Passes over the data; exactly one of this and `minutes` is given."""
    minutes: float | None = None
    """Wall-clock time of training and its evaluations, over all resumptions."""
    tokens_per_step: int = 32_768
    """About how many tokens the packs of a step have."""
    pack_tokens: int = 16_384
    """The most tokens of a forward; a step is as many of them as it needs."""
    max_state_tokens: int = 2048
    """Longer states are cut."""
    weight_decay: float = 0.01
    clip: float = 1.0
    """The largest norm of a step's gradient."""
    evaluations: int = 20
    """How often the held-out items are asked, evenly over the run."""
    patience: int = 6
    """After how many evaluations without a lower NLL the run ends."""
    dtype: str = "float32"
    """Precision of the forward: float32, bfloat16."""
    forward: str = "auto"
    """One of `FORWARDS`; compiled layers on a card, where the model has no others than attention's."""
    balance: float = 1.0
    """A task of n items is asked in proportion to n to the power of this: 1 as the data are, 0 all tasks alike."""
    schema_first: bool = False
    """Layouts that put the questions first are trained too, also where the model's configuration does not say so."""
    seed: int = 0
    loss: LossSpec = field(default_factory=LossSpec)
    augmentation: Augmentation = field(default_factory=Augmentation)

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ConfigError(f"method is {self.method!r:.60}; it must be one of {', '.join(METHODS)}")
        if (self.epochs is None) == (self.minutes is None):
            raise ConfigError("give either epochs (--epochs) or minutes (--minutes), so that the run has one end")
        for name in ("rank", "tokens_per_step", "pack_tokens", "max_state_tokens", "evaluations", "patience"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("learning_rate", "epochs", "minutes", "clip", "scale"):
            value = getattr(self, name)
            # NaN fails the comparison.
            if value is not None and not 0 < value < float("inf"):
                raise ConfigError(f"{name} is {value}; it must be above 0")
        if self.forward not in FORWARDS:
            raise ConfigError(f"forward is {self.forward!r:.60}; it must be one of {', '.join(FORWARDS)}")
        if not 0 <= self.balance <= 1:
            raise ConfigError(f"balance is {self.balance}; it must be from 0 (all tasks alike) to 1 (as the data are)")
        for name, value in (("smoothing", self.loss.smoothing), ("brier", self.loss.brier)):
            if not 0 <= value < 1:
                raise ConfigError(f"{name} is {value}; it must be from 0 to below 1")
        if not 0 <= self.loss.consistency < float("inf"):
            raise ConfigError(f"consistency is {self.loss.consistency}; it must be 0 (off) or above")
        if self.loss.consistency and not self.augmentation.twin:
            raise ConfigError(
                f"consistency is {self.loss.consistency}, and no question is asked in two orders; leave one out"
            )
        if self.seed < 0:
            raise ConfigError(f"seed is {self.seed}; it must be a whole number from 0 on")

    def to_json(self) -> dict[str, Any]:
        """Every field by name, nested ones as objects."""
        return asdict(self)


PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # The embedded model within nine minutes of one H200, into an adapter of at most 25 MB (int8).
        "mini": {
            "method": "lora",
            "rank": 64,
            "learning_rate": 5e-4,
            "warmup": 0.03,
            "minutes": 7.5,
            "tokens_per_step": 32_768,
            "pack_tokens": 32_768,
            "max_state_tokens": 1024,
            "loss": LossSpec(consistency=2.0),
            "augmentation": Augmentation(twin=0.75),
            "evaluations": 12,
            "patience": 12,
        },
        # Seconds on two cores: that everything goes together, not what it learns.
        "tiny": {
            "method": "lora",
            "rank": 4,
            "learning_rate": 2e-3,
            "epochs": 1.0,
            "tokens_per_step": 2048,
            "pack_tokens": 2048,
            "max_state_tokens": 256,
            "evaluations": 2,
        },
    }
)


def recipe_of(preset: str | None, given: Mapping[str, Any]) -> Recipe:
    """A preset's recipe with what is given (not None) in its place. Raises ConfigError as `Recipe` does."""
    said = {name: value for name, value in given.items() if value is not None}
    values: dict[str, Any] = dict(PRESETS[preset]) if preset is not None else {}
    if said.keys() & {"epochs", "minutes"}:
        values.pop("epochs", None)
        values.pop("minutes", None)
    if "method" in said and said["method"] != values.get("method", said["method"]):
        values.pop("learning_rate", None)
    loss = {name: said.pop(name) for name in ("smoothing", "brier", "consistency") if name in said}
    values |= said
    if "augmentation" in said and not said["augmentation"].twin:
        loss.setdefault("consistency", 0.0)
    values.setdefault("learning_rate", RATES.get(values.get("method", "lora"), RATES["lora"]))
    if loss:
        values["loss"] = replace(values.get("loss", LossSpec()), **loss)
    return Recipe(**values)
