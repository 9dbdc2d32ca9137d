"""Models whose tensors lie in a file beside them: at every moment the model that is there has the data it names."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, numpy_helper, parser

from eqsat.errors import ExportModelError
from eqsat.language.onnx.files import placement
from eqsat.language.onnx.read.importer import load
from eqsat.language.onnx.write.exporter import save

#: Saves models as lines say, source, target and n, each in a process that is killed before it touches the
#: folder the n-th time, and answers with its status, 0 where it came to its end before. Several in a line run side by
#: side. The processes are forked, so that eqsat is loaded once for all.
SAVING = """
import os, signal, sys
from eqsat.language.onnx.write.exporter import save
from eqsat.language.onnx.read.importer import load

def saved(graph, target, left):
    folder = os.path.realpath(os.path.dirname(target))

    def step(event, arguments):
        nonlocal left
        if event in ("open", "os.rename", "os.link", "os.remove") and str(arguments[0]).startswith(folder):
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(step)
    save(graph, target)

def forked(source, target, left):
    graph = load(source)
    process = os.fork()
    if not process:
        status = 1
        try:
            saved(graph, target, int(left))
            status = 0
        finally:
            os._exit(status)
    return process

for line in sys.stdin:
    processes = [forked(*one.split("\\t")) for one in line.rstrip("\\n").split("\\t\\t")]
    print(*(os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) for p in processes), flush=True)
"""


def model(value: float, rows: int = 64) -> ModelProto:
    """The model that multiplies by a matrix full of one value; the same nodes for every value."""
    result = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1, 64] x) => (float[1, 64] y) { y = MatMul(x, w) }'
    )
    result.graph.initializer.append(numpy_helper.from_array(np.full((rows, 64), value, np.float32), "w"))
    return result


def written(folder: Path, value: float) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "in.onnx"
    onnx.save(model(value), path, save_as_external_data=True, location="in.bin", size_threshold=0)
    return path


def run(path: Path) -> float:
    """What the model computes of ones, which tells whose weights it has."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"x": np.ones((1, 64), np.float32)})
    assert (result == result[0, 0]).all()
    return float(result[0, 0])


Save = Callable[..., list[int]]


@pytest.fixture(scope="module")
def saving() -> Iterator[Save]:
    """Saves models side by side, each of a source and killed at a step; their exit codes."""
    command = [sys.executable, "-c", SAVING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None

        def save_all(target: Path, *sources: Path, step: int) -> list[int]:
            print("\t\t".join(f"{source}\t{target}\t{step}" for source in sources), file=process.stdin, flush=True)
            assert process.stdout is not None
            return [int(code) for code in process.stdout.readline().split()]

        yield save_all
        process.stdin.close()


def killed(saving: Save, source: Path, target: Path, step: int) -> bool:
    """True where saving was killed at this step, False where it has fewer."""
    (code,) = saving(target, source, step=step)
    assert code in (0, -signal.SIGKILL)
    return code != 0


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_killed_process_leaves_the_old_model_with_the_old_data_or_the_new_with_the_new(
    tmp_path: Path, saving: Save
) -> None:
    old, new = written(tmp_path / "old", 1.0), written(tmp_path / "new", 2.0)
    outcomes = []
    for step in range(1, 100):
        (folder := tmp_path / f"{step}").mkdir()
        save(load(old), folder / "out.onnx")
        ended = not killed(saving, new, folder / "out.onnx", step)
        outcomes.append(run(folder / "out.onnx"))
        save(load(new), folder / "out.onnx")
        assert run(folder / "out.onnx") == 128.0
        # What is written next to temporary names was cleared, or is a file that no model names.
        assert [n for n in names(folder) if not n.startswith(".")] == ["out.onnx", "out.onnx.data"]
        if ended:
            break
    assert len(outcomes) >= 10
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {64.0, 128.0}


def test_a_killed_process_leaves_no_model_or_a_whole_one_where_none_was(tmp_path: Path, saving: Save) -> None:
    new = written(tmp_path / "new", 2.0)
    for step in range(1, 100):
        (folder := tmp_path / f"{step}").mkdir()
        (folder / "out.onnx.data").write_bytes(b"of nobody")
        ended = not killed(saving, new, folder / "out.onnx", step)
        assert not (folder / "out.onnx").exists() or run(folder / "out.onnx") == 128.0
        if ended:
            break
    assert (folder / "out.onnx").exists()
    assert names(folder) == ["out.onnx", "out.onnx.data"]


def test_the_same_bytes_come_of_a_first_and_of_a_second_writing(tmp_path: Path) -> None:
    source = written(tmp_path / "in", 2.0)
    contents = []
    for _ in range(2):
        save(load(source), tmp_path / "out.onnx")
        contents.append([(tmp_path / n).read_bytes() for n in ("out.onnx", "out.onnx.data")])
    assert contents[0] == contents[1]


def test_a_system_without_second_names_keeps_data_under_a_name_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_names: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(placement.os, "link", refused)
    for value in (1.0, 2.0, 3.0):
        save(load(written(tmp_path / "in", value)), tmp_path / "out.onnx")
        assert run(tmp_path / "out.onnx") == 64 * value
    (own,) = {n for n in names(tmp_path) if n.endswith(".data")} - {"out.onnx.data"}
    assert names(tmp_path) == sorted(["in", "out.onnx", own, "out.onnx.data"])


@pytest.mark.parametrize("there", [False, True], ids=["where no model is", "where a model is"])
@pytest.mark.parametrize("call", ["write", "rename"])
def test_a_full_disk_leaves_both_files_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool, call: str
) -> None:
    old, new = written(tmp_path / "old", 1.0), written(tmp_path / "new", 2.0)
    (folder := tmp_path / "out").mkdir()
    if there:
        save(load(old), folder / "out.onnx")
    before = {n: (folder / n).read_bytes() for n in names(folder)}
    graph, replace, fsync, calls = load(new), Path.replace, os.fsync, []

    def fails_at_the_second(*given: object) -> object:
        calls.append(given)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return (fsync if call == "write" else replace)(*given)  # type: ignore[arg-type]

    if call == "write":
        monkeypatch.setattr(placement.os, "fsync", fails_at_the_second)
    else:
        monkeypatch.setattr(Path, "replace", fails_at_the_second)
    with pytest.raises(ExportModelError, match=r"(?s)No space left on device.*nothing was written"):
        save(graph, folder / "out.onnx")
    assert {n: (folder / n).read_bytes() for n in names(folder)} == before


