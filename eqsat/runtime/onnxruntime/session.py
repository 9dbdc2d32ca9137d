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
from eqsat.runtime.onnxruntime.constants import check_constants
from eqsat.runtime.onnxruntime.halves import FATAL, has_halves
from eqsat.runtime.onnxruntime.levels import DEFAULT_LEVEL, session_level
from eqsat.runtime.onnxruntime.rehearsal import rehearse
from eqsat.runtime.threads import check_threads
from eqsat.system.deadline import current
from eqsat.system.heap import return_freed
from eqsat.system.mapped import release_mapped

if TYPE_CHECKING:
    from onnx import ModelProto

    from eqsat.language.onnx.files.apart import ModelApart
    from eqsat.language.onnx.files.reader import StoredModel

#: The folder from which a model in memory names the files of its tensors.
FOLDER = "session.model_external_initializers_file_folder_path"

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

    def compile(
        self, graph: Graph, *, threads: int | None = None, level: str = DEFAULT_LEVEL, opset: int | None = None
    ) -> SessionProgram:
        """A session that runs the graph, written at its own opset or another one, and optimised at a level.

        BackendError where ONNX Runtime refuses it.
        """
        from eqsat.language.onnx.files import apart
        from eqsat.language.onnx.write.exporter import assemble, to_model

        if sum(c.nbytes for c in graph.constants.values()) <= apart.COPIED_BYTES:
            return SessionProgram.of(graph, to_model(graph, opset), threads=threads, level=level)
        model = apart.with_tensors_apart(*assemble(graph, opset))
        return SessionProgram.of(graph, model, threads=threads, level=level)


class SessionProgram:
    """A graph compiled by ONNX Runtime; `session` is its InferenceSession."""

    def __init__(self, graph: Graph, session: Any) -> None:
        self.graph = graph
        self.session = session
        self._options: Any = None
        self._order = [o.name for o in session.get_outputs()]
        values = (*graph.inputs, *graph.outputs.values())
        self._foreign = any(_foreign(graph, v) for v in values)

    @classmethod
    def of(
        cls,
        graph: Graph,
        model: ModelProto | Path | ModelApart,
        *,
        threads: int | None,
        nodes: int = 0,
        level: str = DEFAULT_LEVEL,
    ) -> SessionProgram:
        """The program of a graph by its model, of so many nodes where that is a file; the arguments of `session`."""
        check_constants(graph)
        compiled = session(model, threads=threads, where=graph.name, nodes=nodes, halves=has_halves(graph), level=level)
        return cls(graph, compiled)

    @classmethod
    def of_given(
        cls,
        graph: Graph,
        given: ModelProto | Path | StoredModel,
        *,
        threads: int | None,
        nodes: int = 0,
        level: str = DEFAULT_LEVEL,
    ) -> SessionProgram:
        """The program of a graph by the model that was given for it, whose large tensors are read where they lie."""
        from eqsat.language.onnx.files.apart import given_apart

        weights = sum(c.nbytes for c in graph.constants.values())
        return cls.of(graph, given_apart(given, weights), threads=threads, nodes=nodes, level=level)

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
    model: ModelProto | Path | ModelApart,
    *,
    threads: int | None = None,
    where: str = "",
    nodes: int = 0,
    halves: bool = False,
    level: str = DEFAULT_LEVEL,
) -> Any:
    """An InferenceSession on the CPU at a level; BackendError where ONNX Runtime refuses the model.

    `nodes` are those of a model that is a file; `halves` says that a model has tensors of float16, on some of which a
    fusion of ONNX Runtime 1.31 ends the process: it is left out then. TimeUp where it is not ready when the deadline
    that it is made under is over: ONNX Runtime is then told to stop, and of many nodes, through which it goes on all
    the same, the session is first made in a process that can be ended.
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
    current().check(0)
    source, count, folder, held, tables = _opened(model, nodes)
    if folder:
        options.add_session_config_entry(FOLDER, folder)
    if held:
        options.add_external_initializers(list(held), list(held.values()))
    elif count >= MANY_NODES:
        rehearse(source, threads or 0, FATAL if halves else (), folder)
    for name, value in tables.items():
        options.add_initializer(name, value)
    # ONNX Runtime maps files itself, and pages that are mapped twice count twice.
    release_mapped()
    try:
        with current().ending(lambda: options.set_load_cancellation_flag(True)):
            made = ort.InferenceSession(
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
    made.tables = tables  # ONNX Runtime reads them for as long as the session lives
    if folder or held:
        return_freed()  # by ONNX Runtime: of the weights of convolutions it makes copies before it packs them
    return made


def _opened(
    model: ModelProto | Path | ModelApart, nodes: int
) -> tuple[str | bytes, int, str, dict[str, Any], dict[str, Any]]:
    """A model as ONNX Runtime takes it, its number of nodes, and the folder of its tensors.

    Then the tensors that are held in memory, and those that all sessions read where they are mapped.
    """
    if isinstance(model, Path):
        return str(model), nodes, "", {}, {}
    from eqsat.language.onnx.files.apart import ModelApart

    if not isinstance(model, ModelApart):
        return model.SerializeToString(), len(model.graph.node), "", {}, {}
    held, tables = (
        {name: ort_value(constant.array, constant.type.dtype) for name, constant in given.items()}
        for given in (model.held, model.tables)
    )
    folder = "" if model.folder is None else str(model.folder)
    return model.model.SerializeToString(), len(model.model.graph.node), folder, held, tables


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
