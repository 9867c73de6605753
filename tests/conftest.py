"""Fixtures every test folder uses: tiny random checkpoints, one a family, and the embedded model.

Refuses to fetch anything but the embedded model, through the real code and into the real cache, so it is fetched once.
Trap: the folders are shared; a test that changes one copies it first.
"""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# As the command line sets it, before torch is loaded: waiting threads must not spin on CI's two cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def pytest_collection_finish() -> None:
    """What collecting imported lives to the end: going through it at each collection would take a tenth of the time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def embedded_folder() -> Path:
    """The folder of the embedded model, fetched on first use."""
    from decider.model import embedded
    from decider.model.cache import cache_dir

    return embedded.embedded_folder(cache_dir(), print).path


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Tiny tensors run many times faster without torch's worker threads, which wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """family → the folder of its tiny checkpoint."""
    from tiny_models import save_checkpoint

    return functools.cache(lambda family: save_checkpoint(tmp_path_factory.mktemp(family), family))
