"""Comprehensions as an operator of PyTorch's, which torch.compile and torch.export keep in their graphs.

The operator is passed the text of the function that it calls, and how it is computed: graphs that PyTorch keeps in its
caches or in files mean the same in every process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

from eqsat.language.comprehension.calls import DOMAIN, MAKERS, NAME, given_at, listed
from eqsat.language.pytorch.tensors import tensor_of
from eqsat.language.terms.dims import evaluate

#: Arguments are tensors, integers and floats; `places` are their numbers in the call, or their names, in this order.
_SCHEMA = "(str source, str options, str[] places, Tensor[] tensors, SymInt[] integers, float[] floats) -> Tensor[]"


def call_in_graph(
    source: str, options: str, arguments: Sequence[Any], named: Mapping[str, Any], out: Any = None
) -> Any:
    """The results of a call that PyTorch traces: of tensors, or of arrays that it traces as such.

    `source` defines one function; `options` are "" where NumPy computes it, else those of its kernel and free sizes.
    """
    given = {**{str(number): value for number, value in enumerate(arguments)}, **named}
    floats = {place: value for place, value in given.items() if isinstance(value, float)}
    integers = {
        place: value for place, value in given.items() if isinstance(value, int) and not isinstance(value, bool)
    }
    numbers = {**integers, **floats}
    tensors = {place: torch.as_tensor(value) for place, value in given.items() if place not in numbers}
    results = _call(
        source,
        options,
        [*tensors, *numbers],
        list(tensors.values()),
        list(integers.values()),
        list(floats.values()),
    )
    if out is not None:
        return _written(out, results)
    return results[0] if len(results) == 1 else tuple(results)


def _written(out: Any, results: Sequence[torch.Tensor]) -> Any:
    targets = listed(out)
    fits = len(targets) == len(results) and all(
        isinstance(one, torch.Tensor) and one.shape == made.shape and one.dtype == made.dtype
        for one, made in zip(targets, results, strict=False)
    )
    # An error of a class of one's own cannot be raised in what is traced.
    torch._check(
        fits,
        lambda: (
            "out: tensors that do not fit the results; expected: tensors of their shapes and element types; make them "
            "by prepare_outputs, outside of what is compiled"
        ),
    )
    for one, made in zip(targets, results, strict=True):
        one.copy_(made)
    return out


@torch.library.custom_op("eqsat::comprehension", mutates_args=(), schema=_SCHEMA)  # type: ignore[untyped-decorator]
def _call(
    source: str,
    options: str,
    places: Sequence[str],
    tensors: Sequence[torch.Tensor],
    integers: Sequence[int],
    floats: Sequence[float],
) -> list[torch.Tensor]:
    given = given_at(_function(source), places, [*tensors, *integers, *floats])
    with torch.no_grad():
        return listed(_callable(source, options)(**given))


@_call.register_fake  # type: ignore[untyped-decorator]
def _made(
    source: str,
    options: str,
    places: Sequence[str],
    tensors: Sequence[torch.Tensor],
    integers: Sequence[int],
    floats: Sequence[float],
) -> list[torch.Tensor]:
    function = _function(source)
    given = given_at(function, places, [*tensors, *integers, *floats])
    shapes = _shapes(function, given)
    device = tensors[0].device if tensors else torch.device("cpu")
    return [
        torch.empty(shapes[name], dtype=tensor_of(np.empty(0, function.types[name].numpy)).dtype, device=device)
        for name in function.results
    ]


def _shapes(function: Any, given: Mapping[str, Any]) -> Mapping[str, Sequence[Any]]:
    """The shapes of the results, in sizes that PyTorch leaves open where they are and the function is of any size."""
    dims = {name: tuple(getattr(given[name], "shape", ())) for name in function.parameters}
    is_open = any(not isinstance(dim, int) for shape in dims.values() for dim in shape)
    symbolic = function.symbolic
    if is_open and symbolic is not None:
        sizes = _sizes(function.scope, dims)
        return {name: [evaluate(dim, sizes) for dim in symbolic.shapes[name]] for name in function.results}
    scalars = {name: int(given[name]) for name in function.needs}
    inferred = function.inferred({name: tuple(map(int, shape)) for name, shape in dims.items()}, scalars)
    shapes: Mapping[str, Sequence[Any]] = inferred.shapes
    return shapes


def _sizes(scope: Any, dims: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """The sizes that parameters name, of their axes."""
    found: dict[str, Any] = {}
    for one in scope.function.parameters:
        for extent, dim in zip(one.extents, dims[one.name], strict=True):
            if isinstance(extent, str):
                found.setdefault(extent, dim)
    return found


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Sequence[torch.Tensor]) -> None:
    ctx.source, ctx.options, ctx.places, tensors, ctx.integers, ctx.floats = inputs
    ctx.of_floats = [one.is_floating_point() for one in output]
    ctx.save_for_backward(*tensors)


def _back(ctx: Any, above: Sequence[torch.Tensor | None]) -> tuple[Any, ...]:
    """The gradients of tensors: a call of the gradient of the function, by the same options."""
    function = _function(ctx.source)
    given = given_at(function, ctx.places, [*ctx.saved_tensors, *ctx.integers, *ctx.floats])
    parameters = dict(zip(map(str, range(len(function.parameters))), function.parameters, strict=True))
    asked = ctx.needs_input_grad[3]
    wanted = [parameters.get(one, one) for one, needed in zip(ctx.places, asked, strict=False) if needed]
    passed = [given[name] for name in function.parameters]
    passed += [one for one, is_float in zip(above, ctx.of_floats, strict=True) if is_float]
    made = call_in_graph(_gradient_source(ctx.source, tuple(wanted)), ctx.options, passed, {})
    found = iter(made if isinstance(made, tuple) else (made,))
    gradients = [next(found) if needed else None for needed in asked]
    # PyTorch takes an empty list for one of tensors, which has an empty list of gradients.
    return None, None, None, gradients, *(None if one else [] for one in (ctx.integers, ctx.floats))


_call.register_autograd(_back, setup_context=_keep)


@cache
def _function(source: str) -> Any:
    return MAKERS["function"](source)


@cache
def _gradient_source(source: str, names: tuple[str, ...]) -> str:
    gradient: str = MAKERS["gradient"](_function(source), names).source
    return gradient


@cache
def _callable(source: str, options: str) -> Callable[..., Any]:
    called: Callable[..., Any] = _function(source)
    return MAKERS["kernel"](called, options) if options else called


def with_nodes(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """A program in which each call of a comprehension is a node of ONNX, of a domain of ours."""
    call = torch.ops.eqsat.comprehension.default
    if all(node.target is not call for node in program.graph.nodes):
        return program
    return program.run_decompositions({call: _as_node})


def _as_node(
    source: str,
    options: str,
    places: Sequence[str],
    tensors: Sequence[torch.Tensor],
    integers: Sequence[int],
    floats: Sequence[float],
) -> Sequence[torch.Tensor]:
    """A call as a node; how it is computed is left to who reads it."""
    made = _made(source, options, places, tensors, integers, floats)
    numbers = dict(zip(places[len(tensors) :], [*map(int, integers), *floats], strict=True))
    attributes = {
        "source": _function(source).source,
        "places": list(places[: len(tensors)]),
        "numbers": json.dumps(numbers),
    }
    nodes: Sequence[torch.Tensor] = torch.onnx.ops.symbolic_multi_out(
        f"{DOMAIN}::{NAME}",
        tensors,
        attributes,
        dtypes=[one.dtype for one in made],
        shapes=[one.shape for one in made],
        version=1,
    )
    return nodes
