"""`eqsat optimize` on real files: what it writes, what it refuses, and how it is interrupted."""

import contextlib
import json
import os
import pickle
import pkgutil
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from benchmarks.models.sru import sru_text_classifier
from eqsat import cli
from eqsat.language.onnx.read import structure
from eqsat.system import deadline


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with model.onnx, small, and no table of costs but one in memory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EQSAT_COST_TABLE", ":memory:")
    onnx.save(sru_text_classifier(steps=3, hidden=16), "model.onnx")
    return tmp_path


def outputs(path, feeds):
    return ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feeds)


def files():
    return {p.name for p in Path().iterdir()}


def test_the_result_computes_what_the_input_does_and_the_report_says_what_happened(run):
    before = Path("model.onnx").read_bytes()
    code, out, err = run("optimize", "model.onnx", "-o", "out.onnx", "--no-measure", "--json", "report.json")
    assert (code, [line for line in err.splitlines() if line.startswith("error")]) == (0, [])
    x = np.random.default_rng(0).standard_normal((3, 1, 16)).astype(np.float32)
    onnx.checker.check_model("out.onnx")
    for new, old in zip(outputs("out.onnx", {"x": x}), outputs("model.onnx", {"x": x}), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-4, atol=1e-5)
    report = json.loads(Path("report.json").read_text())
    assert report["nodes_after"] < report["nodes_before"]
    assert report["rules_fired"]
    assert report["cost_after"] < report["cost_before"]
    assert report["lower_bound"] <= report["cost_after"]
    assert report["certificate"]["kind"] in ("exact", "mixed", "float64")
    assert {"read", "saturate", "extract", "certify", "write"} <= report["seconds"].keys()
    assert "wrote out.onnx" in out
    assert "saturate" in out
    assert "\x1b" not in out
    assert Path("model.onnx").read_bytes() == before
    assert files() == {"model.onnx", "out.onnx", "report.json"}


def test_a_measured_run_is_never_slower_by_its_own_figures(run):
    code, *_ = run("optimize", "model.onnx", "-o", "out.onnx", "--json", "report.json")
    report = json.loads(Path("report.json").read_text())
    assert code == 0
    assert report["measured_before"] > 0
    assert report["kept"] == "original" or report["measured_bound"] < 1


def test_the_same_input_and_seed_give_the_same_bytes(run):
    for name in ("one.onnx", "two.onnx"):
        assert run("optimize", "model.onnx", "-o", name, "--no-measure")[0] == 0
    assert Path("one.onnx").read_bytes() == Path("two.onnx").read_bytes()


def test_options_reach_the_pipeline(run):
    options = ["--extractor", "greedy", "--node-limit", "50", "--opset", "18", "--outputs", "logits"]
    options += ["--objective", "time=1", "--objective", "launches=1e-6", "--seed", "3"]
    options += ["--device", "nvidia-h200", "--time-limit", "20s", "--finite-math", "--threads", "1"]
    code, _, _ = run("optimize", "model.onnx", "-o", "out.onnx", "--json", "report.json", *options)
    report = json.loads(Path("report.json").read_text())
    assert code == 0
    assert report["extraction"] == "heuristic"
    assert report["stopped_by"] == "node_limit"
    assert report["device"] == "nvidia-h200"
    assert report["objective"] == {"time": 1.0, "launches": 1e-6}
    assert any("not measured" in w for w in report["warnings"])
    assert onnx.load("out.onnx").opset_import[0].version == 18


def test_an_existing_target_is_replaced(run):
    Path("out.onnx").write_text("old")
    assert run("optimize", "model.onnx", "-o", "out.onnx", "--no-measure")[0] == 0
    onnx.checker.check_model("out.onnx")


