"""Graphs on OpenVINO's CPU plugin."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from eqsat.errors import BackendError, first_line
from eqsat.language.terms import DType, Graph, Node, TensorType
from eqsat.runtime.inputs import checked_inputs
from eqsat.runtime.threads import check_threads
from eqsat.system.deadline import current

if TYPE_CHECKING:
    from onnx import ModelProto

#: Above this many bytes of constants a model goes by a file, which OpenVINO maps: a protobuf message ends at 2 GiB.
COPIED_BYTES = 1 << 28
#: Beginnings of lines of errors that say where, not what.
_WHERE = ("Exception from", "Check '", "FrontEnd API failed", "Model wasn't", "Summary:", "While ")
#: Integers beyond these are lost where OpenVINO keeps 64 bits in 32.
_LEAST, _MOST = -(1 << 31), (1 << 31) - 1
#: The names in OpenVINO of element types that NumPy knows only by a package of its own.
_FOREIGN = {DType.BFLOAT16: "bf16"}


class OpenVinoBackend:
    """OpenVINO for one request at a time, in the element types that a graph states, without approximations of its own.

    Left to itself it computes float32 in bfloat16 where the processor can: lower precisions are what a graph says. Its
    CPU plugin keeps integers of 64 bits in 32, and so is no place for larger ones.
    """

    name = "openvino"

    def available(self) -> str | None:
        """None where openvino is installed."""
        if importlib.util.find_spec("openvino") is None:
            return "openvino is not installed; pip install 'eqsat[openvino]'"
        return None

    def compile(self, graph: Graph, *, threads: int | None = None) -> OpenVinoProgram:
        """A request that runs the graph; BackendError where OpenVINO refuses it."""
        from eqsat.language.onnx.write.exporter import save, to_model

        tensors = ((value, type) for value, type in graph.types.items() if isinstance(type, TensorType))
        double = next((value for value, type in tensors if type.dtype is DType.FLOAT64), None)
        if double is not None:
            raise BackendError(
                f"OpenVINO computes float64 in float32, and {double!r} is float64",
                where=graph.name,
                expected="floats of at most 32 bits",
                remedy="run it on the backend 'onnxruntime'",
            )
        if (filtered := next((n for n in graph.nodes if _has_channel_scales(graph, n)), None)) is not None:
            raise BackendError(
                f"OpenVINO reads the scales of QLinearConv along another axis: {filtered.describe()}",
                where=graph.name,
                expected="one scale for all filters of a QLinearConv",
                remedy="quantised='qdq' writes scales of channels that it reads",
            )
        if sum(c.nbytes for c in graph.constants.values()) <= COPIED_BYTES:
            return OpenVinoProgram(graph, compiled(to_model(graph), threads=threads, where=graph.name))
        with TemporaryDirectory(prefix="eqsat-openvino-") as folder:
            save(graph, path := Path(folder) / "model.onnx")
            return OpenVinoProgram(graph, compiled(path, threads=threads, where=graph.name))


def _has_channel_scales(graph: Graph, node: Node) -> bool:
    """Return whether a node is a quantised convolution with a scale for each channel of the filters."""
    scale = graph.type(node.inputs[4] or "") if node.op == "qlinear_conv" else None
    return isinstance(scale, TensorType) and scale.shape not in ((), (1,))


class OpenVinoProgram:
    """A graph compiled by OpenVINO; `compiled` is its CompiledModel."""

    def __init__(self, graph: Graph, compiled: Any) -> None:
        self.graph = graph
        self.compiled = compiled
        self._request = compiled.create_infer_request()
        self._ports = {name: compiled.output(name) for name in graph.outputs}
        # Inputs that nothing reads have no port.
        self._read = frozenset(name for port in compiled.inputs for name in port.names)

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        """The outputs by name for inputs by name, as `run` has it."""
        return self.run(inputs)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name; BackendError for inputs that do not fit, or where OpenVINO fails."""
        # Arrays are read in place: two copies of an image take a twentieth of the time of a small network.
        given = checked_inputs(self.graph, inputs)
        placed = {
            name: np.require(array, requirements=["C", "W"]) for name, array in given.items() if name in self._read
        }
        self._take({name: self._tensor(name, array, shared=True) for name, array in placed.items()})
        current().check(0)
        with current().ending(self._request.cancel):
            self._infer()
        return {name: self._array(name, port) for name, port in self._ports.items()}

    def bind(self, inputs: Mapping[str, Any]) -> Callable[[], object]:
        """A call that runs the graph on these inputs, checked once."""
        given = {name: np.array(array, order="C") for name, array in checked_inputs(self.graph, inputs).items()}
        tensors = {name: self._tensor(name, array) for name, array in given.items() if name in self._read}

        def call() -> None:
            # Other bindings of the program may have put tensors of theirs in place.
            self._take(tensors)
            self._infer()

        return call

    def profile(self) -> list[tuple[str, str, float]]:
        """The kernels of the last run with their kinds and seconds, where the program was compiled to be profiled."""
        return [
            (info.node_type, info.exec_type, info.real_time.total_seconds())
            for info in self._request.profiling_info
            if info.status == info.Status.EXECUTED
        ]

    def _take(self, tensors: Mapping[str, Any]) -> None:
        for name, tensor in tensors.items():
            self._request.set_tensor(name, tensor)

    def _tensor(self, name: str, data: Any, *, shared: bool = False) -> Any:
        """An input as OpenVINO takes it; where it is `shared`, in the memory of `data`, which no tensor keeps alive."""
        declared = self.graph.type(name)
        long = data.dtype.kind in "iu" and data.itemsize == 8 and data.size
        if long and not _LEAST <= data.min() <= data.max() <= _MOST:
            raise BackendError(
                f"input {name!r} has elements that 32 bits do not hold, in which OpenVINO keeps integers",
                where=self.graph.name,
                expected=f"integers from {_LEAST} to {_MOST}",
                remedy="run it on the backend 'onnxruntime'",
            )
        if isinstance(declared, TensorType) and data.dtype.isbuiltin == 1 and data.dtype.kind in "biuf":
            return _openvino().Tensor(data, shared_memory=shared and bool(data.size))
        if isinstance(declared, TensorType) and declared.dtype in _FOREIGN:
            # Made of an array and a type, a tensor would share memory that it does not keep.
            tensor = _openvino().Tensor(getattr(_openvino().Type, _FOREIGN[declared.dtype]), data.shape)
            bits = f"uint{8 * declared.dtype.itemsize}"
            tensor.data.view(bits)[...] = data.view(bits)
            return tensor
        raise BackendError(
            f"input {name!r} is {declared}",
            where=self.graph.name,
            expected="tensors of numbers on OpenVINO",
            remedy="run it on the backend 'onnxruntime'",
        )

    def _infer(self) -> None:
        try:
            self._request.infer(share_inputs=True, share_outputs=True)
        except Exception as error:
            current().check(0)
            raise BackendError(
                f"OpenVINO failed: {_said(error)}",
                where=self.graph.name,
                expected="inputs this graph can be run on",
                remedy="run it on the backend 'numpy', which names the operator that fails",
            ) from error

    def _array(self, name: str, port: Any) -> Any:
        tensor = self._request.get_tensor(port)
        declared = self.graph.type(self.graph.outputs[name])
        data = np.array(tensor.data)
        if isinstance(declared, TensorType) and declared.dtype in _FOREIGN:
            return data.view(declared.dtype.numpy)
        return data


