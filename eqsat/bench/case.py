"""One model as all contenders are given it: static, in one element type, with inputs, exact outputs, and limits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

from eqsat.certify import relative_difference
from eqsat.costs.devices.device import Device
from eqsat.costs.kernels.applications import applications, is_free
from eqsat.costs.kernels.precision import is_product
from eqsat.costs.kernels.work import work_of
from eqsat.errors import UsageError, nearest
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.interpret import run
from eqsat.language.sizes.solve import sizing_of
from eqsat.language.terms import Attrs, Constant, DType, Graph, Node, TensorType
from eqsat.runtime.examples import example_inputs
from eqsat.runtime.programs.static import plain_plan, static_plan

#: Precisions of a comparison: an element type, or float32 with products formed in TF32.
PRECISIONS = ("float32", "tf32", "float16", "bfloat16")
#: Parts of eqsat that are optimised, by the name they are shown under.
FORMS = ("joint", "one after the other", "graph only", "layout only", "unoptimised")


def check_precision(given: str) -> None:
    """UsageError for a precision that there is not."""
    if given not in PRECISIONS:
        expected = "one of " + ", ".join(PRECISIONS)
        raise UsageError(f"precision = {given!r}", expected=expected, remedy=nearest(given, PRECISIONS))


@dataclass(frozen=True)
class HardwareLimits:
    """Least times that the hardware allows, in seconds: to move weights, inputs and outputs once, and for the
    arithmetic at its peak.
    """

    bytes: int
    flops: int
    memory_seconds: float
    arithmetic_seconds: float

    @property
    def seconds(self) -> float:
        """Neither can be undercut, and both may overlap."""
        return max(self.memory_seconds, self.arithmetic_seconds)


@dataclass(frozen=True)
class BenchCase:
    """A model on a device: its graph with every dim a number, in the element type that all contenders run it in.

    `given` is the same graph in the model's own element type. Products of float32 are formed in TF32 where `tf32`.
    """

    name: str
    given: Graph
    graph: Graph
    device: Device
    precision: str
    threads: int = 1
    seed: int = 0

    @staticmethod
    def of(
        graph: Graph, name: str, device: Device, precision: str, sizes: Mapping[str, int], threads: int = 1
    ) -> BenchCase:
        """The case of a graph as it was read; UsageError for a precision that there is not."""
        check_precision(precision)
        static = static_plan(plain_plan(graph), sizing_of(graph).near(sizes) or sizes).graph
        narrow = static if precision in ("float32", "tf32") else narrowed(static, DType.of(precision))
        return BenchCase(name, static, narrow, device, precision, threads)

    @property
    def tf32(self) -> bool:
        """True if products of float32 may be formed in TF32."""
        return self.precision == "tf32"

    @property
    def on_gpu(self) -> bool:
        """True if it is run on a GPU."""
        return bool(self.device.gpu)

    def inputs(self, draw: int) -> dict[str, Any]:
        """Random inputs, others for every draw."""
        return example_inputs(self.graph, {}, self.seed + draw)

    @cached_property
    def checked(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Inputs that nothing is timed on, and the outputs for them in float64 with the model's own weights."""
        inputs = self.inputs(1)
        wide = {n: np.asarray(a, np.float64) if DType.of(a.dtype).is_float else a for n, a in inputs.items()}
        return inputs, run(self.given, wide, Floats(wide=True))

    def error(self, outputs: Mapping[str, Any]) -> float:
        """The largest ‖out − ref‖ / ‖ref‖ of the outputs for the checked inputs."""
        _, exact = self.checked
        pairs = ((np.asarray(exact[n], np.float64), np.asarray(outputs[n]).astype(np.float64)) for n in exact)
        return max((relative_difference(ref, out) for ref, out in pairs), default=0.0)

    @cached_property
    def limits(self) -> HardwareLimits:
        """The physical limits of the graph as it stands, by the figures of the device."""
        graph, device = self.graph, self.device
        read = {v for node in graph.nodes for v in node.inputs if v is not None and v in graph.constants}
        moved = sum(graph.constants[v].nbytes for v in read)
        moved += sum(_bytes(graph.type(v)) for v in (*graph.inputs, *graph.outputs.values()))
        flops, arithmetic = 0, 0.0
        for node, operands, results, const in applications(graph):
            if is_free(node.op, operands, const):
                continue
            work = work_of(node.op, node.attrs, operands, results, const)
            peak = device.peak("tf32" if self.tf32 and is_product(node.op) else work.dtype)
            flops, arithmetic = flops + work.flops, arithmetic + work.flops / peak
        return HardwareLimits(moved, flops, moved / device.bandwidth, arithmetic)


def _bytes(type: object) -> int:
    if not isinstance(type, TensorType) or not type.is_static:
        return 0
    return math.prod(type.static) * type.dtype.itemsize


def narrowed(graph: Graph, dtype: DType) -> Graph:
    """A graph with float16 or bfloat16 wherever it has float32: inputs, constants, results and casts.

    Constants beyond the narrower type, such as the number that stands for minus infinity in a mask, are its extremes.

    >>> from eqsat.language.graphs.builder import Builder
    >>> g = Builder("g")
    >>> g.output("y", g.input("x", (2,)) + g.constant(np.float32([1, 2])))
    >>> str(narrowed(g.build(), DType.FLOAT16).type("x"))
    'float16[2]'
    """

    def narrow(type: Any) -> Any:
        return replace(type, dtype=dtype) if isinstance(type, TensorType) and type.dtype is DType.FLOAT32 else type

    def held(constant: Constant) -> Constant:
        if constant.type.dtype is not DType.FLOAT32:
            return constant
        most = float(ml_dtypes.finfo(dtype.numpy).max)
        array = constant.array
        return Constant.of(np.where(np.isinf(array), array, np.clip(array, -most, most)).astype(dtype.numpy), dtype)

    def node(given: Node) -> Node:
        changed = {k: dtype.value for k in ("to", "dtype") if given.attrs.get(k) == DType.FLOAT32.value}
        return replace(given, attrs=Attrs({**given.attrs, **changed})) if changed else given

    return replace(
        graph,
        nodes=tuple(map(node, graph.nodes)),
        constants={name: held(constant) for name, constant in graph.constants.items()},
        types={name: narrow(type) for name, type in graph.types.items()},
        origin=None,
    )