REFUSED = [
    (["missing.onnx", "-o", "out.onnx"], "missing.onnx: the file cannot be read"),
    (["empty.onnx", "-o", "out.onnx"], "empty.onnx: the file is empty"),
    (["text.onnx", "-o", "out.onnx"], "text.onnx: not an ONNX model"),
    (["model.onnx", "-o", "model.onnx"], "model.onnx: the target is the input"),
    (["model.onnx", "-o", "symbolic.onnx"], "symbolic.onnx: the target is the input model.onnx"),
    (["model.onnx", "-o", "hard.onnx"], "hard.onnx: the target is the input model.onnx"),
    (["model.onnx", "-o", "folder/../model.onnx"], "the target is the input"),
    (["model.onnx", "-o", "folder"], "folder: the target is a folder"),
    (["model.onnx", "-o", "/dev/null"], "/dev/null: the target is no regular file"),
    (["model.onnx", "-o", "nowhere/out.onnx"], "nowhere/out.onnx: the folder of the target does not exist"),
    (["model.onnx", "-o", "/proc/out.onnx"], "/proc/out.onnx: the target cannot be written"),
    (["model.onnx", "-o", "out.onnx", "--json", "nowhere/r.json"], "nowhere/r.json: the folder of the target"),
    (["model.onnx", "-o", "out.onnx", "--json", "model.onnx"], "model.onnx: the target is the input"),
    (["model.onnx", "-o", "out.onnx", "--json", "out.onnx"], "out.onnx: the model and its report go to one file"),
    (["model.onnx", "-o", "out.onnx", "--time-limit", "0"], "time_limit = 0.0"),
    (["model.onnx", "-o", "out.onnx", "--time-limit", "-1s"], "time_limit = -1.0"),
    (["model.onnx", "-o", "out.onnx", "--time-limit", "soon"], "'soon' is no duration"),
    (["model.onnx", "-o", "out.onnx", "--node-limit", "0"], "node_limit = 0"),
    (["model.onnx", "-o", "out.onnx", "--node-limit", "many"], "'many' is not a valid integer"),
    (["model.onnx", "-o", "out.onnx", "--threads", "-1"], "threads = -1"),
    (["model.onnx", "-o", "out.onnx", "--size", "batch=0"], "'batch=0' is no size"),
    (["model.onnx", "-o", "out.onnx", "--opset", "3"], "opset = 3"),
    (["model.onnx", "-o", "out.onnx", "--seed", "-1"], "seed = -1"),
    (["model.onnx", "-o", "out.onnx", "--size", "batch=4"], "no named dim 'batch'"),
    (["model.onnx", "-o", "out.onnx", "--outputs", "nothing"], "no output 'nothing'"),
    (["model.onnx", "-o", "out.onnx", "--device", "abacus"], "no device 'abacus'"),
    (["model.onnx", "-o", "out.onnx", "--extractor", "best"], "no extractor 'best'"),
    (["model.onnx", "-o", "out.onnx", "--objective", "beauty"], "objective has no term 'beauty'"),
    (["model.onnx", "-o", "out.onnx", "--objective", "time=much"], "'time=much' is no weight"),
    (["model.onnx", "-o", "out.onnx", "--rules", "missing.rules"], "missing.rules: cannot be read"),
    (["model.onnx"], "Missing option '-o'"),
    (["model.onnx", "-o", "out.onnx", "--fast"], "No such option"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=lambda a: " ".join(a) if isinstance(a, list) else "")
def test_bad_input_is_one_clear_error_and_nothing_is_written(run, arguments, message):
    Path("empty.onnx").touch()
    Path("text.onnx").write_text("this is no protocol buffer")
    Path("folder").mkdir()
    Path("symbolic.onnx").symlink_to("model.onnx")
    Path("hard.onnx").hardlink_to("model.onnx")
    before = {p.name: p.read_bytes() for p in Path().iterdir() if p.is_file()}
    code, out, err = run("optimize", *arguments)
    assert code == 2
    assert message in err.rpartition("error: ")[2].splitlines()[0]
    assert "Traceback" not in err
    assert out == ""
    assert {p.name: p.read_bytes() for p in Path().iterdir() if p.is_file()} == before


def _bad(change):
    """model.onnx with a change made to it, as bytes."""
    model = onnx.load("model.onnx")
    change(model)
    return model.SerializeToString()


def _external(location):
    def change(model):
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location)

    return change


