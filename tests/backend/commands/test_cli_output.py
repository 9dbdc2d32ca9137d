"""--quiet, --verbose and JSON on standard output, in processes of their own."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import eqsat

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a small model, an e-graph, and an equation to prove."""
    folder = tmp_path_factory.mktemp("output")
    g = eqsat.Graph("layer")
    x = g.input("x", (8, 16))
    w = np.random.default_rng(0).standard_normal((2, 16, 16)).astype(np.float32)
    g.output("y", x @ g.constant(w[0]) + x @ g.constant(w[1]))
    onnx.save(eqsat.optimize(g, measure=False, rules=[]).to_onnx(), folder / "model.onnx")
    nodes = {"dear": {"eclass": "a", "cost": 2}, "cheap": {"eclass": "a", "cost": 1}}
    (folder / "graph.json").write_text(json.dumps({"nodes": nodes, "root_eclasses": ["a"]}))
    (folder / "mine.rules").write_text("both: (-x) * (-y) => x * y if floating(x)\n")
    return folder


def typed(place, *arguments):
    """What `python -m eqsat` prints in a process of its own; it has to end well."""
    made = subprocess.run(
        [sys.executable, "-m", "eqsat", *arguments],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    return made.stdout, made.stderr


def test_without_arguments_the_help_is_printed(place):
    out, error = typed(place)
    assert out.startswith("Usage: eqsat [OPTIONS] COMMAND [ARGS]...")
    assert error == ""


def test_quiet_writes_the_result_and_prints_nothing(place):
    arguments = ("optimize", "model.onnx", "-o", "quiet.onnx", "--no-measure", "--json", "report.json")
    assert typed(place, *arguments, "-q") == ("", "")
    assert (place / "quiet.onnx").exists()
    assert json.loads((place / "report.json").read_text())["device"] == "onnxruntime-cpu"
    assert typed(place, "extract", "graph.json", "--quiet") == ("", "")
    assert typed(place, "rules", "verify", "mine.rules", "-q") == ("", "")


def test_verbose_tells_of_each_phase_as_it_ends_with_its_seconds(place):
    _, error = typed(place, "optimize", "model.onnx", "-o", "out.onnx", "--no-measure", "-v")
    phases = [re.match(r"(\w+): [\d.]+ (s|ms|µs|ns)\b", line)[1] for line in error.splitlines()]
    assert phases == list(dict.fromkeys(phases))
    assert {"read", "saturate", "extract", "certify", "write"} <= set(phases)
    _, more = typed(place, "optimize", "model.onnx", "-o", "out.onnx", "--no-measure", "-vv")
    assert any(line.startswith("  extract: ") for line in more.splitlines())
    assert len(more.splitlines()) > len(error.splitlines())


def test_verbose_tells_of_work_that_is_counted(place):
    _, error = typed(place, "rules", "verify", "mine.rules", "--verbose")
    assert re.fullmatch(r"checking: [\d.]+ m?s\n", error)


def test_quiet_and_verbose_exclude_each_other(run):
    code, _, error = run("extract", "graph.json", "-q", "-v")
    assert (code, error) == (2, "error: --quiet and --verbose\n  expected one of the two\n")


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("optimize", "model.onnx", "-o", "out.onnx", "--no-measure", "--json", "-"), "nodes_before"),
        (("pareto", "model.onnx", "-y", "weight_memory", "--json", "-"), "points"),
        (("extract", "graph.json", "--json", "-"), "lower_bound"),
        (("inspect", "model.onnx", "--json", "-"), "operators"),
        (("inspect", "--json", "-", "--opaque", "model.onnx"), "models"),
        (("costs", "show", "--json", "-"), "environments"),
        (("rules", "report", "--json", "-"), "library"),
    ],
    ids=lambda a: " ".join(a) if isinstance(a, tuple) else "",
)
def test_json_on_standard_output_stands_there_alone(place, arguments, field):
    out, _ = typed(place, *arguments)
    assert field in json.loads(out)


def test_json_of_proofs_on_standard_output_stands_there_alone(place):
    out, _ = typed(place, "rules", "prove", "mine.rules", "--json", "-")
    assert [proof["verdict"] for proof in json.loads(out)] == ["proved"]


@pytest.mark.parametrize(
    "command", ["optimize", "explore", "pareto", "extract", "measure", "bench", "rules verify", "rules build"]
)
def test_every_command_that_works_can_be_quiet_and_verbose(run, command):
    out = run(*command.split(), "--help")[1]
    assert "-q, --quiet" in out
    assert "-v, --verbose" in out


def in_encoding(place, encoding, *arguments):
    """The exit code and both outputs of a command, in bytes, whose streams have another encoding than UTF-8."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": encoding}
    process = subprocess.run(
        [sys.executable, "-m", "eqsat", *arguments], cwd=place, env={**env, "PYTHONUTF8": "0"}, capture_output=True
    )
    return process.returncode, process.stdout, process.stderr


def test_a_report_is_printed_where_the_encoding_lacks_its_characters(place):
    code, out, error = in_encoding(place, "ascii", "optimize", "model.onnx", "-o", "ascii.onnx", "--no-measure")
    assert (code, error) == (0, b"")
    assert re.search(rb"cost [\d.]+ [un]s -> ", out)
    assert out.endswith(b"wrote ascii.onnx\n")
    code, out, _ = in_encoding(place, "cp437", "optimize", "model.onnx", "-o", "ascii.onnx", "--no-measure", "-v")
    assert code == 0 and out.endswith(b"wrote ascii.onnx\n")


def test_names_that_an_encoding_lacks_are_escaped_and_json_stays_json(place):
    model = onnx.load(place / "model.onnx")
    model.graph.name = "Größe → \U0001f600"
    onnx.save(model, place / "named.onnx")
    code, out, _ = in_encoding(place, "latin-1", "inspect", "named.onnx", "--json")
    assert code == 0
    assert json.loads(out.decode("latin-1"))["name"] == "Größe → \U0001f600"
    code, out, _ = in_encoding(place, "latin-1", "inspect", "named.onnx")
    assert code == 0 and "Größe" in out.decode("latin-1")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_behind_standard_output_is_no_fault_of_eqsat(place):
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            [sys.executable, "-m", "eqsat", "inspect", "model.onnx"],
            cwd=place,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert process.returncode == 2
    said = "error: standard output: No space left on device\n  expected room for it\n  make room, or write elsewhere\n"
    assert process.stderr.startswith(said)


def test_the_help_of_measure_tells_of_the_models_that_it_takes_by_itself(run):
    said = " ".join(run("measure", "--help")[1].split())
    assert "Without models and lists, the kernels of the models that come with the onnx package" in said
