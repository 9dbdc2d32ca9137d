"""Buckets: a choice for each size from one e-graph, run and written as one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import eqsat
from eqsat.buckets.result import BucketedResult
from eqsat.errors import BackendError, UsageError

RNG = np.random.default_rng(0)
W, V = (RNG.standard_normal((8, 8)).astype(np.float32) for _ in range(2))


def model() -> eqsat.Graph:
    """X @ W + x @ V, which a user's cost likes as it is for few rows, and as x @ (W + V) for many."""
    g = eqsat.Graph("rows")
    x = g.input("x", ("batch", 8))
    g.output("y", eqsat.tanh(x @ g.constant(W) + x @ g.constant(V)))
    return g


def bucketed(**more: object) -> BucketedResult:
    result = eqsat.optimize(model(), buckets={"batch": [1, 4, 16]}, measure=False, **more)  # type: ignore[arg-type]
    assert isinstance(result, BucketedResult)
    return result


def expected(x: np.ndarray) -> np.ndarray:
    return np.tanh(x @ W + x @ V)


def check(run: object, batch: int) -> None:
    x = np.random.default_rng(batch).standard_normal((batch, 8)).astype(np.float32)
    np.testing.assert_allclose(run(x=x)["y"], expected(x), rtol=1e-4, atol=1e-5)  # type: ignore[operator]


def test_equal_choices_are_one() -> None:
    result = bucketed()
    assert len(result.results) == 3
    assert len(result.choices) == 1
    assert [n.op for n in result.graph.nodes] == ["matmul", "tanh"]
    for batch in (1, 3, 4, 16):
        check(result.run, batch)


