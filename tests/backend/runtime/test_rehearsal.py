"""Sessions of many nodes are made in a process of their own first, which the deadline ends."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper

from eqsat.errors import BackendError
from eqsat.language.onnx.read.importer import load
from eqsat.runtime.backend import select
from eqsat.runtime.onnxruntime import rehearsal
from eqsat.runtime.onnxruntime.rehearsal import rehearse
from eqsat.runtime.onnxruntime.session import MANY_NODES, session
from eqsat.system.deadline import Deadline, TimeUp

X = np.float32([1, -2])


def chain(count: int, op: str = "Sigmoid") -> ModelProto:
    """A chain of one operator."""
    nodes = [helper.make_node(op, [f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
    ends = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2]) for n in ("v0", f"v{count}")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Clock:
    """A monotonic clock that can be put forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


class Processes:
    """The processes that were begun, and what is called when one has ended."""

    def __init__(self) -> None:
        self.begun: list[subprocess.Popen[bytes]] = []
        self.when_ended: Callable[[], object] = list

    @property
    def codes(self) -> list[int | None]:
        """The exit code of each, None for one that was ended."""
        found = [process.poll() for process in self.begun]
        return [None if code == -signal.SIGKILL else code for code in found]

    @property
    def are_gone(self) -> bool:
        """True where none of them still runs."""
        return all(process.poll() is not None for process in self.begun)


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    """The real processes of rehearsals, counted."""
    seen, popen = Processes(), subprocess.Popen

    class Counted(popen):  # type: ignore[misc, valid-type]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            seen.begun.append(self)

        def __exit__(self, *fault: Any) -> None:
            super().__exit__(*fault)
            seen.when_ended()

    monkeypatch.setattr(subprocess, "Popen", Counted)
    yield seen
    assert seen.are_gone


def test_the_process_makes_a_session_of_a_message_and_of_a_file(processes: Processes, tmp_path: Path) -> None:
    onnx.save(chain(3), tmp_path / "chain.onnx")
    with Deadline(600):
        rehearse(chain(3).SerializeToString(), 1)
        rehearse(str(tmp_path / "chain.onnx"), 0)
    assert processes.codes == [0, 0]


def test_what_onnx_runtime_refuses_is_told_by_the_caller(processes: Processes) -> None:
    refused = chain(MANY_NODES, "NoSuchOperator")
    with Deadline(600), pytest.raises(BackendError, match=r"ONNX Runtime refuses the graph: .*NoSuchOperator"):
        session(refused)
    assert len(processes.codes) == 1 and processes.codes[0] not in (0, None)


def test_a_process_that_is_not_done_in_time_is_ended(processes: Processes) -> None:
    with Deadline(0.05), pytest.raises(TimeUp, match=r"the time limit of 0\.05 s is over"):
        rehearse(chain(3).SerializeToString(), 1)
    assert processes.codes == [None] and len(processes.begun) == 1 and processes.are_gone


def test_what_took_longer_than_is_left_is_not_done_again(processes: Processes) -> None:
    clock = Clock()
    deadline = Deadline(600, now=clock)
    # A process is not made in a thousandth of a second.
    processes.when_ended = lambda: setattr(clock, "ahead", deadline.left - 1e-3)
    with deadline, pytest.raises(TimeUp):
        rehearse(chain(3).SerializeToString(), 1)
    assert processes.codes == [0]


@pytest.mark.parametrize("deadline", [Deadline(), Deadline(steps=10**6)])
def test_where_no_seconds_count_there_is_nothing_to_end(processes: Processes, deadline: Deadline) -> None:
    with deadline:
        made = session(chain(MANY_NODES, "Neg"))
    np.testing.assert_array_equal(made.run(None, {"v0": X})[0], X)
    assert not processes.begun


@pytest.mark.parametrize(("count", "rehearsed"), [(MANY_NODES - 1, 0), (MANY_NODES, 1)])
@pytest.mark.parametrize("kind", ["message", "file"])
def test_sessions_of_many_nodes_are_rehearsed_and_others_not(
    processes: Processes, tmp_path: Path, count: int, rehearsed: int, kind: str
) -> None:
    model = chain(count, "Neg")
    path = tmp_path / "chain.onnx"
    onnx.save(model, path)
    with Deadline(600):
        made = session(path, nodes=count) if kind == "file" else session(model)
    np.testing.assert_array_equal(made.run(None, {"v0": X})[0], X if count % 2 == 0 else -X)
    assert processes.codes == [0] * rehearsed


def test_a_graph_of_many_nodes_is_compiled_in_time_or_not_at_all(processes: Processes) -> None:
    graph = load(chain(MANY_NODES))
    backend = select("onnxruntime")
    with Deadline(600):
        made = backend.compile(graph).run({"v0": X})
    assert processes.codes == [0] and np.isfinite(made[f"v{MANY_NODES}"]).all()
    with Deadline(0.05), pytest.raises(TimeUp):
        backend.compile(graph)


def test_a_process_that_ctrl_c_ended_has_made_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "_MAKE", "import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    with Deadline(1e6), pytest.raises(TimeUp):
        rehearse("model.onnx", 1)


def test_a_process_is_ended_when_the_call_is_asked_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eqsat.system.deadline.ASKED_SECONDS", 0.0)
    monkeypatch.setattr(rehearsal, "_MAKE", "import time; time.sleep(3600)")
    looks: list[int] = []

    def asked() -> bool:
        looks.append(1)
        return len(looks) > 5

    with Deadline(1e6, asked=asked), pytest.raises(TimeUp, match="the run was interrupted"):
        rehearse("model.onnx", 1)
