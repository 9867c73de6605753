"""The grid's forward with its decoder layers compiled by torch: one compilation for all lengths.

It refuses to know options, buckets and graphs. Trap: torch gives a function up after some recompilations and runs it
eagerly from then on, without an error. Here each layer is one whole graph or an error, and reaching the limit is one.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch
import torch._dynamo
import torch.fx.experimental._config as shape_config
from torch import Tensor, nn
from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException
from transformers.modeling_layers import GradientCheckpointingLayer

from decider.errors import EngineError, ModelError, first_line
from decider.model.head import LabelHead
from decider.model.load import LoadedModel
from decider.ops.delta_rule import close_delta_rules
from decider.run.forward import make_forward

# A model has a few kinds of layers, and each is compiled for one row and for several: 2 graphs of Qwen3, 4 of
# Qwen3.5. Layers or shapes that do not share compiled code are soon at the limit.
COMPILATIONS_LIMIT = 32

# What is patched below belongs to the process; one compiling call at a time has it changed.
_COMPILING = threading.RLock()


class CompiledForward:
    """A `Forward` whose first calls compile; `compile_forward` makes it. Any thread may call it."""

    def __init__(self, loaded: LoadedModel, head: LabelHead, backend: str) -> None:
        self._name = loaded.name
        self._forward = make_forward(loaded, head)
        self._backend = _Backend(backend)
        run: Callable[..., Any] = torch.compile(_own(_run_layer), backend=self._backend, fullgraph=True, dynamic=True)
        for layer in _decoder_layers(loaded):
            # On the module, not its class, which other models have too.
            vars(layer)["forward"] = functools.partial(run, layer)

    @property
    def compilations(self) -> int:
        """How many graphs were compiled up to now."""
        return self._backend.compilations

    def seal(self) -> None:
        """From now on a call that would compile raises EngineError. Calling it again does nothing."""
        self._backend.sealed = True

    @torch.inference_mode()
    def __call__(self, input_ids: Tensor, slots: Tensor) -> Tensor:
        """See `Forward`. Raises EngineError for a layer that is no single graph, at the limit, and to keep the seal."""
        try:
            if self._backend.sealed:
                return self._forward(input_ids, slots)
            with _COMPILING, _limits():
                logits = self._forward(input_ids, slots)
        except (TorchDynamoException, FailOnRecompileLimitHit) as error:
            raise EngineError(self._explain(error, f"{input_ids.shape[0]} × {input_ids.shape[1]}")) from error
        if not self.compilations:
            raise EngineError(
                f"torch compiled nothing of {self._name!r}: TORCH_COMPILE_DISABLE or a stance forbids it; undo that, "
                "or leave the option compile off"
            )
        return logits

    def _explain(self, error: Exception, shape: str) -> str:
        if self._backend.sealed:
            return (
                f"{shape} (rows × tokens) would compile {self._name!r} after the seal; warm up with such a shape, or "
                "run it uncompiled"
            )
        if isinstance(error, FailOnRecompileLimitHit):
            return (
                f"{self._name!r} was compiled {self.compilations} times, the limit, and {shape} (rows × tokens) wants "
                "one more: its layers or shapes do not share compiled code; leave the option compile off"
            )
        # A code generator's own error comes wrapped in one that names the generator first.
        reason = getattr(error, "inner_exception", error)
        return (
            f"a decoder layer of {self._name!r} does not compile as one graph: {first_line(reason):.160} "
            f"({type(reason).__name__}); leave the option compile off"
        )


def compile_forward(loaded: LoadedModel, head: LabelHead, *, backend: str = "inductor") -> CompiledForward:
    """Set the decoder layers of `loaded`, a twin made for this alone, to run compiled by `backend`.

    Embedding, masks, rotary tables, final norm and head stay uncompiled. Call it within `no_packed_sequences`, or
    transformers may make mask tensors, which are compiled for too. Raises ModelError without decoder layers.
    """
    close_delta_rules(loaded.module)
    return CompiledForward(loaded, head, backend)


class _Backend:
    """Counts compilations, and refuses them once sealed. torch keeps it for ever, so it must not hold the model."""

    def __init__(self, name: str) -> None:
        self.compilations = 0
        self.sealed = False
        self._compile: Callable[..., Any] = torch._dynamo.lookup_backend(name)
        # Graphs are ours to capture; inductor's own would be captured at the first calls, after the seal too.
        self._options = {"config_patches": {"triton.cudagraphs": False}} if name == "inductor" else {}

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        if self.sealed:
            raise EngineError("sealed")
        compiled: Callable[..., Any] = self._compile(graph, inputs, **self._options)
        self.compilations += 1
        return compiled


def _run_layer(layer: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """What is compiled, with the layer as an argument: layers of one kind then share the code."""
    return type(layer).forward(layer, *args, **kwargs)


def _own(function: Callable[..., Any]) -> Callable[..., Any]:
    """A copy with a code object and names of its own: torch keeps what it compiles, and its count, with them."""
    assert isinstance(function, FunctionType)
    names = {"__name__": function.__module__, "__builtins__": function.__globals__["__builtins__"]}
    return FunctionType(function.__code__.replace(), names, function.__name__)


def _decoder_layers(loaded: LoadedModel) -> list[nn.Module]:
    """The outermost layers of the text decoder. Raises ModelError if it has none that transformers marks as layers."""

    def outermost(module: nn.Module) -> Iterator[nn.Module]:
        for child in module.children():
            if isinstance(child, GradientCheckpointingLayer):
                yield child
            else:
                yield from outermost(child)

    layers = list(outermost(loaded.module.get_decoder()))
    if not layers:
        raise ModelError(
            f"{loaded.name!r} ({loaded.model_type}) has no decoder layers that can be compiled; leave the option "
            "compile off"
        )
    return layers


@contextmanager
def _limits() -> Iterator[None]:
    """The limits of recompilation, and sizes that happen to be equal are not taken for the same one."""
    limits = torch._dynamo.config.patch(
        recompile_limit=COMPILATIONS_LIMIT,
        accumulated_recompile_limit=COMPILATIONS_LIMIT,
        fail_on_recompile_limit_hit=True,
        suppress_errors=False,
    )
    with limits, shape_config.patch(use_duck_shape=False):  # type: ignore[attr-defined]
        yield
