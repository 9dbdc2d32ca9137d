"""Graphs on ONNX Runtime's CPU provider."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eqsat.errors import BackendError, first_line
from eqsat.language.terms import DType, Graph, TensorType
from eqsat.runtime.inputs import checked_inputs
from eqsat.runtime.onnxruntime.halves import FATAL, has_halves
from eqsat.runtime.onnxruntime.levels import DEFAULT_LEVEL, session_level
from eqsat.runtime.onnxruntime.rehearsal import rehearse
from eqsat.runtime.threads import check_threads
from eqsat.system.deadline import check, current

if TYPE_CHECKING:
    from onnx import ModelProto

#: Above this many bytes of constants ONNX Runtime reads them where they are: a protobuf message ends at 2 GiB, and
#: copies of gigabytes take seconds that nothing ends. Tensors smaller than `SHARED_BYTES` are copied all the same.
COPIED_BYTES, SHARED_BYTES = 1 << 28, 1 << 20

#: From so many nodes on a session may take seconds in which ONNX Runtime does not look whether it is to stop.
MANY_NODES = 5_000

#: Element types that ONNX Runtime keeps but NumPy knows only through ml_dtypes.
_FOREIGN = frozenset(d for d in DType if d is not DType.STRING and d.numpy.isbuiltin != 1)


class SessionBackend:
    """ONNX Runtime, by default at the optimisation level "all", its threads sleeping while they wait."""

    name = "onnxruntime"

    def available(self) -> str | None:
        """None where onnxruntime is installed."""
        if importlib.util.find_spec("onnxruntime") is None:
            return "onnxruntime is not installed"
        return None

    def compile(self, graph: Graph, *, threads: int | None = None, level: str = DEFAULT_LEVEL) -> SessionProgram:
        """A session that runs the graph, optimised at a level; BackendError where ONNX Runtime refuses it."""
        from eqsat.language.onnx.write.exporter import to_model

        if sum(c.nbytes for c in graph.constants.values()) <= COPIED_BYTES:
            return SessionProgram.of(graph, to_model(graph), threads=threads, level=level)
        model, held = _with_tensors_apart(graph)
        return SessionProgram.of(graph, model, threads=threads, held=held, level=level)


class SessionProgram:
    """A graph compiled by ONNX Runtime; `session` is its InferenceSession."""

    def __init__(self, graph: Graph, session: Any, held: Mapping[str, Any] | None = None) -> None:
        self.graph = graph
        self.session = session
        self._held = held  # ONNX Runtime reads these where they are
        self._options: Any = None
        self._order = [o.name for o in session.get_outputs()]
        values = (*graph.inputs, *graph.outputs.values())
        self._foreign = any(_foreign(graph, v) for v in values)

    @classmethod
    def of(
        cls,
        graph: Graph,
        model: ModelProto | Path,
        *,
        threads: int | None,
        held: Mapping[str, Any] | None = None,
        nodes: int = 0,
        level: str = DEFAULT_LEVEL,
    ) -> SessionProgram:
        """The program of a graph by its model, of so many nodes where that is a file; the arguments of `session`."""
        compiled = session(
            model, threads=threads, where=graph.name, held=held, nodes=nodes, halves=has_halves(graph), level=level
        )
        return cls(graph, compiled, held)

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        """The outputs by name for inputs by name, as `run` has it."""
        return self.run(inputs)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name; BackendError for inputs that do not fit, or where ONNX Runtime fails."""
        feeds = checked_inputs(self.graph, inputs)
        run = self._foreign_run if self._foreign else self._plain_run
        self.go_on()
        with current().ending(self.end):
            outputs = self._call(run, feeds)
        by_name = dict(zip(self._order, outputs, strict=True))
        return {name: by_name[name] for name in self.graph.outputs}

    def bind(self, inputs: Mapping[str, Any]) -> Callable[[], object]:
        """A call that runs the session on these inputs, checked once."""
        feeds = checked_inputs(self.graph, inputs)
        if self._foreign:
            values = {k: self._ort_value(k, v) for k, v in feeds.items()}
            return lambda: self._call(lambda f: self.session.run_with_ort_values(None, f, self._options), values)
        return lambda: self._call(self._plain_run, feeds)

    def end(self) -> None:
        """Ask a run that is going on to end, from another thread."""
        if self._options is not None:
            self._options.terminate = True

    def go_on(self) -> None:
        """Let runs finish, after `end`."""
        from onnxruntime import RunOptions

        self._options = RunOptions()

    def _call(self, run: Callable[[Any], list[Any]], feeds: Any) -> list[Any]:
        try:
            return run(feeds)
        except Exception as error:
            current().check(0)
            raise BackendError(
                f"ONNX Runtime failed: {first_line(error)}",
                where=self.graph.name,
                expected="inputs this graph can be run on",
                remedy="run it on the backend 'numpy', which names the operator that fails",
            ) from error

    def _plain_run(self, feeds: Mapping[str, Any]) -> list[Any]:
        outputs: list[Any] = self.session.run(self._order, dict(feeds), self._options)
        return outputs

    def _foreign_run(self, feeds: Mapping[str, Any]) -> list[Any]:
        values = {k: self._ort_value(k, v) for k, v in feeds.items()}
        outputs = self.session.run_with_ort_values(self._order, values, self._options)
        return [self._array(name, value) for name, value in zip(self._order, outputs, strict=True)]

    def _ort_value(self, name: str, array: Any) -> Any:
        declared = self.graph.type(name)
        if not isinstance(declared, TensorType):
            raise BackendError(
                f"input {name!r} is no tensor",
                where=self.graph.name,
                expected="tensors alone in a graph with elements of bfloat16 or narrower floats",
                remedy="run it on the backend 'numpy'",
            )
        return ort_value(array, declared.dtype)

    def _array(self, name: str, value: Any) -> Any:
        declared = self.graph.type(self.graph.outputs[name])
        if not isinstance(declared, TensorType) or declared.dtype not in _FOREIGN:
            return value.numpy()
        shape = tuple(value.shape())
        count = int(np.prod(shape, dtype=np.int64)) * declared.dtype.itemsize
        data = ctypes.string_at(value.data_ptr(), count) if count else b""
        return np.frombuffer(data, declared.dtype.numpy).reshape(shape)


