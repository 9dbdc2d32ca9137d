"""The backend "eqsat" of torch.compile: each traced graph optimised, or left to PyTorch with a reason."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext, tracing
from torch.utils._python_dispatch import _disable_current_modes

from eqsat.errors import EqsatError, UsageError
from eqsat.options.options import Options
from eqsat.pytorch.traced import FallbackWarning, Traced, UntraceableError
from eqsat.run import Opened

#: A compiled graph: called with its arguments, or with a list of them that it empties.
Compiled: TypeAlias = Callable[..., Any]


def eqsat_backend(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Compiled:
    """Compile a graph that TorchDynamo traced; `options` are those of `eqsat.optimize`.

    Only inference is optimised: where gradients are wanted, where the graph draws random numbers, or where something of
    it is unknown, PyTorch runs it as it is and a FallbackWarning says why. UsageError for an option that is unknown.
    """
    if mode not in (None, "default"):
        raise UsageError(
            f"mode = {mode!r}", where="torch.compile", expected="options={…}, the backend 'eqsat' has no modes"
        )
    checked = Options.of("optimize", dict(options or {}))
    if checked.buckets is not None:
        raise UsageError("buckets with torch.compile", expected="dynamic=True, or eqsat.optimize(…, buckets=…)")
    weights = _weights(module, example_inputs)

    def infer(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
        known = TracingContext.get().fw_metadata
        constant = {i: w for i, w in weights.items() if not known.input_info[i].mutates_data}
        # AOTAutograd compiles among fake tensors; torch.export has to begin outside of them.
        with _disable_current_modes(), tracing(None):
            return _compiled(graph, inputs, constant, checked)

    def train(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
        return _fallback(graph, "gradients are wanted; call it under torch.no_grad() or torch.inference_mode()")

    compile_both = aot_autograd(fw_compiler=train, bw_compiler=_plain, inference_compiler=infer)
    compiled: Compiled = compile_both(module, example_inputs)
    return compiled


def _weights(module: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> dict[int, torch.Tensor]:
    """The parameters and buffers among the inputs of a graph by position, as far as changes of them can be seen."""
    places = [node for node in module.graph.nodes if node.op == "placeholder"]
    return {
        i: value
        for i, (node, value) in enumerate(zip(places, example_inputs, strict=True))
        if "_dynamo_static_input_type" in node.meta.get("tensor_dict", {})
        and isinstance(value, torch.Tensor)
        and not value.is_inference()
    }


def _compiled(
    graph: torch.fx.GraphModule, inputs: Sequence[Any], weights: Mapping[int, torch.Tensor], options: Options
) -> Compiled:
    try:
        traced = Traced.of(graph, inputs, weights)
        result = Opened.of(traced.read(), options).optimised()
        if result.report.failure:
            return _fallback(graph, result.report.failure)
        runner = traced.runner(result)
    except UntraceableError as reason:
        return _fallback(graph, str(reason))
    except EqsatError as error:
        return _fallback(graph, str(error).replace("\n", ";"))
    return _boxed(runner)


def _fallback(graph: torch.fx.GraphModule, reason: str) -> Compiled:
    count = sum(node.op.startswith("call_") for node in graph.graph.nodes)
    warnings.warn(f"PyTorch runs a graph of {count} operations as it is: {reason}", FallbackWarning, stacklevel=2)
    return _plain(graph, ())


def _plain(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return _boxed(graph.forward)


def _boxed(function: Compiled) -> Compiled:
    boxed: Compiled = make_boxed_func(function)
    return boxed
