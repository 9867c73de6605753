"""The one function that every grid forward is: padded ids and slot indices in, label logits out.

It refuses to know rows, buckets and graphs. Trap: it must not read a value back to the host, or it cannot be captured.
transformers does so when it looks for packed sequences in position ids. Under capture it builds a whole mask
[rows, tokens, tokens] instead (5.17 always does there), which shuts out the fast attention kernels;
`no_packed_sequences` turns both off.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from transformers import masking_utils

from decider.model.head import LabelHead, last_hidden
from decider.model.load import LoadedModel

Forward = Callable[[Tensor, Tensor], Tensor]
"""(input_ids int64 [rows, tokens], slots int64 [slots] into the flattened [rows · tokens]) → logits [slots, labels]."""

# One capture at a time in a process: it holds a function of transformers replaced.
_REPLACED = threading.RLock()


def make_forward(loaded: LoadedModel, head: LabelHead) -> Forward:
    """The uncompiled forward of `loaded`: no cache, no attention mask, the head at the slots only.

    Logits are float32, or float64 for a float64 model. Right padding needs no mask, because every layer is causal.
    """

    def forward(input_ids: Tensor, slots: Tensor) -> Tensor:
        hidden = last_hidden(loaded.module, input_ids)
        return head(hidden.flatten(0, 1).index_select(0, slots))

    return forward


@contextmanager
def no_packed_sequences() -> Iterator[None]:
    """Within it, this thread's forwards take every row for one sequence, without asking the device, and need no mask.

    True of all rows here: none is given position ids or padding. Other threads keep the original functions meanwhile.
    """
    owner = threading.get_ident()
    # Typed as Any, as functions of it are replaced by ours.
    utils: Any = masking_utils
    with _REPLACED:
        packed, tracing = utils.find_packed_sequence_indices, utils.is_tracing

        def find_packed_sequence_indices(*args: Any, **kwargs: Any) -> Any:
            return None if threading.get_ident() == owner else packed(*args, **kwargs)

        def is_tracing(*args: Any, **kwargs: Any) -> Any:
            return False if threading.get_ident() == owner else tracing(*args, **kwargs)

        utils.find_packed_sequence_indices, utils.is_tracing = find_packed_sequence_indices, is_tracing
        try:
            yield
        finally:
            utils.find_packed_sequence_indices, utils.is_tracing = packed, tracing


@contextmanager
def on_device(device: torch.device) -> Iterator[None]:
    """Make a CUDA `device` the current one, and turn the caller's autocast for it off.

    Autocast would give other answers than those that were checked at load, or types that were not asked for.
    """
    current = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    with current, torch.autocast(device.type, enabled=False):
        yield
