"""What an operation hands to a matrix product: rows in the model's dtype, or as FP8 codes and scales, or both.

It refuses to know products. Trap: codes are made of the rounded rows, so that a product in FP8 and one in the model's
dtype are of the same numbers.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from decider.ops.fp8 import Quantised


class Form(NamedTuple):
    """Which forms of some rows are read; at least one."""

    values: bool
    codes: bool


VALUES = Form(values=True, codes=False)


class Rows(NamedTuple):
    """[N, features] in at least one form."""

    values: Tensor | None
    """In the model's dtype; None where nobody reads them."""
    codes: Quantised | None = None
    """As `quantise_rows` makes them; None where no product takes them."""

    @property
    def best(self) -> Tensor | Quantised:
        """For a product that takes codes where there are any."""
        if self.codes is not None:
            return self.codes
        assert self.values is not None
        return self.values

    @property
    def whole(self) -> Tensor:
        """For a product in the model's dtype."""
        assert self.values is not None
        return self.values
