"""Fixtures every test folder uses: tiny random checkpoints, one a family, made once a session.

Refuses to fetch anything but the embedded model. Trap: the folders are shared; a test that changes one copies it first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """family → the folder of its tiny checkpoint."""
    from tiny_models import save_checkpoint

    return functools.cache(lambda family: save_checkpoint(tmp_path_factory.mktemp(family), family))
