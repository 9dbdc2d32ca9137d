"""Arguments of the command line are checked before anything that takes time is imported."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import eqsat
from eqsat import cli
from eqsat.system import extras

ROOT = Path(__file__).parents[3]
#: Packages that take longer to import than an error may take, and NumPy, by which everything else is made.
SLOW = ("egglog", "onnxruntime", "onnx", "z3", "highspy", "scipy", "matplotlib", "igraph", "torch")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EQSAT_COST_TABLE", str(tmp_path / "costs.sqlite3"))
    g = eqsat.Graph("layer")
    g.output("y", eqsat.relu(g.input("x", (8, 64)) @ g.constant(np.ones((64, 48), np.float32))))
    onnx.save(eqsat.optimize(g, measure=False, rules=[]).to_onnx(), "model.onnx")
    return tmp_path


def imported(*lines):
    """The exit codes and errors of command lines in a fresh interpreter, and the packages imported for all of them."""
    code = (
        "import contextlib, io, json, sys\nfrom eqsat.cli import run\n"
        "ends = []\n"
        "for line in json.loads(sys.argv[1]):\n"
        "    with contextlib.redirect_stderr(io.StringIO()) as shown:\n"
        "        ends.append([run(line), shown.getvalue()])\n"
        "print(json.dumps([ends, sorted({name.partition('.')[0] for name in sys.modules})]))"
    )
    made = subprocess.run(
        [sys.executable, "-c", code, json.dumps(lines)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    ends, modules = json.loads(made.stdout.splitlines()[-1])
    return ends, set(modules)


#: Command lines that no registry is needed to refuse, and parts of their errors.
MISSING = {
    ("optimize", "modle.onnx", "-o", "out.onnx"): "modle.onnx: the file cannot be read: No such file or directory",
    ("explore", "modle.onnx"): "did you mean 'model.onnx'?",
    ("pareto", "modle.onnx"): "did you mean 'model.onnx'?",
    ("inspect", "modle.onnx"): "did you mean 'model.onnx'?",
    ("measure", "modle.onnx"): "did you mean 'model.onnx'?",
    ("bench", "modle.onnx"): "did you mean 'model.onnx'?",
    ("optimize", "model.onnx", "-o", "nowhere/out.onnx"): "nowhere/out.onnx: the folder of the target does not exist",
    ("optimize", "model.onnx", "-o", "out.onnx", "--time-limit", "soon"): "'soon' is no duration",
    ("optimize", "model.onnx", "-o", "out.onnx", "--calibration", "mine.npz"): "mine.npz: the file cannot be read",
    ("optimize", "model.onnx", "-o", "out.onnx", "--limit", "peak_memory"): "'peak_memory' is no limit",
    ("optimize", "model.onnx"): "Missing option '-o'",
}
#: Options of a run that are refused, and parts of their errors.
UNKNOWN = {
    (
        "--device",
        "onxruntime-cpu",
    ): "expected one of c-cpu, numpy-cpu, nvidia-h200, onnxruntime-cpu, openvino-cpu, cuda, "
    "or a file that ends in .json\n"
    "  did you mean 'onnxruntime-cpu'?",
    ("--device", "mine.json"): "mine.json: the file cannot be read",
    ("--precision", "exct"): "did you mean 'exact'?",
    ("--extractor", "gredy"): "did you mean 'greedy'?",
    ("--over-sizes", "worse"): "over_sizes = 'worse'\n  expected 'sum' or 'worst'\n  did you mean 'worst'?",
    ("--layouts", "colum"): "did you mean 'column'?",
    ("--layouts", "nhwc"): "layout 'nhwc' on onnxruntime-cpu",
    ("--objective", "tme"): "did you mean 'time'?",
    ("--limit", "peak_memry=8GB"): "did you mean 'peak_memory'?",
    ("--limit", "peak_memory=8 XB"): "has the unit 'XB'",
    ("--rules", "mine.rules"): "mine.rules: cannot be read: No such file or directory",
    ("--calibration", "mine.npz"): "mine.npz: the file cannot be read: No such file or directory\n"
    "  expected an .npz file of arrays by input name, or a folder of .npy files named by input",
    ("--alpha", "1.1"): "alpha=1.1 with extractor='ilp'",
    ("--threads", "0"): "threads = 0",
}


def test_a_missing_file_or_malformed_argument_is_told_before_numpy_is_imported():
    ends, modules = imported(*MISSING)
    assert [(code, error.count("error: ")) for code, error in ends] == [(2, 1)] * len(MISSING)
    assert [error for (_, error), part in zip(ends, MISSING.values(), strict=True) if part not in error] == []
    assert modules.isdisjoint({*SLOW, "numpy"})


def test_a_name_that_there_is_not_is_told_with_the_nearest_before_the_work_is_imported():
    ends, modules = imported(*(("optimize", "model.onnx", "-o", "out.onnx", *words) for words in UNKNOWN))
    assert [(code, error.count("error: ")) for code, error in ends] == [(2, 1)] * len(UNKNOWN)
    assert [error for (_, error), part in zip(ends, UNKNOWN.values(), strict=True) if part not in error] == []
    assert modules.isdisjoint(SLOW)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("measure", "model.onnx", "--device", "onnxruntime-cpuu"), "did you mean 'onnxruntime-cpu'?"),
        (("measure", "model.onnx", "--precision", "exact,mixd"), "did you mean 'mixed'?"),
        (("bench", "model.onnx", "--precision", "float33"), "did you mean 'float32'?"),
        (("bench", "model.onnx", "--forms", "graph onl"), "did you mean 'graph only'?"),
        (("pareto", "model.onnx", "-x", "tim"), "did you mean 'time'?"),
        (("extract", "graph.json", "--extractor", "ilpp"), "did you mean 'ilp'?"),
        (("costs", "check", "--device", "abacus"), "no device 'abacus'"),
        (("costs", "show", "--op", "mattmul"), "did you mean 'matmul'?"),
    ],
)
def test_names_of_other_commands_are_checked_too(run, arguments, message):
    code, _, error = run(*arguments)
    assert (code, message in error) == (2, True), error


def test_help_shows_the_choices_of_the_registries(run, monkeypatch):
    from eqsat.extract import EXTRACTORS

    monkeypatch.setitem(EXTRACTORS, "by-hand", EXTRACTORS["greedy"])
    _, out, _ = run("optimize", "--help")
    for shown in (
        "[c-cpu|numpy-cpu|nvidia-h200|onnxruntime-cpu|openvino-cpu|cuda|FILE.json]",
        "[ilp|greedy|backtracking|by-hand]",
        "[exact|tf32|mixed|int8|int4|float16|bfloat16]",
        "[sum|worst]",
        "[auto|row|column|nhwc|blocked|packed],…",
        "[time|flops|bytes|launches|weight_memory|peak_memory|error]=AMOUNT",
    ):
        assert shown in out
    assert "[joint" in run("bench", "--help")[1].replace("all|", "")


@pytest.mark.parametrize(
    ("package", "arguments", "message"),
    [
        (
            "matplotlib",
            ("pareto", "model.onnx", "--plot", "front.png"),
            "error: matplotlib is not installed\n  expected it for plots\n  pip install 'eqsat[plot]'\n",
        ),
        (
            "igraph",
            ("explore", "model.onnx", "--html", "page.html"),
            "error: igraph is not installed\n  expected it for laying out graphs on pages\n"
            "  pip install 'eqsat[explore]'\n",
        ),
        (
            "igraph",
            ("optimize", "model.onnx", "-o", "out.onnx", "--html", "page.html"),
            "error: igraph is not installed\n  expected it for laying out graphs on pages\n"
            "  pip install 'eqsat[explore]'\n",
        ),
    ],
)
def test_an_extra_that_is_missing_is_told_before_the_work_begins(package, arguments, message, run, monkeypatch):
    found = extras.find_spec
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == package else found(name))
    monkeypatch.setattr("eqsat.run.Run.read", lambda *given: pytest.fail("the work began"))
    assert run(*arguments) == (2, "", message)
    assert {p.name for p in Path().iterdir() if "sqlite3" not in p.name} == {"model.onnx"}


def test_a_plot_of_another_kind_is_refused_before_the_work_begins(run, monkeypatch):
    monkeypatch.setattr("eqsat.run.Run.read", lambda *given: pytest.fail("the work began"))
    code, _, error = run("pareto", "model.onnx", "--plot", "front.txt")
    assert (code, error.splitlines()[0]) == (2, "error: front.txt: no plot of the kind '.txt'")


def test_a_front_of_a_term_against_itself_is_refused_before_the_work_begins(run, monkeypatch):
    monkeypatch.setattr("eqsat.run.Run.read", lambda *given: pytest.fail("the work began"))
    assert "error: a front of 'time' against itself" in run("pareto", "model.onnx", "-y", "time")[2]
    with pytest.raises(eqsat.EqsatError, match="a front of 'time' against itself"):
        eqsat.pareto("model.onnx", "time", "time")


def test_a_device_in_a_file_is_optimised_for_and_measured_and_shown(run):
    from dataclasses import replace

    from eqsat.costs.devices.device import Device, write_device

    board = replace(Device.of("onnxruntime-cpu"), name="board", kind="roofline", source="a guess")
    Path("board.json").write_text(write_device(board))
    code, _, error = run("optimize", "model.onnx", "-o", "out.onnx", "--device", "board.json", "--no-measure")
    assert code == 0, error
    measure = ("measure", "model.onnx", "--device", "board.json", "--fused", "0", "--no-wholes")
    code, _, error = run(*measure, "--time-limit", "5s", "--export", "board.jsonl")
    assert code == 0, error
    assert json.loads(Path("board.jsonl").read_text().splitlines()[1])["environment"]["device"] == "board"
    assert "board: " in run("costs", "show", "--device", "board.json")[1]
    code, _, error = run("costs", "import", "board.jsonl")
    assert (code, "no device 'board'" in error) == (2, True)
    assert run("costs", "import", "board.jsonl", "--device", "board.json")[1].startswith("0 new, 0 replaced")


def test_bare_groups_print_their_help_and_end_well(run):
    for words in ((), ("costs",), ("rules",)):
        code, out, error = run(*words)
        assert (code, error) == (0, "")
        assert out.startswith(f"Usage: eqsat{''.join(f' {word}' for word in words)} [OPTIONS] COMMAND")
        assert out == run(*words, "--help")[1]
    assert cli.run(["--debug"]) == 2
