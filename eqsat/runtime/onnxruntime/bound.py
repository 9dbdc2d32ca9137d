"""A session of ONNX Runtime that reads and writes memory that stays where it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eqsat.errors import BackendError, ExportModelError, first_line
from eqsat.language.terms import Array, Graph
from eqsat.runtime.onnxruntime.session import SessionBackend


class BoundSession:
    """A graph as a session whose inputs and outputs are arrays of the caller's, in the order of the graph.

    Nothing is copied, but for arrays whose elements do not lie in order. The arrays live as long as the session does.
    BackendError where ONNX Runtime cannot be loaded or refuses the graph, for operators that ONNX has no form of, and
    for arrays of no elements or of types that it cannot bind.
    """

    def __init__(
        self, graph: Graph, inputs: Sequence[Array], outputs: Sequence[Array], threads: int | None = None
    ) -> None:
        for array in (*inputs, *outputs):
            if not array.size or array.dtype.isbuiltin != 1:  # 2 is a type of another package, as bfloat16 is
                raise BackendError(
                    f"a session cannot read or write elements of type {array.dtype}, {array.size} of them, in place",
                    where=graph.name,
                    expected="some elements, of a type that NumPy has itself",
                )
        self.graph = graph
        try:
            self._program = SessionBackend().compile(graph, threads=threads)
        except (ImportError, ExportModelError) as error:
            told = error.what if isinstance(error, ExportModelError) else first_line(error)
            raise BackendError(
                f"ONNX Runtime computes no part of it: {told}",
                where=graph.name,
                expected="onnxruntime, and operators that ONNX has",
                remedy="leave these launches to C",
            ) from error
        self._session = self._program.session
        self._binding = self._session.io_binding()
        self._reads = [(array, _in_order(array)) for array in inputs]
        self._writes = [(array, _in_order(array)) for array in outputs]
        for name, (_, array) in zip(graph.inputs, self._reads, strict=True):
            self._binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        for name, (_, array) in zip(graph.outputs, self._writes, strict=True):
            self._binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        self._copied_in = [pair for pair in self._reads if pair[0] is not pair[1]]
        self._copied_out = [pair for pair in self._writes if pair[0] is not pair[1]]

    def run(self) -> None:
        """Compute the outputs from what the inputs hold; BackendError where ONNX Runtime fails."""
        for given, bound in self._copied_in:
            bound[...] = given
        try:
            self._session.run_with_iobinding(self._binding)
        except Exception as error:
            raise BackendError(
                f"ONNX Runtime failed: {first_line(error)}",
                where=self.graph.name,
                expected="values that this region can be run on",
                remedy="run it on the backend 'numpy', which names the operator that fails",
            ) from error
        for given, bound in self._copied_out:
            given[...] = bound


def _in_order(array: Array) -> Array:
    """The array itself where its elements lie in order, else memory for a copy."""
    return array if array.flags.c_contiguous else np.empty(array.shape, array.dtype)
