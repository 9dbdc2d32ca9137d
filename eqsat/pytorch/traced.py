"""A graph that AOTAutograd traced, with weights as constants and sizes read from tensors."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch

from eqsat.language.pytorch.exporting import exported, onnx_program
from eqsat.language.pytorch.onnx_program import graph_of
from eqsat.language.pytorch.tensors import array_of, tensor_of
from eqsat.language.terms.graph import Graph
from eqsat.language.terms.types import TensorType
from eqsat.report.result import Result

_NAME = "torch.compile"
_VERSION = attrgetter("_version")


class FallbackWarning(UserWarning):
    """A graph that is left to PyTorch, with the reason."""


class UntraceableError(Exception):
    """A graph that is left to PyTorch."""


@dataclass(frozen=True)
class Traced:
    """A graph of ATen operators and the parts of its calls.

    `weights` are the tensors at positions that hold the same one in every call. `sizes` says at which position and axis
    the size stands that another position passes as a number. `computed` are the outputs that the graph computes, each
    once.
    """

    graph: torch.fx.GraphModule
    inputs: tuple[Any, ...]
    weights: Mapping[int, torch.Tensor]
    sizes: Mapping[int, tuple[int, int]]
    outputs: tuple[Any, ...]
    computed: tuple[Any, ...]

    @classmethod
    def of(cls, graph: torch.fx.GraphModule, inputs: Sequence[Any], weights: Mapping[int, torch.Tensor]) -> Traced:
        """A traced graph; UntraceableError where its inputs or outputs are of a kind that no graph of tensors has."""
        shapes = {i: tuple(v.shape) for i, v in enumerate(inputs) if isinstance(v, torch.Tensor)}
        if any(shapes.get(i) != tuple(w.shape) for i, w in weights.items()):
            raise UntraceableError("its weights are not where they were when it was traced")
        devices = {v.device.type for v in inputs if isinstance(v, torch.Tensor)}
        if devices - {"cpu"}:
            raise UntraceableError(f"its tensors are on {', '.join(sorted(devices))}, and this backend runs on the CPU")
        sizes = {}
        for i, value in enumerate(inputs):
            if not isinstance(value, torch.Tensor):
                sizes[i] = _place_of(value, shapes, weights)
        (returned,) = next(node for node in graph.graph.nodes if node.op == "output").args
        outputs = tuple(returned)
        strange = [o for o in outputs if isinstance(o, torch.fx.Node) and not isinstance(o.meta["val"], torch.Tensor)]
        if strange or any(not isinstance(o, torch.fx.Node) and o is not None for o in outputs):
            raise UntraceableError("it returns numbers besides tensors")
        computed = dict.fromkeys(o for o in outputs if o is not None and o.op != "placeholder")
        if not computed:
            raise UntraceableError("it computes no tensor")
        return cls(graph, tuple(inputs), dict(weights), sizes, outputs, tuple(computed))

    @property
    def tensors(self) -> list[int]:
        """The positions of tensors that a call passes anew."""
        return [i for i, v in enumerate(self.inputs) if isinstance(v, torch.Tensor) and i not in self.weights]

    def read(self) -> Graph:
        """The graph of it; ImportModelError where that cannot be had, UntraceableError where a size got fixed."""
        examples = [_example(self.inputs[i]) for i in self.tensors]
        varying = [
            {axis: torch.export.Dim.AUTO for axis, size in enumerate(self.inputs[i].shape) if not _is_known(size)}
            for i in self.tensors
        ]
        program = exported(_Module(self), tuple(examples), (tuple(varying),))
        read = graph_of(onnx_program(program, _NAME), _NAME)
        for name, axes in zip(read.inputs, varying, strict=True):
            type = read.type(name)
            if isinstance(type, TensorType) and any(isinstance(type.dims[axis], int) for axis in axes):
                raise UntraceableError("a size that may vary became fixed when it was exported")
        return read

    def runner(self, result: Result) -> Any:
        """A function of the graph's arguments that runs the optimised graph.

        Where a weight is another tensor than before, or was changed in place, PyTorch runs the graph from then on.
        """
        program = result.compile()
        names, positions = list(result.graph.inputs), self.tensors
        places_of_weights = tuple(self.weights)
        seen = _state(self.weights.values())
        orders = {o: _order(o.meta["val"]) for o in self.computed}
        made_by = dict(zip(self.computed, result.graph.outputs, strict=True))
        places = [n for n in self.graph.graph.nodes if n.op == "placeholder"]
        passed = {n: i for i, n in enumerate(places)}
        stale = False

        def run(*args: Any) -> tuple[Any, ...]:
            nonlocal stale
            if not stale and _state([args[i] for i in places_of_weights]) != seen:
                stale = True
                warnings.warn("weights changed: PyTorch runs the graph from now on", FallbackWarning, stacklevel=2)
            if stale:
                unchanged: tuple[Any, ...] = self.graph.forward(*args)
                return unchanged
            made = program.run({n: array_of(args[i]) for n, i in zip(names, positions, strict=True)})
            tensors = {o: _ordered(tensor_of(made[name]), orders[o]) for o, name in made_by.items()}
            return tuple(None if o is None else tensors[o] if o in tensors else args[passed[o]] for o in self.outputs)

        return run


class _Module(torch.nn.Module):  # type: ignore[misc]  # torch is no dependency of the type checker
    """A traced graph as a module of its varying tensors, which returns a tuple of those it computes."""

    def __init__(self, traced: Traced) -> None:
        super().__init__()
        self.traced = traced
        for i, weight in traced.weights.items():
            self.register_buffer(f"weight_{i}", weight.detach())
        self.eval()

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The outputs, each once."""
        traced = self.traced
        args: dict[int, Any] = dict(zip(traced.tensors, tensors, strict=True))
        args |= {i: getattr(self, f"weight_{i}") for i in traced.weights}
        args |= {i: args[at].shape[axis] for i, (at, axis) in traced.sizes.items()}
        made = traced.graph(*(args[i] for i in range(len(args))))
        by_node = dict(zip(traced.outputs, made, strict=True))
        return tuple(by_node[o] for o in traced.computed)


