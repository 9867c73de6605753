"""Linear layers by oneDNN against torch's own product. Refuses to time them.

Trap: the operations are private to torch; a version that changes them must fail here, not in an answer.
"""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from decider.ops import onednn
from decider.ops.onednn import DTYPES, onednn_linear, why_not_onednn

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [True, False])
@torch.inference_mode()
def test_it_is_the_product(dtype: torch.dtype, bias: bool) -> None:
    if (refusal := why_not_onednn(CPU, dtype)) is not None:
        pytest.skip(refusal)
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(48, 33, generator=generator).to(dtype)
    shift = torch.randn(48, generator=generator).to(dtype) if bias else None
    linear = onednn_linear(weight, shift)
    weight_before = weight.clone()
    for rows in (1, 2, 17, 300):
        x = torch.randn(rows, 66, generator=generator).to(dtype)[:, ::2]
        exact = functional.linear(x.double(), weight.double(), None if shift is None else shift.double())
        unit = {torch.float32: 2**-23, torch.bfloat16: 2**-8}[dtype]
        sizes = functional.linear(x.double().abs(), weight.double().abs()) + (0 if shift is None else shift.abs())
        ours = linear(x)
        assert ours.dtype == dtype
        assert bool(((ours.double() - exact).abs() <= 2 * unit * exact.abs() + 40 * 2**-23 * sizes).all())
    assert torch.equal(weight, weight_before)


def test_what_it_is_not_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_not_onednn(torch.device("cuda:0"), torch.bfloat16) == "cuda is no processor"
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    assert "float64" in str(why_not_onednn(CPU, torch.float64))
    monkeypatch.setattr(onednn, "_OPERATIONS", ("no_such_operation",))
    assert "no oneDNN" in str(why_not_onednn(CPU, torch.float32))
