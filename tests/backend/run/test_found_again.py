"""Results kept in files, and found again by equal runs alone."""

from __future__ import annotations

import io
import json
import math
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import eqsat
from eqsat.costs.devices.device import Device
from eqsat.language.terms import Constant, TensorType
from eqsat.language.terms.pattern import Expression
from eqsat.options.options import Options
from eqsat.quantisation.data import read_calibration
from eqsat.report.report import Progress
from eqsat.report.result import Result
from eqsat.report.units import duration
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.run import Opened
from eqsat.runtime.cuda.backend import CupyBackend
from eqsat.steps.archive import archive, constants, key

FAST: dict[str, Any] = {"measure": False, "time_limit": 60.0}


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of results, empty."""
    monkeypatch.setenv(archive.VARIABLE, str(tmp_path / "results"))
    return tmp_path / "results"


def normed(side: int = 64, scale: float = 1.0, name: str = "normed") -> onnx.ModelProto:
    """Two products of one input, each with a batch normalisation: weights are changed and stacked."""
    rng = np.random.default_rng(0)
    nodes, held, ends = [], [], []
    for i in range(2):
        held += [numpy_helper.from_array(rng.standard_normal((side, 3, 3, 3)).astype(np.float32) * scale, f"w{i}")]
        for part in ("scale", "shift", "mean"):
            held += [numpy_helper.from_array(rng.standard_normal(side).astype(np.float32), f"{part}{i}")]
        held += [numpy_helper.from_array(rng.uniform(0.5, 1, side).astype(np.float32), f"variance{i}")]
        nodes.append(helper.make_node("Conv", ["x", f"w{i}"], [f"c{i}"], pads=[1] * 4))
        parts = [f"c{i}", f"scale{i}", f"shift{i}", f"mean{i}", f"variance{i}"]
        nodes.append(helper.make_node("BatchNormalization", parts, [f"n{i}"]))
        nodes.append(helper.make_node("Relu", [f"n{i}"], [f"y{i}"]))
        ends.append(helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, [1, side, 8, 8]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])
    graph = helper.make_graph(nodes, name, [x], ends, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def traced(model: Any, **options: Any) -> tuple[Result, list[str]]:
    """A result, and the phases of the run that it came from."""
    phases: list[str] = []

    def follow(progress: Progress) -> None:
        if progress.phase not in phases:
            phases.append(progress.phase)

    result = eqsat.optimize(model, progress=follow, **{**FAST, **options})
    return result, phases


def searched(model: Any, **options: Any) -> bool:
    return "saturate" in traced(model, **options)[1]


def feeds(model: onnx.ModelProto) -> dict[str, Any]:
    (x,) = model.graph.input
    shape = [d.dim_value for d in x.type.tensor_type.shape.dim]
    return {x.name: np.random.default_rng(1).standard_normal(shape).astype(np.float32)}


def assert_equal(one: Result, other: Result, model: onnx.ModelProto) -> None:
    assert one.to_onnx().SerializeToString(deterministic=True) == other.to_onnx().SerializeToString(deterministic=True)
    for name, array in one.run(**feeds(model)).items():
        assert np.array_equal(array, other.run(**feeds(model))[name])


def test_a_result_is_found_again_with_equal_calibration_data_alone(results: Path) -> None:
    model = normed(4)
    graph = eqsat.load(model)
    data = [read_calibration(iter([feeds(model)] * count), graph) for count in (1, 1, 2)]
    assert [searched(model, calibration=one) for one in data] == [True, False, True]


def test_an_equal_run_finds_the_result_again_and_does_not_search(results: Path) -> None:
    model = normed()
    first, phases = traced(model)
    assert phases == ["read", "saturate", "extract", "measure", "certify"]
    assert first.report.kept != "original" and not first.report.found_again
    second, phases = traced(model)
    assert phases == ["read"]
    assert_equal(first, second, model)
    assert second.report.seconds == first.report.seconds
    assert second.explain().changes == first.explain().changes
    assert second.report.to_json() == {**first.report.to_json(), "found_again": second.report.found_again}
    assert f"found again: {second.report.found_again}" in str(second.report)
    assert second.report.found_again.startswith("optimised on 20")


def test_results_are_found_by_another_process(results: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(normed(), path)
    script = (
        "import sys, eqsat\nphases = []\n"
        "eqsat.optimize(sys.argv[1], measure=False, time_limit=60.0, progress=lambda p: phases.append(p.phase))\n"
        "print('searched' if 'saturate' in phases else 'found')"
    )
    environment = {**os.environ, "EQSAT_COST_TABLE": str(tmp_path / "costs.sqlite3")}
    command = [sys.executable, "-c", script, str(path)]
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert {process.communicate()[0].strip() for process in both} <= {"searched", "found"}
    assert all(process.returncode == 0 for process in both)
    assert len(list(results.iterdir())) == 1
    moved = path.rename(tmp_path / "elsewhere.onnx")
    third = subprocess.run([*command[:3], str(moved)], env=environment, capture_output=True, text=True, check=True)
    assert third.stdout.strip() == "found"


def with_input(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    for node in model.graph.node:
        node.input[:] = [name if v == "x" else v for v in node.input]
    model.graph.input[0].name = name
    return model


def with_attribute(model: onnx.ModelProto) -> onnx.ModelProto:
    model.graph.node[1].attribute.append(helper.make_attribute("epsilon", 1e-3))
    return model


def with_one_element_changed(model: onnx.ModelProto) -> onnx.ModelProto:
    array = numpy_helper.to_array(model.graph.initializer[0]).copy()
    array.reshape(-1)[7] = np.nextafter(array.reshape(-1)[7], np.float32(9))
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(array, model.graph.initializer[0].name))
    return model


@pytest.mark.parametrize(
    "changed",
    [
        with_one_element_changed,
        with_attribute,
        lambda model: with_input(model, "z"),
        lambda _model: normed(32),
        lambda _model: normed(name="other"),
    ],
    ids=["weight", "attribute", "name", "shape", "title"],
)
def test_another_model_is_another_run(results: Path, changed: Callable[[onnx.ModelProto], onnx.ModelProto]) -> None:
    eqsat.optimize(normed(), **FAST)
    assert searched(changed(normed()))


@pytest.mark.parametrize(
    "options",
    [
        {"seed": 1},
        {"node_limit": 500},
        {"time_limit": 61.0},
        {"measure": True},
        {"threads": 2},
        {"outputs": ["y0"]},
        {"objective": {"bytes": 1.0}},
        {"limits": {"launches": 100}},
        {"extractor": "greedy"},
        {"portable": True},
        {"finite_math": True},
        {"rules": "twice-relu: relu(relu(x)) => relu(x)"},
        {"rules": []},
        {"device": "nvidia-h200"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_another_option_is_another_run(results: Path, options: dict[str, Any]) -> None:
    model = normed(8)
    eqsat.optimize(model, **FAST)
    assert searched(model, **options)
    assert not searched(model)


def test_another_version_machine_or_source_is_another_run(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, here = normed(8), key.this_machine()
    eqsat.optimize(model, **FAST)
    for changed in (
        {"processor": "another"},
        {"python": "3.99"},
        {"packages": {**here["packages"], "onnxruntime": "99"}},
        {"source": "edited"},
    ):
        monkeypatch.setattr(key, "this_machine", lambda changed=changed: {**here, **changed})
        assert searched(model)
    monkeypatch.setattr(key, "this_machine", lambda: here)
    assert not searched(model)


def test_the_hash_of_a_package_changes_with_any_file_of_it(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("x = 1\n")
    (tmp_path / "two.rules").write_text("")
    before = key.source_hash(tmp_path)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "one.pyc").write_bytes(b"compiled")
    assert key.source_hash(tmp_path) == before
    (tmp_path / "two.rules").write_text("y")
    assert key.source_hash(tmp_path) != before


def test_another_measured_cost_is_another_run(results: Path, folder: Path) -> None:
    from eqsat.costs.kernels.key import OpKey
    from eqsat.costs.table.entry import Entry
    from eqsat.costs.table.environment import Environment
    from eqsat.costs.table.table import CostTable

    model = normed(8)
    eqsat.optimize(model, **FAST)
    type = TensorType.of("float32", (2, 2))
    measured = OpKey.of("relu", {}, [type], [False], {})
    with CostTable() as table:
        table.put(Environment.current("nvidia-h200"), measured, Entry(1e-6, 1e-6, 1e-6, 3))
    assert not searched(model)
    for one in (replace(Environment.current(), cpu="another, from which costs are borrowed"), Environment.current()):
        with CostTable() as table:
            table.put(one, measured, Entry(1e-6, 1e-6, 1e-6, 3))
        assert searched(model)
        assert not searched(model)


def test_a_rule_that_was_changed_in_python_is_another(results: Path) -> None:
    g = eqsat.Graph("twice")
    g.output("y", eqsat.relu(eqsat.relu(g.input("x", (4, 8)))))
    model = g.build()
    useful, idle = parse_rules("once: relu(relu(x)) => relu(x)\nthrice: relu(relu(x)) => relu(relu(relu(x)))")
    idle = replace(idle, name=useful.name, text=useful.text)
    assert eqsat.optimize(model, rules=[idle], **FAST).report.kept == "original"
    assert eqsat.optimize(model, rules=[useful], **FAST).report.kept != "original"
    (guarded,), (always,) = (parse_rules(f"once: relu(x) => x if rank(x) > {n}") for n in (2, 1))
    conditions = (Expression(guarded.conditions[0].text, always.conditions[0].tree),)
    changed = replace(guarded, conditions=conditions)
    assert len({key.content_hash(key.stated(rule)) for rule in (guarded, changed, always)}) == 3
    assert not searched(model, rules=parse_rules("once: relu(relu(x)) => relu(x)"))


def test_a_report_has_the_warnings_of_its_own_model(results: Path) -> None:
    steps = [helper.make_node("Relu", [a], [b]) for a, b in ("xa", "ab", "by")]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy")
    ordered, other = (
        helper.make_model(
            helper.make_graph(nodes, "relus", [x], [y]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
        )
        for nodes in (steps, steps[::-1])
    )
    warned = ["not in order" in str(eqsat.optimize(m, **FAST).report.warnings) for m in (ordered, other, ordered)]
    assert warned == [False, True, False]


def test_a_run_without_a_key_is_a_run_all_the_same(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(_folder: Path) -> str:
        raise PermissionError("the source cannot be read")

    monkeypatch.setattr(key, "source_hash", unreadable)
    key.this_machine.cache_clear()
    assert searched(normed(8)) and searched(normed(8))
    assert not results.exists()


def test_a_result_that_cannot_be_kept_is_returned_and_its_report_says_why(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_given: object) -> bytes:
        raise RuntimeError("no bytes of this")

    monkeypatch.setattr("eqsat.steps.archive.archive.written", fails)
    report = eqsat.optimize(normed(8), **FAST).report
    expected = "the result was not kept for equal runs: unexpected RuntimeError: no bytes of this"
    assert report.warnings[-1] == expected and not report.failure
    assert not results.exists()


def test_a_device_that_can_be_run_by_now_is_another_run(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def key_now() -> str | None:
        opened = Opened.of(normed(8), Options.of("optimize", {**FAST, "device": "nvidia-h200"}))
        return key.key_of(opened.given, opened.rules, opened.settings)

    keys = {key_now()}
    for present, reason in ((False, None), (True, "CuPy is not installed"), (True, None)):
        monkeypatch.setattr(Device, "is_here", property(lambda _device, present=present: present))
        monkeypatch.setattr(CupyBackend, "available", lambda _backend, reason=reason: reason)
        assert key_now() == key_now()
        keys.add(key_now())
    assert len(keys) == 3


def file_of(results: Path) -> Path:
    (path,) = results.iterdir()
    return path


class Trap:
    """An object whose reading would make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "foreign", "trap"])