@pytest.mark.parametrize("there", [False, True], ids=["where no model is", "where a model is"])
@pytest.mark.parametrize("after", [False, True], ids=["before a step", "after a step"])
def test_ctrl_c_leaves_the_files_as_they_were_or_a_whole_new_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool, after: bool
) -> None:
    old, graph = written(tmp_path / "old", 1.0), load(written(tmp_path / "new", 2.0))
    left = 0

    def interrupted(call: Callable[..., object]) -> Callable[..., object]:
        def step(*given: object, **more: object) -> object:
            nonlocal left
            left -= 1
            if not left and not after:
                raise KeyboardInterrupt
            result = call(*given, **more)
            if not left:
                raise KeyboardInterrupt
            return result

        return step

    outcomes = []
    for number in range(1, 100):
        (folder := tmp_path / f"{number}").mkdir()
        if there:
            save(load(old), folder / "out.onnx")
        before = {n: (folder / n).read_bytes() for n in names(folder)}
        left = number
        with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
            patched.setattr(Path, "replace", interrupted(Path.replace))
            patched.setattr(placement.os, "link", interrupted(os.link))
            patched.setattr(placement.os, "fsync", interrupted(os.fsync))
            save(graph, folder / "out.onnx")
        found = {n: (folder / n).read_bytes() for n in names(folder)}
        if found != before:
            assert run(folder / "out.onnx") == 128.0
            assert {n for n in found if n.startswith(".")} == set()
        outcomes.append(found != before)
        if left > 0:
            break
    assert outcomes == sorted(outcomes) and set(outcomes) == {False, True} and len(outcomes) >= 7


def test_data_lie_beside_the_file_that_a_link_leads_to(tmp_path: Path) -> None:
    source = written(tmp_path / "in", 2.0)
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
    (tmp_path / "here" / "link.onnx").symlink_to("../there/out.onnx")
    for _ in range(2):
        save(load(source), tmp_path / "here" / "link.onnx")
        assert names(tmp_path / "here") == ["link.onnx"]
        assert names(tmp_path / "there") == ["out.onnx", "out.onnx.data"]
        assert run(tmp_path / "there" / "out.onnx") == 128.0
    (tmp_path / "there" / "beside.onnx").symlink_to("out.onnx")
    assert run(tmp_path / "there" / "beside.onnx") == 128.0


def test_a_data_file_that_is_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    source = written(tmp_path / "in", 2.0)
    (tmp_path / "other").write_bytes(b"another's")
    (tmp_path / "out.onnx.data").symlink_to("other")
    save(load(source), tmp_path / "out.onnx")
    assert (tmp_path / "other").read_bytes() == b"another's"
    assert run(tmp_path / "out.onnx") == 128.0


def test_processes_that_write_one_model_leave_a_whole_one(tmp_path: Path, saving: Save) -> None:
    sources = [written(tmp_path / f"{value}", value) for value in (1.0, 2.0, 3.0)]
    assert saving(tmp_path / "out.onnx", *sources, step=1000) == [0, 0, 0]
    assert run(tmp_path / "out.onnx") in (64.0, 128.0, 192.0)
    assert names(tmp_path) == ["1.0", "2.0", "3.0", "out.onnx", "out.onnx.data"]