def _cycle(model):
    model.graph.node[0].input[0] = model.graph.node[-1].output[0]


def _duplicate(model):
    model.graph.node[1].output[0] = model.graph.node[0].output[0]


def _conflict(model):
    weight = next(t for t in model.graph.initializer if len(t.dims) == 2)
    weight.CopyFrom(onnx.numpy_helper.from_array(np.ones((7, 5), np.float32), weight.name))


BAD_MODELS = {
    "truncated": (lambda: Path("model.onnx").read_bytes()[:-100], "not an ONNX model, or one cut short"),
    "pickle": (lambda: pickle.dumps({"weights": [1, 2, 3]}), "not an ONNX model"),
    "no graph": (lambda: onnx.ModelProto(ir_version=8).SerializeToString(), "the model has no graph"),
    "old opset": (lambda: _bad(lambda m: setattr(m.opset_import[0], "version", 6)), "opset 6 is too old"),
    "new opset": (lambda: _bad(lambda m: setattr(m.opset_import[0], "version", 999)), "opset 999 is too new"),
    "cyclic": (lambda: _bad(_cycle), "the graph has a cycle"),
    "untyped": (lambda: _bad(lambda m: m.graph.input[0].ClearField("type")), "input 'x' has no type"),
    "duplicate": (lambda: _bad(_duplicate), "is defined twice"),
    "conflict": (lambda: _bad(_conflict), "node "),
    "no data": (lambda: _bad(_external("gone.bin")), "external data file 'gone.bin' is missing"),
    "outside": (lambda: _bad(_external("../model.onnx")), "outside the model's folder"),
    "absolute": (lambda: _bad(_external("/etc/hostname")), "outside the model's folder"),
    "dangling": (lambda: _bad(lambda m: m.graph.node[0].input.__setitem__(0, "nowhere")), "which nothing makes"),
    "output": (lambda: _bad(lambda m: setattr(m.graph.output[0], "name", "nothing")), "output 'nothing' is made by"),
}


@pytest.mark.parametrize("name", BAD_MODELS)
def test_a_bad_model_is_one_clear_error_and_nothing_is_written(run, name):
    make, message = BAD_MODELS[name]
    Path("bad.onnx").write_bytes(make())
    code, out, err = run("optimize", "bad.onnx", "-o", "out.onnx", "--no-measure")
    first, *rest = err.rpartition("error: ")[2].splitlines()
    assert code == 2, err
    assert first.startswith("bad.onnx: ")
    assert message in first
    assert rest and rest[0].startswith("  expected ")
    assert "Traceback" not in err
    assert out == ""
    assert files() == {"model.onnx", "bad.onnx"}
    code, _, again = run("inspect", "bad.onnx")
    assert (code, again.rpartition("error: ")[2].splitlines()[0]) == (2, first)


def test_a_pickle_is_never_run(run):
    Path("bad.onnx").write_bytes(b"cos\nsystem\n(S'touch owned'\ntR.")
    assert run("optimize", "bad.onnx", "-o", "out.onnx")[0] == 2
    assert files() == {"model.onnx", "bad.onnx"}


def test_a_data_file_of_the_input_is_no_target_by_any_name(run):
    model = onnx.load("model.onnx")
    onnx.save(model, "big.onnx", save_as_external_data=True, location="out.onnx.data", size_threshold=0)
    data = Path("out.onnx.data").read_bytes()
    Path("link.data").symlink_to("out.onnx.data")
    for target in ("out.onnx.data", "link.data"):
        code, _, err = run("optimize", "big.onnx", "-o", target)
        assert code == 2
        assert "the target is the input" in err
    code, _, err = run("optimize", "big.onnx", "-o", "out.onnx")
    assert code == 2
    assert "out.onnx: its data file out.onnx.data is one the input reads" in err
    assert Path("out.onnx.data").read_bytes() == data
    assert not Path("out.onnx").exists()
    assert run("optimize", "big.onnx", "-o", "other.onnx", "--no-measure")[0] == 0
    onnx.checker.check_model("other.onnx")


