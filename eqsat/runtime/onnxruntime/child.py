"""A model on ONNX Runtime in a process of its own, where inputs that end the process cost nothing."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eqsat.errors import BackendError
from eqsat.language.terms import OPAQUE, Graph, TensorType
from eqsat.runtime.inputs import checked_inputs

if TYPE_CHECKING:
    from onnx import ModelProto

    from eqsat.language.onnx.files.reader import StoredModel

#: A run of more seconds than this is ended.
SECONDS = 30.0
#: The program of the process: make a session; for each line, run the inputs in that file and write one line with the
#: result.
_LOOP = """
import json
import sys
import numpy as np
import onnxruntime as ort

options = ort.SessionOptions()
options.intra_op_num_threads, options.log_severity_level = 1, 4
try:
    session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
    print("ok", flush=True)
except Exception as error:
    print("no " + (str(error).splitlines() or [""])[0], flush=True)
    sys.exit()
for line in sys.stdin:
    path, names = json.loads(line)
    try:
        with np.load(path, allow_pickle=False) as arrays:
            feeds = {name: arrays[f"arr_{i}"] for i, name in enumerate(names)}
        session.run(None, feeds)
        print("ok", flush=True)
    except Exception as error:
        print("no " + (str(error).splitlines() or [""])[0], flush=True)
"""


def may_end_the_process(graph: Graph) -> bool:
    """Return whether integers that a caller feeds reach an opaque node, which may take them for sizes.

    ONNX Runtime divides by some of these without looking: an STFT of frames of length 0 ends the process.
    """
    reached = {
        name for name in graph.inputs if isinstance(type := graph.type(name), TensorType) and type.dtype.is_integer
    }
    for node in graph.nodes:
        if not reached.isdisjoint(v for v in node.inputs if v is not None):
            if node.op == OPAQUE:
                return True
            results = (graph.type(o) for o in node.outputs if o)
            if any(isinstance(t, TensorType) and not t.dtype.is_float for t in results):
                reached |= set(node.outputs)
    return False


class ChildProgram:
    """A model that is run in a process of its own; it says whether a run succeeds, and returns no outputs.

    `source` is the file of the model, or a function that writes it to a path. BackendError where ONNX Runtime refuses
    the model or the inputs, and where it ends the process.
    """

    def __init__(self, graph: Graph, source: Path | Callable[[Path], object]) -> None:
        self.graph = graph
        self._folder = tempfile.TemporaryDirectory(prefix="eqsat-")
        self._model = source if isinstance(source, Path) else Path(self._folder.name) / "model.onnx"
        if not isinstance(source, Path):
            source(self._model)
        self._process: subprocess.Popen[str] | None = None

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        """Nothing, as `run` has it."""
        return self.run(inputs)

    def __enter__(self) -> ChildProgram:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Nothing, where the model runs on these inputs; BackendError says why it does not."""
        feeds = checked_inputs(self.graph, inputs)
        process = self._process or self._start()
        path = Path(self._folder.name) / "inputs.npz"
        np.savez(path, *(a.astype(str) if a.dtype == object else a for a in feeds.values()))
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps([str(path), list(feeds)]), file=process.stdin, flush=True)
        self._check(process)
        return {}

    def bind(self, inputs: Mapping[str, Any]) -> Callable[[], object]:
        """A call that runs the model on these inputs."""
        return lambda: self.run(inputs)

    def close(self) -> None:
        """End the process and remove its files."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
        self._folder.cleanup()

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", _LOOP, str(self._model)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, text=True, **pipes)  # type: ignore[call-overload]
        assert self._process is not None
        self._check(self._process)
        return self._process

    def _check(self, process: subprocess.Popen[str]) -> None:
        """BackendError unless the process says that all went well."""
        assert process.stdout is not None
        ending = threading.Timer(SECONDS, process.kill)
        ending.start()
        said = process.stdout.readline().strip()
        ending.cancel()
        if said == "ok":
            return
        if said:
            raise BackendError(
                f"ONNX Runtime failed: {said.removeprefix('no ')}",
                where=self.graph.name,
                expected="inputs this graph can be run on",
                remedy="run it on the backend 'numpy', which names the operator that fails",
            )
        self._process = None
        process.communicate()
        raise BackendError(
            f"ONNX Runtime ends the process on such inputs ({_cause(process.returncode)})",
            where=self.graph.name,
            expected="a runtime that refuses inputs it cannot take",
            remedy="the original is as it was; report the model to ONNX Runtime",
        )


def child_of(graph: Graph, source: Path | ModelProto | StoredModel | None) -> ChildProgram:
    """A model as it was given, or the graph where it was built in Python, in a process of its own."""
    from eqsat.language.onnx.files.reader import StoredModel
    from eqsat.language.onnx.write import exporter, verbatim

    if isinstance(source, StoredModel):
        return ChildProgram(graph, lambda path: path.write_bytes(source.data))

    if isinstance(source, Path):
        return ChildProgram(graph, source)
    if source is None:
        return ChildProgram(graph, lambda path: exporter.save(graph, path))
    return ChildProgram(graph, lambda path: verbatim.save(source, path))


def _cause(code: int) -> str:
    """The cause of a process's end.

    >>> _cause(-8), _cause(1)
    ('SIGFPE', 'exit code 1')
    """
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
