"""What a model's cache is like, found by running it: does it fork, is it right, and how large is it?

It refuses to know model families. Trap: a model whose layers see later tokens, or whose mask is wrong behind a cache,
gives finite, confident, wrong logits. So a few tokens behind a cached prefix are compared with the whole row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from decider.errors import EngineError
from decider.model.head import LabelHead, last_hidden
from decider.run.prefix.cache import CachedDecoder
from decider.run.prefix.fork import fork_cache

PREFIX_TOKENS = 24
SUFFIX_TOKENS = 8
# Largest accepted |Δ| of a label logit, relative to the largest. Correct forwards differ by rounding in every layer,
# float64 ones by that of the softmax and norms that transformers does in float32; a wrong mask moves far more.
TOLERANCE = {torch.float64: 1e-2, torch.float32: 1e-2, torch.float16: 5e-2, torch.bfloat16: 0.15}


@dataclass(frozen=True, slots=True)
class CacheSize:
    """Bytes of one row of a cache, as a line through two lengths: too many where a window bounds it, never too few."""

    fixed: int
    each_token: float

    def row_bytes(self, n_tokens: int) -> int:
        """Bytes of a row of `n_tokens` tokens, at least 1."""
        return max(1, self.fixed + round(n_tokens * self.each_token))


@torch.inference_mode()
def probe(decoder: CachedDecoder, head: LabelHead) -> CacheSize:
    """Run a few short forwards. Raises EngineError if the cache cannot fork or its logits are not those of rows."""
    loaded = decoder.loaded
    vocab = cast("Tensor", loaded.module.get_input_embeddings().weight).shape[0]
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(vocab, (2, PREFIX_TOKENS + SUFFIX_TOKENS), generator=generator)
    rows[1, :PREFIX_TOKENS] = rows[0, :PREFIX_TOKENS]
    rows = rows.to(loaded.device)
    prefix = decoder.run_prefix(rows[:1, :PREFIX_TOKENS])
    short = decoder.run_prefix(rows[:1, : PREFIX_TOKENS // 2])
    fork = fork_cache(prefix.cache, 2)
    shared = head(decoder.run_suffixes(rows[:, PREFIX_TOKENS:], fork.cache, PREFIX_TOKENS))
    full = head(last_hidden(loaded.module, rows)[:, PREFIX_TOKENS:])
    difference = float((shared - full).abs().max() / full.abs().max().clamp_min(1e-6))
    allowed = TOLERANCE[loaded.module.dtype]
    # A NaN must fail too, so the comparison is not turned round.
    if not difference <= allowed:
        raise EngineError(
            f"{loaded.name!r:.60} ({loaded.model_type}) answers {difference:.2g} of the largest logit differently "
            f"behind a cached prefix (allowed: {allowed:.2g}); run full rows"
        )
    each_token = (prefix.n_bytes - short.n_bytes) / (prefix.n_tokens - short.n_tokens)
    return CacheSize(max(0, prefix.n_bytes - round(prefix.n_tokens * each_token)), each_token)
