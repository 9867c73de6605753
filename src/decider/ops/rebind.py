"""Give one module another function for a name that its `forward` looks up in its file.

transformers calls the causal convolution and the delta rule by such names, so no module holds anything to replace. It
refuses to know which functions these are. Trap: to replace the name where it is defined would change every model in the
process; here the code of `forward` gets a namespace of its own, in a class of its own, for the modules handed in.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any

from torch import nn

Function = Callable[..., Any]


def users(module: nn.Module, name: str) -> list[nn.Module]:
    """The submodules of `module` whose `forward` looks up the global `name`."""
    return [each for each in module.modules() if _forward_of(each, name) is not None]


def rebind(modules: Sequence[nn.Module], name: str, make: Callable[[str], Function]) -> None:
    """Let each of `modules`, all from `users`, find `make(home)` under `name`; made once for each class of them.

    `home` is the dotted name of the file that has the original, as a module to import.
    The class of a module becomes a subclass with the same name, so `isinstance` holds. Decorators round `forward` are
    dropped: transformers has some for gradient checkpoints, deprecated names and offloading, which an engine lacks.
    """
    classes: dict[type[nn.Module], type[nn.Module]] = {}
    for module in modules:
        cls = type(module)
        if cls not in classes:
            classes[cls] = _rebound_class(module, name, make)
        module.__class__ = classes[cls]


def _rebound_class(module: nn.Module, name: str, make: Callable[[str], Function]) -> type[nn.Module]:
    cls = type(module)
    forward = _forward_of(module, name)
    assert forward is not None, (cls, name)
    names = {each for code in _codes(forward.__code__) for each in code.co_names}
    space = {each: value for each, value in forward.__globals__.items() if each in names}
    # Without a `__name__`, or the compiler takes the names from the file of the original.
    space |= {"__builtins__": forward.__globals__["__builtins__"], name: make(forward.__module__)}
    ours = FunctionType(forward.__code__, space, forward.__name__, forward.__defaults__, forward.__closure__)
    ours.__kwdefaults__, ours.__module__ = forward.__kwdefaults__, forward.__module__
    return type(cls.__name__, (cls,), {"forward": ours, "__module__": cls.__module__})


def _forward_of(module: nn.Module, name: str) -> FunctionType | None:
    """The undecorated `forward` of the class, if it looks up `name`."""
    forward = inspect.unwrap(type(module).forward)
    if not isinstance(forward, FunctionType) or name not in forward.__globals__:
        return None
    return forward if any(name in code.co_names for code in _codes(forward.__code__)) else None


def _codes(code: CodeType) -> Iterator[CodeType]:
    """`code` and those nested in it: comprehensions and functions."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
