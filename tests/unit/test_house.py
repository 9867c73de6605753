"""The house rules a machine can check: imports in one direction, a docstring and a size for every module.

Refuses to judge style. Trap: an import inside a function counts too.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "decider"
ORDER = (
    "version",
    "errors",
    "settings",
    "questions",
    "tokens",
    "plan",
    "ops",
    "model",
    "backbone",
    "read",
    "decisions",
    "selective",
    "answering",
    "run",
    "engine",
    "assembly",
    "verify",
    "bench",
    "api",
    "calibrate",
    "evaluate",
    "data",
    "train",
    "serve",
    "cli",
)
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")
MAX_LINES = 400


def room(dotted: str) -> int:
    return ORDER.index(dotted.split(".")[1])


def imported(tree: ast.Module) -> set[str]:
    """Every module of the package that is imported; `from decider import x` counts as `decider.x`."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "decider":
            found |= {f"decider.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return {name for name in found if name.startswith("decider.")}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_follows_the_rules(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    own = room("decider." + path.relative_to(SOURCE).with_suffix("").as_posix().replace("/", "."))
    wrong = sorted(name for name in imported(tree) if room(name) > own)
    assert wrong == []
    assert ast.get_docstring(tree)
    assert text.count("\n") <= MAX_LINES


def test_every_room_is_in_the_order() -> None:
    assert {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in MODULES} == set(ORDER)
