"""Forwards with a cache: a prefix once, then suffixes behind it.

It refuses to know rows, budgets and how a cache is forked. Trap: `is_causal` aligns top-left in one kernel and
bottom-right in another when queries and keys differ in number. Here a suffix never meets it: for more than one query
behind a cache, transformers builds a whole mask from the lengths of the cache, and `probe` compares with full rows.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from decider.errors import EngineError
from decider.model.load import LoadedModel
from decider.run.prefix.fork import cache_bytes

# What the argument of a decoder and the field of its output are called: the newest name first.
CACHE_NAMES = ("cache", "past_key_values", "cache_params")


@dataclass(frozen=True, slots=True)
class Prefix:
    """What a decoder keeps of one sequence."""

    cache: Any
    """Batch 1. Never handed to a forward again, as that would change it; fork it."""
    n_tokens: int
    n_bytes: int
    """Bytes of all its tensors: about what each row of a fork takes."""


@dataclass(frozen=True, slots=True)
class CachedDecoder:
    """The decoder of `loaded` with the name of its cache argument, which differs between models and versions."""

    loaded: LoadedModel
    cache_name: str
    takes_positions: bool

    def run_prefix(self, ids: Tensor) -> Prefix:
        """ids int64 [1, tokens] → what the suffixes need. Raises EngineError if the model gives no readable cache."""
        output = self._decoder()(input_ids=ids, use_cache=True)
        cache = next((output[name] for name in CACHE_NAMES if output.get(name) is not None), None)
        if cache is None:
            raise EngineError(f"{self.loaded.name!r:.60} gives no cache back; run full rows")
        return Prefix(cache, ids.shape[1], cache_bytes(cache))

    def run_suffixes(self, ids: Tensor, cache: object, n_prefix: int) -> Tensor:
        """ids int64 [rows, tokens], right-padded, behind a `cache` of as many rows, which is used up.

        Gives hidden states [rows, tokens, hidden] after the final norm.
        """
        arguments: dict[str, Any] = {self.cache_name: cache}
        if self.takes_positions:
            last = n_prefix + ids.shape[1]
            arguments["position_ids"] = torch.arange(n_prefix, last, device=ids.device).unsqueeze(0)
        return cast("Tensor", self._decoder()(input_ids=ids, use_cache=True, **arguments).last_hidden_state)

    def _decoder(self) -> Any:
        return self.loaded.module.get_decoder()


def cached_decoder(loaded: LoadedModel) -> CachedDecoder:
    """Read the signature of the decoder's forward. Raises EngineError if it takes no cache."""
    parameters = inspect.signature(loaded.module.get_decoder().forward).parameters
    name = next((name for name in CACHE_NAMES if name in parameters), None)
    if name is None:
        raise EngineError(
            f"the decoder of {loaded.name!r:.60} ({loaded.model_type}) takes no cache, none of "
            f"{', '.join(CACHE_NAMES)}; run full rows"
        )
    return CachedDecoder(loaded, name, "position_ids" in parameters)