def session(
    model: ModelProto | Path,
    *,
    threads: int | None = None,
    where: str = "",
    held: Mapping[str, Any] | None = None,
    nodes: int = 0,
    halves: bool = False,
    level: str = DEFAULT_LEVEL,
) -> Any:
    """An InferenceSession on the CPU at a level; BackendError where ONNX Runtime refuses the model.

    `held` are tensors that the model says it keeps elsewhere; they have to live as long as the session does. `nodes`
    are those of a model that is a file; `halves` says that a model has tensors of float16, on some of which a fusion of
    ONNX Runtime 1.31 ends the process: it is left out then. TimeUp where it is not ready when the deadline that it is
    made under is over: ONNX Runtime is then told to stop, and of many nodes, through which it goes on all the same, the
    session is first made in a process that can be ended.
    """
    import onnxruntime as ort

    if threads is not None:
        check_threads(threads)
    options = ort.SessionOptions()
    options.graph_optimization_level = session_level(level)
    options.intra_op_num_threads = threads or 0
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # Threads that spin while they wait starve every other session on the machine.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if held:
        options.add_external_initializers(list(held), list(held.values()))
    current().check(0)
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    if not held and (nodes if isinstance(model, Path) else len(model.graph.node)) >= MANY_NODES:
        rehearse(source, threads or 0, FATAL if halves else ())
    try:
        with current().ending(lambda: options.set_load_cancellation_flag(True)):
            return ort.InferenceSession(
                source, options, providers=["CPUExecutionProvider"], disabled_optimizers=FATAL if halves else None
            )
    except Exception as error:
        current().check(0)
        raise BackendError(
            f"ONNX Runtime refuses the graph: {first_line(error)}",
            where=where,
            expected="operators and element types that ONNX Runtime implements",
            remedy="run it on the backend 'numpy'",
        ) from error


def _with_tensors_apart(graph: Graph) -> tuple[ModelProto, dict[str, Any]]:
    """The model of a graph without its large tensors, and these as ONNX Runtime takes them, without a copy."""
    from onnx import TensorProto

    from eqsat.language.onnx.files.tensors import number_of, tensor_of
    from eqsat.language.onnx.write.exporter import assemble

    model, tensors = assemble(graph)
    held: dict[str, Any] = {}
    for name, constant in tensors.items():
        check()
        dtype = constant.type.dtype
        if constant.nbytes < SHARED_BYTES or dtype is DType.STRING or dtype in _FOREIGN:
            model.graph.initializer.append(tensor_of(name, constant))
            continue
        held[name] = ort_value(constant.array, dtype)
        stub = TensorProto(name=name, data_type=number_of(dtype), dims=constant.type.static)
        stub.data_location = TensorProto.EXTERNAL
        stub.external_data.add(key="location", value="held in memory")
        model.graph.initializer.append(stub)
    return model, held


def ort_value(array: Any, dtype: DType) -> Any:
    """An array as ONNX Runtime holds it; element types that NumPy does not know go by their bits."""
    from onnxruntime import OrtValue

    data = np.ascontiguousarray(array).reshape(np.shape(array))
    if dtype not in _FOREIGN:
        return OrtValue.ortvalue_from_numpy(data)
    from eqsat.language.onnx.files.tensors import number_of

    bits = data.view(f"uint{8 * dtype.itemsize}")
    return OrtValue.ortvalue_from_numpy_with_onnx_type(bits, number_of(dtype))


def _foreign(graph: Graph, value: str) -> bool:
    declared = graph.type(value)
    return isinstance(declared, TensorType) and declared.dtype in _FOREIGN