def _place_of(
    number: Any, shapes: Mapping[int, tuple[Any, ...]], weights: Mapping[int, torch.Tensor]
) -> tuple[int, int]:
    """The position and the axis of a tensor at which a size stands."""
    if isinstance(number, torch.SymInt):
        for i, shape in shapes.items():
            for axis, size in enumerate(shape):
                if i not in weights and isinstance(size, torch.SymInt) and size.node.expr == number.node.expr:
                    return i, axis
    raise UntraceableError(f"its argument {number} is no tensor and no tensor's size")


def _is_known(size: Any) -> bool:
    return not isinstance(size, torch.SymInt) or size.node.expr.is_number


def _example(value: torch.Tensor) -> torch.Tensor:
    """Zeros of a fake tensor's type and strides, at the sizes that it was traced with."""
    shape = [_hint(s) for s in value.shape]
    return torch.empty_strided(shape, [_hint(s) for s in value.stride()], dtype=value.dtype).zero_()


def _hint(size: Any) -> int:
    return int(size.node.hint) if isinstance(size, torch.SymInt) else int(size)


def _state(tensors: Collection[torch.Tensor]) -> tuple[list[Any], ...]:
    """The addresses, versions and strides of tensors, which change with their elements; asked in each call."""
    kind = torch.Tensor
    return [*map(kind.data_ptr, tensors)], [*map(_VERSION, tensors)], [*map(kind.stride, tensors)]


def _order(value: torch.Tensor) -> tuple[int, ...] | None:
    """The axes of a tensor from the outermost in memory to the innermost; None for row-major order."""
    strides = [_hint(s) for s in value.stride()]
    order = tuple(sorted(range(len(strides)), key=lambda axis: (-strides[axis], axis)))
    sizes = [_hint(s) for s in value.shape]
    matters = [axis for axis in order if sizes[axis] != 1]
    return None if matters == sorted(matters) else order


def _ordered(tensor: torch.Tensor, order: tuple[int, ...] | None) -> torch.Tensor:
    """The same tensor with its axes in this order in memory, which code after the graph may rest on."""
    if order is None:
        return tensor
    back = [order.index(axis) for axis in range(len(order))]
    return tensor.permute(order).contiguous().permute(back)