def interrupting(monkeypatch, phase, times):
    """Sends SIGINT to this process, so often, when a run reaches a phase."""
    left = [times]

    @contextlib.contextmanager
    def bar(console):
        def follow(progress):
            while progress.phase == phase and left[0]:
                left[0] -= 1
                os.kill(os.getpid(), signal.SIGINT)

        yield follow

    for command in ("optimize", "pareto"):
        monkeypatch.setattr(f"eqsat.commands.{command}.progress_bar", bar)


@pytest.mark.parametrize("phase", ["saturate", "extract", "measure", "certify", "write"])
def test_ctrl_c_writes_the_best_so_far(run, monkeypatch, phase):
    interrupting(monkeypatch, phase, times=1)
    previous = signal.getsignal(signal.SIGINT)
    code, _, _ = run("optimize", "model.onnx", "-o", "out.onnx", "--json", "report.json")
    assert code == 0
    x = np.ones((3, 1, 16), np.float32)
    for new, old in zip(outputs("out.onnx", {"x": x}), outputs("model.onnx", {"x": x}), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-4, atol=1e-5)
    if phase != "write":
        assert json.loads(Path("report.json").read_text())["stopped_by"] == "interrupted"
    assert signal.getsignal(signal.SIGINT) is previous


def test_ctrl_c_before_the_model_is_read_ends_the_command(run, monkeypatch):
    interrupting(monkeypatch, "read", times=1)
    code, out, err = run("optimize", "model.onnx", "-o", "out.onnx", "--html", "page.html")
    assert (code, out, err.lstrip("\n")) == (130, "", "error: interrupted; files are as they were\n")
    assert files() == {"model.onnx"}


@pytest.mark.parametrize("command", [["optimize", "-o", "out.onnx"], ["explore"], ["pareto", "--json", "out.json"]])
@pytest.mark.parametrize("turned", [None, ImportError("cut short")])
def test_ctrl_c_while_a_model_is_read_ends_the_command(run, monkeypatch, command, turned):
    def interrupted(*_arguments):
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt as heard:
            raise (turned or heard)  # noqa: B904 - as an import does
        pytest.fail("not heard")

    monkeypatch.setattr("eqsat.language.onnx.read.structure.order", interrupted)
    code, out, err = run(command[0], "model.onnx", *command[1:])
    assert (code, out, err.lstrip("\n")) == (130, "", "error: interrupted; files are as they were\n")
    assert files() == {"model.onnx"}


def test_ctrl_c_that_is_lost_while_a_model_is_read_is_heard_when_it_is_read(run, monkeypatch):
    """Python drops what a destructor raises."""

    class Dropped:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)

    def order(graph, reads, where):
        Dropped()
        return known(graph, reads, where)

    known = structure.order
    monkeypatch.setattr(structure, "order", order)
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    code, _, _ = run("optimize", "model.onnx", "-o", "out.onnx", "--json", "report.json")
    assert code == 0 and json.loads(Path("report.json").read_text())["stopped_by"] == "interrupted"


def test_ctrl_c_while_a_front_is_looked_for_ends_with_what_was_found(run, monkeypatch):
    negated_twice("model.onnx")
    interrupting(monkeypatch, "extract", times=1)
    code, out, _ = run("pareto", "model.onnx", "-y", "launches")
    assert code == 0 and "time against launches" in out
    monkeypatch.setattr("eqsat.frontier.front", lambda *_, **__: deadline.current().stop())
    interrupting(monkeypatch, "extract", times=1)
    code, out, err = run("pareto", "model.onnx", "-y", "launches")
    assert (code, out) == (130, "") and err.endswith("error: interrupted; files are as they were\n")


