"""A second module tree over the tensors of a loaded model, for an engine to change as its options say.

It refuses to know the options. Trap: a tensor that is copied rather than shared costs its memory twice and is not found
by any test of answers; so every parameter and buffer of the twin is checked to be the very object of the original.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from torch import Tensor, nn

from decider.errors import ModelError, first_line
from decider.model.load import LoadedModel


def twin(loaded: LoadedModel) -> LoadedModel:
    """A copy of the modules and the config of `loaded`; parameters and buffers are the same objects, so tied stay tied.

    What is changed in the twin's modules leaves `loaded` as it is, and goes with the twin. Writing into a tensor
    changes both. Raises ModelError if a module holds what cannot be copied.
    """
    # deepcopy takes an object that the memo holds for its own copy.
    memo: dict[int, object] = {id(tensor): tensor for tensor in _tensors(loaded.module)}
    try:
        module = copy.deepcopy(loaded.module, memo)
    except (TypeError, RuntimeError) as error:
        raise ModelError(
            f"{loaded.name!r} holds something that cannot be copied ({first_line(error)}), and an engine changes only "
            "copies; use --executor reference"
        ) from error
    ours, theirs = (tuple(chain(each.parameters(), each.buffers())) for each in (module, loaded.module))
    assert len(ours) == len(theirs)
    assert all(a is b for a, b in zip(ours, theirs, strict=True))
    return replace(loaded, module=module)


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    """Parameters, buffers, and tensors that a module merely has as attributes."""
    yield from chain(module.parameters(), module.buffers())
    for each in module.modules():
        yield from (value for value in vars(each).values() if isinstance(value, Tensor))