def test_a_damaged_or_foreign_file_is_no_result(results: Path, tmp_path: Path, damage: str) -> None:
    model = normed(8)
    first = eqsat.optimize(model, **FAST)
    path = file_of(results)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    trap = io.BytesIO()
    pickle.Pickler(trap).dump(Trap(tmp_path / "ran"))
    path.write_bytes(
        {
            "empty": b"",
            "cut": whole[:-9],
            "flipped": bytes(flipped),
            "foreign": b"not ours at all" * 9,
            "trap": archive.sealed(trap.getvalue()),
        }[damage]
    )
    second, phases = traced(model)
    assert "saturate" in phases and not (tmp_path / "ran").exists()
    assert_equal(first, second, model)
    assert not searched(model)


def test_a_result_with_other_outputs_than_it_had_is_not_found(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = normed(2)
    eqsat.optimize(model, **FAST)

    def wrong(type: Any, elements: bytes) -> Constant:
        array = np.frombuffer(elements, type.dtype.numpy).reshape(type.static)
        return Constant.of(array * 2 if type.dtype.is_float else array, type.dtype)

    with monkeypatch.context() as patch:
        patch.setattr(archive, "restored", wrong)
        assert searched(model)
    assert not searched(model)


def test_a_constant_that_is_computed_otherwise_is_not_taken(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = normed()
    eqsat.optimize(model, **FAST)
    computed = constants.computed
    with monkeypatch.context() as patch:
        patch.setattr(
            archive,
            "computed",
            lambda recipe: {name: Constant.of(c.array * 2) for name, c in computed(recipe).items()},
        )
        assert searched(model)
    assert not searched(model)


def test_weights_are_not_written_into_results(results: Path) -> None:
    model = normed(512)
    first = eqsat.optimize(model, **FAST)
    derived = sum(c.nbytes for c in first.graph.constants.values())
    assert derived > 100_000
    assert file_of(results).stat().st_size < derived / 2
    second, phases = traced(model)
    assert phases == ["read"]
    assert_equal(first, second, model)


def test_weights_that_nothing_changed_are_the_models_own(results: Path) -> None:
    g = eqsat.Graph("products")
    x, w = g.input("x", (4, 64)), np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    g.output("y", eqsat.relu(eqsat.relu(x @ g.constant(w))))
    graph = g.build()
    (own,) = graph.constants.values()
    for _ in range(2):
        result = eqsat.optimize(graph, **FAST)
        assert result.report.kept != "original"
        assert any(np.shares_memory(c.array, own.array) for c in result.graph.constants.values())
    assert result.report.found_again


def test_an_original_that_is_kept_is_found_again_and_written_as_it_was(results: Path, tmp_path: Path) -> None:
    path, copy = tmp_path / "model.onnx", tmp_path / "copy.onnx"
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Tanh", ["x"], ["y"])], "tanh", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    assert eqsat.optimize(path, **FAST).report.kept == "original"
    result, phases = traced(path)
    assert phases == ["read"] and result.report.kept == "original"
    result.save(copy)
    assert copy.read_bytes() == path.read_bytes()


def test_results_for_another_device_come_back_with_their_plan(results: Path) -> None:
    model = normed(16)
    options = {**FAST, "device": "nvidia-h200", "precision": "mixed"}
    first = eqsat.optimize(model, **options)
    second = eqsat.optimize(model, **options)
    assert second.report.found_again and not first.report.found_again
    assert first.plan is not None and second.plan is not None
    assert (second.plan.steps, second.plan.boundary) == (first.plan.steps, first.plan.boundary)
    assert (second.plan.graph is second.graph) == (first.plan.graph is first.graph)
    assert second.plan.graph.nodes == first.plan.graph.nodes
    assert first.to_onnx() == second.to_onnx()


def looped() -> onnx.ModelProto:
    """A loop whose body has two transposes that cancel."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Transpose", ["state"], ["t"]),
            helper.make_node("Transpose", ["t"], ["u"]),
            helper.make_node("Tanh", ["u"], ["next"]),
            helper.make_node("Identity", ["condition"], ["more"]),
        ],
        "body",
        [value("i", TensorProto.INT64, []), value("condition", TensorProto.BOOL, []), value("state", 1, [3, 4])],
        [value("more", TensorProto.BOOL, []), value("next", 1, [3, 4])],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["count", "", "x"], ["y"], body=body)],
        "looped",
        [value("count", TensorProto.INT64, []), value("x", 1, [3, 4])],
        [value("y", 1, [3, 4])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_bodies_that_were_optimised_come_back(results: Path) -> None:
    first, phases = traced(looped())
    assert "bodies" in phases
    second, phases = traced(looped())
    assert phases == ["read"]
    assert first.to_onnx() == second.to_onnx()


def test_runs_that_were_interrupted_or_failed_are_not_kept(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = normed(8)
    eqsat.optimize(model, should_stop=lambda: True, **FAST)
    eqsat.optimize(model, measure=False, time_limit=1e-3)
    with monkeypatch.context() as patch:
        patch.setattr("eqsat.run.Run.choose", lambda *_: 1 / 0)
        assert eqsat.optimize(model, **FAST).report.failure
    assert not results.exists()


def test_code_of_the_caller_has_no_key(results: Path) -> None:
    model = normed(8)
    eqsat.optimize(model, cost=lambda application: 1.0, **FAST)

    @eqsat.op("thrice", pointwise=True)
    def thrice(xp, x):
        """The sum of three."""
        return xp.add(x, xp.add(x, x))

    eqsat.optimize(model, **FAST)
    assert not results.exists()


def test_results_are_neither_kept_nor_found_on_request(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = normed(8)
    eqsat.optimize(model, cache=False, **FAST)
    monkeypatch.setenv(archive.VARIABLE, "")
    eqsat.optimize(model, **FAST)
    assert not results.exists() and archive.results_folder() is None
    monkeypatch.setenv(archive.VARIABLE, str(results))
    eqsat.optimize(model, **FAST)
    assert searched(model, cache=False)
    assert not searched(model)


def test_a_folder_that_cannot_be_made_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(archive.VARIABLE, str(tmp_path / "file" / "results"))
    assert searched(normed(8)) and searched(normed(8))


def test_the_command_says_that_a_result_was_found(results: Path, folder: Path, run: Callable[..., Any]) -> None:
    onnx.save(normed(8), folder / "model.onnx")
    command = ("optimize", "model.onnx", "-o", "out.onnx", "--no-measure", "--json", "report.json")
    code, out, _ = run(*command)
    assert code == 0 and "found again" not in out
    first = (folder / "out.onnx").read_bytes()
    code, out, _ = run(*command)
    assert code == 0 and "found again: optimised on 20" in out
    assert json.loads((folder / "report.json").read_text())["found_again"].startswith("optimised on")
    assert (folder / "out.onnx").read_bytes() == first
    assert "found again" not in run(*command, "--no-cache")[1]


def test_the_folder_is_in_the_users_cache_unless_a_variable_names_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(archive.VARIABLE, raising=False)
    assert archive.results_folder() == archive.cache_folder() / "results"


def test_old_results_make_way_for_new_ones(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    eqsat.optimize(normed(8), **FAST)
    size = file_of(results).stat().st_size
    monkeypatch.setattr(archive, "MOST_BYTES", int(1.5 * size))
    eqsat.optimize(normed(9), **FAST)
    assert len(list(results.iterdir())) == 1
    assert not searched(normed(9)) and searched(normed(8))


def test_models_in_files_are_found_by_content(results: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(normed(8), path, save_as_external_data=True, location="weights", size_threshold=0)
    first = eqsat.optimize(path, **FAST)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for file in (path, tmp_path / "weights"):
        file.rename(elsewhere / file.name)
    second = eqsat.optimize(elsewhere / "model.onnx", **FAST)
    assert second.report.found_again and not first.report.found_again
    assert second.graph.origin == replace(
        first.graph.origin, path=second.graph.origin.path, files=second.graph.origin.files
    )
    second.save(tmp_path / "out.onnx")
    assert onnx.load(tmp_path / "out.onnx").graph.node == first.to_onnx().graph.node


def test_the_seconds_of_the_earlier_run_are_those_of_its_phases(results: Path) -> None:
    """Calibration and what was read before it are told in the rows above, so they belong to the sum."""
    model = normed(8, name="slowly")
    options = {**FAST, "steps": 20_000, "rules": []}
    del options["time_limit"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eqsat.run.calibrated", _slowly_calibrated)
        first = eqsat.optimize(model, **options)
        second = eqsat.optimize(model, **options)
    assert second.report.found_again.endswith(f" in {duration(math.fsum(first.report.seconds.values()))}")


def _slowly_calibrated(settings: Any, log: Any) -> Any:
    """Settings as they are, after a calibration that is told to have taken long."""
    log.seconds["calibrate"] = 100.0
    return settings
