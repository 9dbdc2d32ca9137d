"""Values of a run as bytes and back."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from eqsat.language.terms import Attrs, Constant, DType, Sym, TensorType
from eqsat.report.explanation import Change
from eqsat.report.parts import CostedSizes
from eqsat.steps.archive.codec import frozen, read_back, written
from eqsat.steps.archive.constants import restored


def again(value):
    constants = []

    def place(constant):
        constants.append(constant)
        return "kept", len(constants) - 1

    return read_back(written(value, place), lambda place: constants[place[1]])


@pytest.mark.parametrize(
    "value",
    [
        {"a": (1, 2.5, None, "text", b"bytes", True, frozenset({1}), float("inf"))},
        frozen({"b": frozen({})}),
        Attrs(axis=1, perm=(0, 1), scale=1.0),
        Sym.named("batch") * 2 + Sym.function("floordiv", Sym.named("n"), 3),
        TensorType.of("bfloat16", ("batch", 3)),
        DType.FLOAT8E4M3FN,
        Path("folder") / "file",
        Change(("y",), {"relu": 2}, {"relu": 1}, ("twice",)),
        CostedSizes({"batch": 2}, 0.5),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_come_back(value):
    assert again(value) == value and type(again(value)) is type(value)


@pytest.mark.parametrize("number", [np.float64(1.5), np.float32(0.5), np.int64(-3), np.bool_(True)], ids=repr)
def test_numbers_of_numpy_come_back_as_plain_ones(number):
    assert again(number) == number and type(again(number)) is type(number.item())


def test_constants_stand_at_their_places():
    one = Constant.of(np.arange(3.0))
    assert again({"c": one, "d": (one,)})["d"][0] is one


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "int64", "bool", "float8e5m2", "int4"])
def test_constants_come_back_from_their_elements(name):
    dtype = DType.of(name)
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype.numpy)
    constant = Constant.of(array, dtype)
    assert restored(constant.type, array.tobytes()).same_as(constant)
    empty = Constant.of(np.zeros((0, 2), dtype.numpy), dtype)
    assert restored(empty.type, b"").same_as(empty)


@pytest.mark.parametrize(
    "foreign", [os.system, Path.touch, np.frombuffer, pickle.Unpickler, written], ids=lambda one: one.__qualname__
)
def test_nothing_but_parts_of_results_is_read(foreign):
    with pytest.raises(pickle.UnpicklingError, match="is no part of a result"):
        again(foreign)