def negated_twice(path):
    """A small model of which two nodes go."""
    nodes = [helper.make_node(op, [a], [b]) for op, a, b in (("Neg", "x", "a"), ("Neg", "a", "b"), ("Relu", "b", "y"))]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    graph = helper.make_graph(nodes, "negated twice", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.mark.parametrize(
    "step", ["eqsat.steps.trials.certify_graphs", "eqsat.language.onnx.files.placement.Path.replace"]
)
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_while_a_result_is_certified_or_written_leaves_a_whole_file_or_none(run, monkeypatch, step, times):
    place, name = step.rsplit(".", 1)
    call = getattr(pkgutil.resolve_name(place), name)

    def interrupted(*arguments, **more):
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
        return call(*arguments, **more)

    negated_twice("model.onnx")
    Path("out.onnx").write_text("what was here before")
    monkeypatch.setattr(pkgutil.resolve_name(place), name, interrupted)
    code, _, _ = run("optimize", "model.onnx", "-o", "out.onnx", "--no-measure")
    assert files() == {"model.onnx", "out.onnx"}
    if times == 1:
        assert code == 0
        assert [n.op_type for n in onnx.load("out.onnx").graph.node] == ["Relu"]
    else:
        assert code == 130 and Path("out.onnx").read_text() == "what was here before"


@pytest.mark.parametrize("phase", ["saturate", "write"])
def test_a_second_ctrl_c_aborts_and_leaves_no_file(run, monkeypatch, phase):
    interrupting(monkeypatch, phase, times=2)
    code, _, err = run("optimize", "model.onnx", "-o", "out.onnx", "--no-measure")
    assert code == 130
    assert "error: interrupted" in err
    assert files() == {"model.onnx"}


#: Sends Ctrl-C twice when growing begins, in a process of its own, and says if the interpreter is taken down after it.
TWICE = """
import os, signal, sys
class Sender:
    def find_spec(self, name, path=None, target=None):
        if name == "egglog":
            sys.meta_path.remove(self)
            for _ in range(2): os.kill(os.getpid(), signal.SIGINT)
class Large:
    def __del__(self): os.write(2, b"freed")
sys.meta_path.insert(0, Sender())
sys.argv = ["eqsat", "optimize", "model.onnx", "-o", "out.onnx", "--no-measure"]
large = Large()
from eqsat.__main__ import main
main()
"""


def test_an_aborted_process_ends_without_freeing_what_it_made(folder):
    env = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", TWICE], env=env, capture_output=True, text=True)
    assert done.returncode == 130
    assert done.stderr.endswith("error: interrupted; files are as they were\n")
    assert files() == {"model.onnx"}


#: Sends Ctrl-C where a module is imported, or at exit, and runs the command line.
CTRL_C = """
import atexit, os, signal, sys
def send(*_): os.kill(os.getpid(), signal.SIGINT)
class Sender:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}: send()
sys.meta_path.insert(0, Sender())
if {name!r} == "exit": atexit.register(send)
sys.argv = ["eqsat", "inspect", "model.onnx"]
from eqsat.__main__ import main
main()
"""


@pytest.mark.parametrize("name", ["numpy", "click", "rich.console", "onnx", "exit"])
def test_ctrl_c_is_heard_from_the_first_import_to_the_last_step(folder, name):
    root = str(Path(cli.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", CTRL_C.format(name=name)],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in done.stderr
    if name == "exit":
        assert (done.returncode, done.stderr) == (0, "")
    else:
        assert (done.returncode, done.stderr) == (130, "\nerror: interrupted; files are as they were\n")


def test_a_full_disk_leaves_the_old_target_whole(folder):
    Path("out.onnx").write_text("what was here before")

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))

    command = [sys.executable, "-m", "eqsat", "optimize", "model.onnx", "-o", "out.onnx", "--no-measure"]
    root = str(Path(cli.__file__).parents[1])
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": root}, capture_output=True, text=True, preexec_fn=small_files
    )
    assert done.returncode == 2, done.stderr
    assert "out.onnx" in done.stderr
    assert "Traceback" not in done.stderr
    assert Path("out.onnx").read_text() == "what was here before"
    assert files() == {"model.onnx", "out.onnx"}