def test_one_choice_that_changes_nothing_runs_as_it_was_given() -> None:
    """Its nodes need not be written anew, which an old opset may have no way for."""
    source = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 9]> g (float[m, 4] x) => (float[a, 4] y) {
            y = Slice<axes = [0], starts = [-7], ends = [5]>(x) }"""
    )
    result = eqsat.optimize(source, buckets={"m": [4, 16]}, measure=False)
    assert result.to_onnx() == source
    for rows in (1, 4, 9):
        x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
        np.testing.assert_array_equal(result.run(x=x)["y"], x[-7:5])


def test_sizes_beyond_the_largest_bucket_are_refused() -> None:
    with pytest.raises(BackendError, match="named dim 'batch' is 17, beyond the largest bucket\n  expected at most 16"):
        check(bucketed().run, 17)


SIDE = 32


def chain(given: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.tanh(x @ given @ given @ W32)


W32 = (RNG.standard_normal((SIDE, SIDE)) / 6).astype(np.float32)


def different() -> BucketedResult:
    """A chain of products: from the left where there are few rows, the matrices first where there are many."""
    g = eqsat.Graph("chain")
    x, a = g.input("x", ("batch", SIDE)), g.input("a", (SIDE, SIDE))
    g.output("y", eqsat.tanh(((x @ a) @ a) @ g.constant(W32)))
    result = eqsat.optimize(g, buckets={"batch": [1, 4, 1024]}, measure=False, objective={"flops": 1.0})
    assert isinstance(result, BucketedResult)
    return result


A = (RNG.standard_normal((SIDE, SIDE)) / 6).astype(np.float32)


def check_chain(run: object, batch: int) -> None:
    x = np.random.default_rng(batch).standard_normal((batch, SIDE)).astype(np.float32)
    np.testing.assert_allclose(run(x=x, a=A)["y"], chain(A, x), rtol=1e-3, atol=1e-4)  # type: ignore[operator]


def test_each_bucket_has_the_choice_that_its_sizes_ask_for() -> None:
    result = different()
    assert [[dict(b)["batch"] for b in buckets] for buckets in result.choices] == [[1, 4], [1024]]
    readers = [[n for n in r.graph.nodes if "x" in n.inputs] for r in result.choices.values()]
    assert [n.inputs[1] == "a" for (n,) in readers] == [True, False]
    for batch in (1, 2, 4, 5, 1024):
        check_chain(result.run, batch)
    assert "3 buckets, 2 of them different choices" in repr(result)


def test_one_file_chooses_by_size_and_holds_weights_once(tmp_path: Path) -> None:
    result = different()
    result.save(tmp_path / "model.onnx")
    written = onnx.load(tmp_path / "model.onnx")
    assert sum(n.op_type == "If" for n in written.graph.node) == 1
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    for batch in (1, 4, 5, 40):
        check_chain(lambda **inputs: {"y": session.run(None, inputs)[0]}, batch)
    each = result.save_each(tmp_path)
    assert [p.name for p in each] == ["batch=4.onnx", "batch=1024.onnx"]


def test_padding_is_cropped_where_it_is_proved_not_to_leak() -> None:
    result = different()
    program = result.compile("numpy", pad=True)
    seen: list[int] = []
    for inner in set(map(id, program.programs.values())):
        one = next(p for p in program.programs.values() if id(p) == inner)
        run = one.run
        one.run = lambda inputs, run=run: (seen.append(len(inputs["x"])), run(inputs))[1]  # type: ignore
    for batch in (1, 3, 4, 7, 1024):
        check_chain(program, batch)
    assert seen == [1, 4, 4, 1024, 1024]


def test_padding_that_leaks_is_refused_by_name() -> None:
    g = eqsat.Graph("mean")
    x = g.input("x", ("batch", 8))
    g.output("y", eqsat.softmax(x, axis=0))
    result = eqsat.optimize(g, buckets={"batch": [2, 4]}, measure=False)
    with pytest.raises(BackendError, match="padding may leak into 'softmax_0': softmax computes elements along axis 0"):
        result.compile("onnxruntime", pad=True)  # type: ignore[call-arg]
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    np.testing.assert_allclose(result.run(x=x)["y"].sum(axis=0), np.ones(8), rtol=1e-5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batch": []}, "buckets of 'batch' are []"),
        ({"batch": [0]}, "bucket batch = 0"),
        ({"batch": [1.5]}, "bucket batch = 1.5"),
        ({}, "buckets = {}"),
        ({"rows": [1]}, "no input has an axis named 'rows'"),
        ({"batch": list(range(1, 18))}, "buckets of 17 combinations"),
    ],
)
def test_what_are_no_buckets_is_refused(given: object, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        eqsat.optimize(model(), buckets=given, measure=False)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_two_dims_choose_together() -> None:
    g = eqsat.Graph("two")
    x = g.input("x", ("batch", "length", 8))
    g.output("y", eqsat.relu(eqsat.relu(x @ g.constant(W))))
    result = eqsat.optimize(g, buckets={"batch": [1, 4], "length": [8, 64]}, measure=False)
    assert isinstance(result, BucketedResult)
    assert [dict(b) for b in result.results] == [
        {"batch": 1, "length": 8},
        {"batch": 1, "length": 64},
        {"batch": 4, "length": 8},
        {"batch": 4, "length": 64},
    ]
    x = np.random.default_rng(0).standard_normal((2, 30, 8)).astype(np.float32)
    np.testing.assert_allclose(result.run(x=x)["y"], np.maximum(x @ W, 0), rtol=1e-4, atol=1e-5)


def test_sizes_of_other_dims_go_with_buckets() -> None:
    g = eqsat.Graph("two")
    x = g.input("x", ("batch", "length", 8))
    g.output("y", eqsat.relu(eqsat.relu(x @ g.constant(W))))
    given = g.build()
    result = eqsat.optimize(given, buckets={"batch": [1, 4]}, sizes={"length": 64}, measure=False)
    assert isinstance(result, BucketedResult)
    costed = [point.sizes for r in result.results.values() for point in r.report.sizes]
    assert costed == [{"batch": 1, "length": 64}, {"batch": 4, "length": 64}]
    with pytest.raises(UsageError, match="buckets and sizes of 'batch'"):
        eqsat.optimize(given, buckets={"batch": [1, 4]}, sizes={"batch": 64}, measure=False)


def test_a_run_that_fails_keeps_the_original_for_every_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_given: object, **_more: object) -> object:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("eqsat.steps.growing.encode", broken)
    result = bucketed()
    assert result.report.failure.endswith("unexpected ZeroDivisionError: planted")
    check(result.run, 3)


def test_the_command_line_takes_buckets(tmp_path: Path, run: Any) -> None:
    g = eqsat.Graph("chain")
    x, a = g.input("x", ("batch", SIDE)), g.input("a", (SIDE, SIDE))
    g.output("y", eqsat.tanh(((x @ a) @ a) @ g.constant(W32)))
    eqsat.optimize(g, rules=[], measure=False).save(tmp_path / "in.onnx")
    files = [tmp_path / name for name in ("in.onnx", "out.onnx", "report.json")]
    common = ("--objective", "flops", "--no-measure", "--json", files[2])
    code, out, _ = run("optimize", files[0], "-o", files[1], "--bucket", "batch=1,1024", *common)
    assert code == 0
    assert "2 buckets, 2 of them different choices" in out
    assert sum(n.op_type == "If" for n in onnx.load(files[1]).graph.node) == 1
    assert [row["bucket"] for row in json.loads(files[2].read_text())] == [{"batch": 1}, {"batch": 1024}]
    for wrong, message in (("batch", "bucket 'batch'"), ("batch=", "bucket 'batch='"), ("rows=1", "named 'rows'")):
        code, _, err = run("optimize", files[0], "-o", files[1], "--bucket", wrong, *common)
        assert code == 2
        assert message in err
    code, _, err = run("optimize", files[0], "-o", files[1], "--bucket", "batch=1", "--bucket", "batch=2", *common)
    assert (code, "--bucket batch twice" in err) == (2, True)
