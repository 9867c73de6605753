"""The precision of forwards, whatever the caller has switched on.

It refuses to know what runs. Trap: these switches are torch's own. TF32's are the whole process's, so they are moved
for checks alone, never for requests; autocast is the thread's, and goes off for each call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def full_float32() -> Iterator[None]:
    """Within it float32 is multiplied as float32; the flags are those of before afterwards."""
    matmul, convolution = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(matmul)
        torch.backends.cudnn.allow_tf32 = convolution
