"""Calibration data from dicts, iterables, files and folders, its parts, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from benchmarks.models.stripped import refill
from eqsat.errors import CALLERS_NOTE, UsageError
from eqsat.language.graphs.builder import Builder
from eqsat.language.onnx.read.importer import load
from eqsat.language.terms import Graph
from eqsat.quantisation import data as calibration
from eqsat.quantisation.data import read_calibration

MODELS = Path(__file__).parents[2] / "models"


def pair_graph(batch: int | str = "batch") -> Graph:
    """The product of x and w, plus a mask: two inputs that count rows, and one that does not."""
    g = Builder("pair")
    x = g.input("x", (batch, 3))
    mask = g.input("mask", (batch, 2))
    w = g.input("w", (3, 2))
    g.output("y", g.apply("add", g.apply("matmul", x, w), mask))
    return g.build()


def rows(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {"x": (count, 3), "mask": (count, 2), "w": (3, 2)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def same(left: Any, right: Any) -> bool:
    return len(left) == len(right) and all(
        a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
        for a, b in zip(left, right, strict=True)
    )


def test_an_iterable_is_gone_through_once_and_its_arrays_are_copied() -> None:
    buffers = rows(2)
    seen = []

    def batches() -> Iterator[dict[str, np.ndarray]]:
        for index in range(4):
            buffers["x"][:] = index
            seen.append(index)
            yield buffers

    read = read_calibration(batches(), pair_graph())
    assert seen == [0, 1, 2, 3]
    assert [float(batch["x"][0, 0]) for batch in read.batches] == [0, 1, 2, 3]
    assert read.warning == "" and read.source == "calibration"
    with pytest.raises(ValueError, match="read-only"):
        read.batches[0]["x"][:] = 0


def test_named_dims_may_differ_between_batches() -> None:
    read = read_calibration([rows(1), rows(4), rows(2)], pair_graph())
    assert [batch["x"].shape[0] for batch in read.batches] == [1, 4, 2]


def test_three_batches_or_more_are_dealt_in_turn() -> None:
    read = read_calibration([rows(2, seed) for seed in range(7)], pair_graph())
    parts = read.parts
    assert [len(part) for part in (parts.calibrate, parts.tighten, parts.report)] == [3, 2, 2]
    assert same(parts.calibrate, read.batches[0::3]) and same(parts.tighten, read.batches[1::3])
    assert same(parts.report, read.batches[2::3]) and parts.warning == ""


def test_one_batch_is_split_by_rows() -> None:
    given = rows(7)
    parts = read_calibration(given, pair_graph()).parts
    dealt = [parts.calibrate, parts.tighten, parts.report]
    assert [len(part) for part in dealt] == [1, 1, 1]
    assert [part[0]["x"].shape[0] for part in dealt] == [3, 2, 2]
    for start, (part,) in enumerate(dealt):
        assert np.array_equal(part["x"], given["x"][start::3])
        assert np.array_equal(part["mask"], given["mask"][start::3])
        assert np.array_equal(part["w"], given["w"])
    assert parts.warning == "calibration data of one batch: parts are rows of it"


def test_of_two_batches_the_second_is_split_by_rows() -> None:
    given = [rows(1), rows(2, 1)]
    parts = read_calibration(given, pair_graph()).parts
    assert same(parts.calibrate, given[:1])
    assert np.array_equal(parts.tighten[0]["x"], given[1]["x"][:1])
    assert np.array_equal(parts.report[0]["x"], given[1]["x"][1:])
    assert parts.warning == "calibration data of two batches: tightening and report have rows of the second"


@pytest.mark.parametrize(("count", "batch"), [(2, "batch"), (6, 6)])
def test_a_batch_that_cannot_be_split_serves_all_parts(count: int, batch: int | str) -> None:
    one = read_calibration(rows(count), pair_graph(batch)).parts
    assert same(one.calibrate, one.report) and same(one.tighten, one.report)
    assert one.warning == "calibration data of one batch: all parts share it"


def test_two_batches_of_one_row_are_not_split() -> None:
    two = read_calibration([rows(1), rows(1, 1)], pair_graph()).parts
    assert same(two.tighten, two.report) and not same(two.calibrate, two.tighten)
    assert two.warning == "calibration data of two batches: tightening and report share the second"


def test_the_length_of_a_sequence_is_not_split() -> None:
    g = Builder("sequence")
    x = g.input("x", ("length", 3))
    g.output("y", g.apply("matmul", g.apply("transpose", x, perm=(1, 0)), x))
    read = read_calibration({"x": np.ones((9, 3), np.float32)}, g.build())
    assert read.rows == frozenset() and read.parts.warning.endswith("all parts share it")


def test_a_batch_of_bert_is_split_by_rows() -> None:
    graph = load(refill(onnx.load(MODELS / "bert_base_dynamic.onnx", load_external_data=False)))
    feeds = {name: np.ones((5, 8), graph.type(name).dtype.numpy) for name in graph.inputs}
    read = read_calibration(feeds, graph)
    assert read.rows == frozenset(graph.inputs)
    assert {batch[name].shape for batch in read.parts.calibrate for name in batch} == {(2, 8)}


def test_the_digest_tells_data_apart_and_not_where_they_are_from(tmp_path: Path) -> None:
    given = [rows(2, seed) for seed in range(3)]
    graph = pair_graph()
    digest = read_calibration(given, graph).digest
    assert re.fullmatch("[0-9a-f]{64}", digest)
    for index, batch in enumerate(given):
        for name, array in batch.items():
            (tmp_path / str(index)).mkdir(exist_ok=True)
            np.save(tmp_path / str(index) / f"{name}.npy", array)
    assert read_calibration(tmp_path, graph).digest == digest
    assert read_calibration(given[::-1], graph).digest != digest
    changed = [*given[:2], {**given[2], "x": given[2]["x"] + np.float32(1e-3)}]
    assert read_calibration(changed, graph).digest != digest


@pytest.mark.parametrize("form", ["{name}", "{name}_{index}", "{index}/{name}"])
def test_an_archive_and_a_folder_hold_the_same_forms(form: str, tmp_path: Path) -> None:
    given = [rows(2, seed) for seed in range(11)]
    arrays = {}
    if "{index}" in form:
        for index, batch in enumerate(given):
            arrays |= {form.format(name=name, index=index): array for name, array in batch.items()}
    else:
        arrays = {name: np.stack([batch[name] for batch in given]) for name in given[0]}
    np.savez(tmp_path / "data.npz", **arrays)
    folder = tmp_path / "folder"
    for key, array in arrays.items():
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        np.save(folder / f"{key}.npy", array)
    for path in (tmp_path / "data.npz", folder):
        read = read_calibration(str(path), pair_graph())
        assert same(read.batches, given)
        assert read.source == str(path)


def test_an_array_of_the_rank_of_its_input_is_one_batch(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", **rows(2))
    assert same(read_calibration(tmp_path / "data.npz", pair_graph()).batches, [rows(2)])


def test_an_input_whose_name_ends_in_a_number_is_that_input(tmp_path: Path) -> None:
    g = Builder("numbered")
    g.output("y", g.apply("add", g.input("x", (2,)), g.input("x_1", (2,))))
    ones = np.ones(2, np.float32)
    np.savez(tmp_path / "data.npz", x=ones, x_1=ones * 2)
    (batch,) = read_calibration(tmp_path / "data.npz", g.build()).batches
    assert np.array_equal(batch["x_1"], ones * 2)


def test_a_file_holds_bfloat16_as_numpy_writes_it(tmp_path: Path) -> None:
    g = Builder("narrow")
    g.output("y", g.apply("relu", g.input("x", (2,), "bfloat16")))
    np.savez(tmp_path / "data.npz", x=np.array([1.5, -2], ml_dtypes.bfloat16))
    (batch,) = read_calibration(tmp_path / "data.npz", g.build()).batches
    assert batch["x"].dtype == ml_dtypes.bfloat16 and batch["x"].tolist() == [1.5, -2]


def test_data_that_were_read_are_read_again_as_they_are() -> None:
    graph = pair_graph()
    read = read_calibration(iter([rows(1), rows(2)]), graph)
    assert read_calibration(read, graph) is read
    assert [batch["x"].shape[0] for batch in read] == [1, 2]
    with pytest.raises(UsageError, match="calibration, batch 1: input 'x' of shape"):
        read_calibration(read, pair_graph(1))


def test_data_without_end_are_cut_and_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless() -> Iterator[dict[str, np.ndarray]]:
        while True:
            yield rows(1)

    read = read_calibration(endless(), pair_graph())
    assert len(read.batches) == calibration.MOST_BATCHES == 512
    assert read.warning == "calibration has more than 512 batches: the first 512 are used"
    monkeypatch.setattr(calibration, "MOST_BYTES", 250)
    read = read_calibration(endless(), pair_graph())
    assert len(read.batches) == 5
    assert read.warning == "calibration has more than 250 bytes: the first 5 batches are used"


def test_the_first_batch_is_used_however_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "MOST_BYTES", 1)
    read = read_calibration([rows(1), rows(1)], pair_graph())
    assert len(read.batches) == 1
    assert read.warning == "calibration has more than 1 bytes: the first one batch are used"


REFUSED: list[tuple[Any, str]] = [
    ([], "calibration: no batch\n  expected dicts of arrays by input name, one such dict, or the path of"),
    (3, "calibration = int\n  expected dicts of arrays"),
    (np.ones((2, 3), np.float32), "calibration = ndarray\n  expected dicts of arrays"),
    ([rows(2), [1]], "calibration, batch 1: a batch is a list\n  expected a dict of arrays by input name"),
    (
        {**rows(2), "X": 1},
        "calibration, batch 0: unknown input 'X'\n  expected inputs x, mask, w\n  did you mean 'x'?",
    ),
    (
        [rows(2), {"x": rows(2)["x"]}],
        "calibration, batch 1: input 'mask' is missing\n  expected mask: float32[batch, 2]",
    ),
    (
        {**rows(2), "x": np.ones((2, 3))},
        "calibration, batch 0: input 'x' has element type float64\n  expected float32[batch, 3]\n"
        "  convert it, for example x.astype('float32')",
    ),
    (
        {**rows(2), "x": np.ones((2, 4), np.float32)},
        "calibration, batch 0: input 'x' of shape [2, 4] has 4 at axis 1, not 3\n  expected x: float32[batch, 3]",
    ),
    ({**rows(2), "x": np.ones(3, np.float32)}, "calibration, batch 0: input 'x' of shape [3] has rank 1, not 2"),
    ({**rows(2), "x": rows(3)["x"]}, "calibration, batch 0: named dim 'batch' is 3 in input 'x' and 2 in input 'mask'"),
    (rows(0), "calibration, batch 0: input 'x' of shape [0, 3] is empty\n  expected elements"),
    (
        {**rows(2), "x": np.full((2, 3), np.nan, np.float32)},
        "calibration, batch 0: input 'x' has NaN\n  expected finite numbers",
    ),
    (
        [rows(2), {**rows(2), "w": np.full((3, 2), -np.inf, np.float32)}],
        "calibration, batch 1: input 'w' has an infinity\n  expected finite numbers",
    ),
    (
        "nowhere.npz",
        "nowhere.npz: the file cannot be read: No such file or directory\n  expected an .npz file",
    ),
]


@pytest.mark.parametrize(("given", "message"), REFUSED, ids=[message[:50] for _, message in REFUSED])
def test_data_that_do_not_fit_are_refused(given: Any, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        read_calibration(given, pair_graph())


def test_an_error_in_the_callers_iterable_is_told_from_others() -> None:
    def broken() -> Iterator[dict[str, np.ndarray]]:
        yield rows(2)
        raise KeyError("image")

    with pytest.raises(KeyError) as caught:
        read_calibration(broken(), pair_graph())
    assert caught.value.__notes__ == [CALLERS_NOTE]


def write_pickled(folder: Path) -> None:
    np.savez(folder / "data.npz", x=np.array([{}], object))


def write_text(folder: Path) -> None:
    (folder / "data.npz").write_text("x = 1")


def write_nothing(folder: Path) -> None:
    np.savez(folder / "data.npz")


def write_cut(folder: Path) -> None:
    np.savez(folder / "whole.npz", **rows(100))
    (folder / "data.npz").write_bytes((folder / "whole.npz").read_bytes()[:1000])


def write_unknown(folder: Path) -> None:
    np.savez(folder / "data.npz", **rows(2), masc=rows(2)["mask"])


def write_uneven(folder: Path) -> None:
    np.savez(folder / "data.npz", x_0=rows(2)["x"], x_1=rows(2)["x"], mask=rows(2)["mask"], w=rows(2)["w"])


def write_twice(folder: Path) -> None:
    np.savez(folder / "data.npz", **rows(2), **{"0/x": rows(2)["x"]})


STORED = {
    write_pickled: "data.npz, x: pickled objects, which are not read\n  expected an array of numbers",
    write_text: "data.npz: not an .npz file\n  expected an .npz file of arrays by input name, or a folder of "
    ".npy files named by input\n  numpy.savez writes one",
    write_nothing: "data.npz: an .npz file without arrays",
    write_cut: "data.npz: no array can be read: ",
    write_unknown: "data.npz: 'masc' is no input\n  expected inputs x, mask, w, each as NAME, NAME_0 or 0/NAME\n"
    "  did you mean 'mask'?",
    write_uneven: "data.npz: input 'x' has batch 1, and input 'mask' has none\n  expected the same batches of every "
    "input\n  stack the batches of an input along a new first axis, or number its arrays from 0",
    write_twice: "data.npz: '0/x' is a second array of input 'x'\n  expected one array of all batches, or one of each",
}


@pytest.mark.parametrize("write", STORED, ids=lambda write: write.__name__)
def test_files_that_do_not_fit_are_refused(write: Any, tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(UsageError, match=re.escape(STORED[write])):
        read_calibration(tmp_path / "data.npz", pair_graph())


def test_a_folder_without_arrays_and_a_damaged_array_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(f"{tmp_path}: no .npy file in this folder")):
        read_calibration(tmp_path, pair_graph())
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(UsageError, match=r"x\.npy: no array can be read: "):
        read_calibration(tmp_path, pair_graph())
