"""Calls of comprehensions that PyTorch records for its autograd, or traces to compile them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

#: The gradient of a call as a function: in parameters of these names.
GradientMaker = Callable[..., Callable[..., Any]]


def is_traced() -> bool:
    """True in what PyTorch traces for torch.compile or torch.export; torch is not imported for it."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.compiler.is_compiling())


def traced(source: str, options: str, arguments: Sequence[Any], named: Mapping[str, Any], out: Any = None) -> Any:
    """The results of a call that PyTorch traces: an operator of its graph, which calls the function later.

    `source` defines the function, `options` are those of its kernel and free sizes as JSON, "" where it has none.
    """
    from eqsat.language.pytorch.comprehensions import call_in_graph

    return call_in_graph(source, options, arguments, named, out)


def is_tensor(value: Any) -> bool:
    """True of a tensor of PyTorch, or of one of its parameters; torch is not imported for it."""
    return any(one.__module__ == "torch" and one.__name__ == "Tensor" for one in type(value).__mro__)


def is_recorded(values: Iterable[Any]) -> bool:
    """True of arguments with a tensor in which PyTorch asks for a gradient here, backward or forward."""
    tensors = [one for one in values if is_tensor(one)]
    if not tensors:
        return False
    import torch
    from torch.autograd import forward_ad

    asked = torch.is_grad_enabled() and any(one.requires_grad for one in tensors)
    return asked or any(forward_ad.unpack_dual(one).tangent is not None for one in tensors)


def mark_written(values: Iterable[Any]) -> None:
    """Tell PyTorch of tensors that were written to: what goes back through what they held is an error."""
    for one in values:
        if is_tensor(one):
            import torch

            torch.autograd.graph.increment_version(one)


def recorded(
    call: Callable[..., Any], gradient: GradientMaker, parameters: Sequence[str], given: Mapping[str, Any]
) -> Any:
    """The results of a call of arguments by name, of which PyTorch's autograd gets the gradients.

    `gradient(*names)` is called when they are asked for: a function of the parameters, in their order, and of the
    gradients of the results of floats. Gradients of gradients are those of that function. Arrays of NumPy are kept as
    they are now.
    """
    names = [*parameters, *(name for name in given if name not in parameters)]
    return _recorded_function().apply(call, gradient, tuple(names), *(given[name] for name in names))


@cache
def _recorded_function() -> Any:
    """The class by which autograd calls a comprehension and its gradient; made where torch is imported anyway."""
    import torch

    class RecordedCall(torch.autograd.Function):  # type: ignore[misc]
        """A call of a comprehension."""

        @staticmethod
        def forward(call: Callable[..., Any], gradient: GradientMaker, names: Sequence[str], *values: Any) -> Any:
            return call(**dict(zip(names, values, strict=True)))

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            _, ctx.gradient, ctx.names, *values = inputs
            results = output if isinstance(output, tuple) else (output,)
            ctx.floats = [one.is_floating_point() for one in results]
            ctx.mark_non_differentiable(
                *(one for one, is_float in zip(results, ctx.floats, strict=True) if not is_float)
            )
            ctx.save_for_backward(*(one for one in values if is_tensor(one)))
            ctx.others = [
                None if is_tensor(one) else np.array(one) if isinstance(one, np.ndarray) else one for one in values
            ]

        @staticmethod
        def backward(ctx: Any, *above: Any) -> Any:
            saved = iter(ctx.saved_tensors)
            values = [next(saved) if one is None else one for one in ctx.others]
            wanted = ctx.needs_input_grad[3:]
            names = [name for name, needed in zip(ctx.names, wanted, strict=True) if needed]
            given = [one.contiguous() for one, is_float in zip(above, ctx.floats, strict=True) if is_float]
            made = ctx.gradient(*names)(*values, *given)
            found = iter(made if isinstance(made, tuple) else (made,))
            return (None, None, None, *(next(found) if needed else None for needed in wanted))

    return RecordedCall
