"""Calls of comprehensions that the autograd of PyTorch records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

#: The gradient of a call as a function: in parameters of these names.
GradientMaker = Callable[..., Callable[..., Any]]


def is_tensor(value: Any) -> bool:
    """True of a tensor of PyTorch, or of one of its parameters; torch is not imported for it."""
    return any(one.__module__ == "torch" and one.__name__ == "Tensor" for one in type(value).__mro__)


def is_recorded(values: Sequence[Any]) -> bool:
    """True of arguments with a tensor in which PyTorch asks for a gradient here."""
    if not any(is_tensor(one) and one.requires_grad for one in values):
        return False
    import torch

    return bool(torch.is_grad_enabled())


def recorded(call: Callable[..., Any], gradient: GradientMaker, given: Mapping[str, Any]) -> Any:
    """The results of a call of arguments by name, of which PyTorch's autograd gets the gradients.

    `gradient(*names)` is called when they are asked for: a function of the parameters and of the gradients of the
    results of floats. Gradients of gradients are those of that function.
    """
    return _recorded_function().apply(call, gradient, tuple(given), *given.values())


@cache
def _recorded_function() -> Any:
    """The class by which autograd calls a comprehension and its gradient; made where torch is imported anyway."""
    import torch

    class RecordedCall(torch.autograd.Function):  # type: ignore[misc]
        """A call of a comprehension."""

        @staticmethod
        def forward(ctx: Any, call: Callable[..., Any], gradient: GradientMaker, names: Any, *values: Any) -> Any:
            made = call(**dict(zip(names, values, strict=True)))
            results = made if isinstance(made, tuple) else (made,)
            ctx.mark_non_differentiable(*(one for one in results if not one.is_floating_point()))
            ctx.save_for_backward(*(one for one in values if is_tensor(one)))
            ctx.others = [None if is_tensor(one) else one for one in values]
            ctx.gradient, ctx.names = gradient, names
            ctx.floats = [one.is_floating_point() for one in results]
            return made

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
