"""Operators that have no kernel, run by their references."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eqsat.language.graphs.interpret import run_node
from eqsat.language.ops import spec
from eqsat.language.terms.types import TensorType
from eqsat.runtime.kernels.view import View
from eqsat.runtime.programs.launches import Fallback, Launch


def run_fallback(work: Fallback, launch: Launch, array: Callable[[View], Any], interpretation: Any) -> list[Any]:
    """The results of an operator by its reference, for those of its outputs that are used.

    `array` finds the elements of a view; `interpretation` is the arithmetic. Reads and writes of the launch are
    the operands that are there and the results that are used, in the node's order.
    """
    node = work.node
    reads, writes = iter(launch.reads), iter(launch.writes)
    views = [None if value is None else next(reads) for value in node.inputs]
    made_in = [next(writes) if value else None for value in node.outputs]
    operands = [None if view is None else array(view) for view in views]
    types = [None if view is None else _type(view) for view in views]
    inferred = spec(node.op).result_types(types, node.attrs)
    result_views = [*made_in, *[None] * (len(inferred) - len(made_in))]
    results = [t if v is None else _type(v) for t, v in zip(inferred, result_views, strict=True)]
    arrays = run_node(interpretation, node, operands, types, results)
    return [one for one, view in zip(arrays, result_views, strict=True) if view is not None]


def _type(view: View) -> TensorType:
    return TensorType(view.dtype, view.shape)