def compiled(model: ModelProto | Path, *, threads: int | None = None, where: str = "", profiled: bool = False) -> Any:
    """A CompiledModel of a model or its file on the CPU; BackendError where OpenVINO refuses it.

    With `profiled` its requests keep the time of each kernel.
    """
    if threads is not None:
        check_threads(threads)
    current().check(0)
    settings: dict[str, Any] = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
        # Weights in integers are multiplied as they are stated, not by operands quantised in groups.
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
        # Threads that are bound to processors starve other programs on the machine.
        "ENABLE_CPU_PINNING": False,
        "PERF_COUNT": profiled,
    }
    if threads is not None:
        settings["INFERENCE_NUM_THREADS"] = threads
    try:
        core = core_of_process()
        read = core.read_model(model if isinstance(model, Path) else model.SerializeToString())
        return core.compile_model(read, "CPU", settings)
    except Exception as error:
        current().check(0)
        raise BackendError(
            f"OpenVINO refuses the graph: {_said(error)}",
            where=where,
            expected="operators and element types that OpenVINO implements",
            remedy="run it on the backend 'onnxruntime'",
        ) from error


@cache
def core_of_process() -> Any:
    """The one Core of this process, which is never given up.

    With its first model a Core takes the stack on which this thread handles signals, and gives back the one before it
    at its end: where one that came earlier has ended by then, that is gone, and Ctrl-C ends the process (2026.4).
    """
    return _openvino().Core()


def _openvino() -> Any:
    return importlib.import_module("openvino")


def _said(error: Exception) -> str:
    """The line of an error of OpenVINO's that says what is wrong: those before it name places in its source."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line.removeprefix("-- ") for line in lines if not line.startswith(_WHERE)]
    return telling[0] if telling else first_line(error)
