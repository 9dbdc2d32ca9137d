"""Calls of comprehensions: what they take, what they write to, and the words for what they refuse."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.errors import EqsatError, ShapeError, UsageError

MV = eqsat.comprehension("def mv(float(M,K) A, float(K) x) -> (C) { C(i) +=! A(i,k) * x(k) }").mv
ADD = eqsat.comprehension("def add(int n, float(N) x) -> (y) { y(i) += x(i) * n }").add
PAIR = eqsat.comprehension("def pair(float(N) x) -> (a, b) { a(i) = x(i) b(i) = -x(i) }").pair
FIXED = eqsat.comprehension("def fixed(float(3) x) -> (y) { y(i) = x(i) }").fixed
HALF = eqsat.comprehension("def half(half s, bool b) -> (y) { y = b ? s : 0.0 }").half
A, X = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1, 2, 3], np.float32)


def read_only() -> Any:
    array = np.zeros(2, np.float32)
    array.flags.writeable = False
    return array


REFUSED: list[tuple[Callable[[], Any], type[EqsatError], str]] = [
    (lambda: MV(A), UsageError, "mv without x\n  expected 2: A, x"),
    (lambda: MV(), UsageError, "mv without A, x\n  expected 2: A, x"),
    (lambda: MV(A, X, X), UsageError, "mv of 3 arguments\n  expected 2: A, x"),
    (lambda: MV(A, A=A), UsageError, "mv: A is passed twice\n  expected one value for each parameter"),
    (lambda: MV(A, X, C=X), UsageError, "mv has no parameter 'C'\n  expected A, x"),
    (lambda: ADD(1, X, Y=X), UsageError, "add has no parameter 'Y'\n  expected n, x, y"),
    (
        lambda: MV(A, X.astype(np.float64)),
        ShapeError,
        "mv, x: elements of float64\n  expected float32\n  convert it: .astype('float32')",
    ),
    (lambda: MV(A, [1, 2, 3]), ShapeError, "mv, x: elements of int64\n  expected float32"),
    (lambda: MV(A, [[1], [2, 3]]), UsageError, "no array: "),
    (lambda: MV(A, "x"), ShapeError, "mv, x: elements of str"),
    (lambda: MV(A, None), ShapeError, "mv, x: elements of object\n  expected float32"),
    (lambda: MV(A, A), ShapeError, "mv, x: an array of rank 2\n  expected rank 1"),
    (lambda: MV(A, 1.0), ShapeError, "mv, x: an array of rank 0\n  expected rank 1"),
    (lambda: MV(A, X[:2]), ShapeError, "mv, x: axis 0 has 2 elements\n  expected K = 3"),
    (lambda: FIXED(X[:2]), ShapeError, "fixed, x: axis 0 has 2 elements\n  expected 3"),
    (lambda: ADD(1.5, X), ShapeError, "add, n: 1.5\n  expected a number of int32"),
    (lambda: ADD(2**31, X), ShapeError, "add, n: 2147483648\n  expected a number of int32"),
    (lambda: ADD(10**30, X), ShapeError, f"add, n: {10**30}\n  expected a number of int32"),
    (lambda: ADD(True, X), ShapeError, "add, n: True\n  expected a number of int32"),
    (lambda: HALF(1.0, 1), ShapeError, "half, b: 1\n  expected a number of bool"),
    (lambda: HALF(10**400, True), ShapeError, f"half, s: {10**400}\n  expected a number of float16"),
    (lambda: ADD(1, X, y=X[:2]), ShapeError, "add, y: an array of shape (2,)\n  expected (3,)"),
    (lambda: ADD(1, X, y=A), ShapeError, "add, y: an array of shape (2, 3)\n  expected (3,)"),
    (lambda: ADD(1, X, y=X.astype(int)), ShapeError, "add, y: elements of int64\n  expected float32"),
    (lambda: MV(A, X, out=X), ShapeError, "mv: out: float32[3] for C\n  expected float32[2]"),
    (
        lambda: MV(A, X, out=np.zeros(2)),
        ShapeError,
        "mv: out: float64[2] for C\n  expected float32[2]",
    ),
    (
        lambda: MV(A, X, out=read_only()),
        UsageError,
        "mv: out: C is read-only\n  expected an array that is written to",
    ),
    (lambda: PAIR(X, out=X), UsageError, "pair: out: 3 arrays\n  expected 2"),
    (
        lambda: MV(A, X, out=np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (2,), (0,))),
        UsageError,
        "mv: out: elements of C share memory\n  expected memory for each element",
    ),
    (lambda: PAIR(X, out=(X,)), UsageError, "pair: out: 1 arrays\n  expected 2"),
    (lambda: MV.inferred({"A": (2, 3)}), UsageError, "mv without x\n  expected a shape of each parameter"),
    (
        lambda: ADD.inferred({"n": (), "x": (3,)}),
        UsageError,
        "add without n\n  expected a value of each integer scalar: shapes depend on it",
    ),
]


@pytest.mark.parametrize(("call", "error", "text"), REFUSED, ids=[row[2].split("\n")[0][:60] for row in REFUSED])
def test_arguments_that_do_not_fit_are_refused_in_words(
    call: Callable[[], Any], error: type[EqsatError], text: str
) -> None:
    with pytest.raises(EqsatError) as caught:
        call()
    assert (type(caught.value), str(caught.value)[: len(text)]) == (error, text)


def test_types_and_prepared_outputs_are_refused_as_calls_are() -> None:
    for ask in (MV.output_types, MV.prepare_outputs):
        with pytest.raises(UsageError, match="mv without x"):
            ask(A)
        with pytest.raises(ShapeError, match="expected K = 3"):
            ask(A, X[:2])


def test_arguments_go_by_position_and_by_name() -> None:
    for made in (MV(A, X), MV(A, x=X), MV(x=X, A=A), MV(A=A, x=X)):
        np.testing.assert_array_equal(made, A @ X)
    mine = eqsat.comprehension("def mine(float(N) self) -> (y) { y(i) = self(i) }").mine
    np.testing.assert_array_equal(mine(self=X), X)


def test_scalars_are_numbers_of_python_and_of_numpy() -> None:
    for n in (2, np.int32(2), np.array(2, np.int32)):
        np.testing.assert_array_equal(ADD(n, X), 2 * X)
    assert HALF(0.1, True) == np.float16(0.1)
    assert HALF(1, True).dtype == np.float16
    assert HALF(1e300, True) == np.inf
    assert HALF(np.float16(3), np.bool_(False)) == 0


def test_results_are_one_array_or_a_tuple_and_out_is_given_back() -> None:
    a, b = PAIR(X)
    np.testing.assert_array_equal(a, -b)
    out = PAIR.prepare_outputs(X)
    assert PAIR(X, out=out) is out
    single = np.zeros(2, np.float32)
    assert MV(A, X, out=single) is single
    np.testing.assert_array_equal(single, A @ X)
    assert PAIR.results == ("a", "b")


def test_outputs_may_be_views_and_share_memory_with_an_argument() -> None:
    wide = np.zeros(6, np.float32)
    PAIR(X, out=[wide[::2], wide[::-2]])
    np.testing.assert_array_equal(wide, [1, -3, 2, -2, 3, -1])
    square = np.arange(9, dtype=np.float32).reshape(3, 3)
    turned = eqsat.comprehension("def turned(float(N,N) x) -> (y) { y(i,j) = x(j,i) }").turned
    turned(square, out=square)
    np.testing.assert_array_equal(square, np.arange(9, dtype=np.float32).reshape(3, 3).T)
    shifted = eqsat.comprehension("def shifted(float(N) x) -> (y) { y(i) = x(i) + x(i + 1) }").shifted
    line = np.arange(5, dtype=np.float32)
    shifted(line, out=line[1:])
    np.testing.assert_array_equal(line, [0, 1, 3, 5, 7])


class OnGpu:
    """An array as CuPy has it: what it holds is got by a copy, and no address of it is this machine's."""

    def __init__(self, array: Any) -> None:
        self._array = np.array(array)

    def get(self) -> Any:
        return self._array.copy()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, **_: Any) -> Any:
        raise AssertionError("DLPack gives an address that NumPy cannot read")


def test_arrays_of_a_gpu_are_copied_here_and_results_back(monkeypatch: pytest.MonkeyPatch) -> None:
    standin = type("ndarray", (OnGpu,), {"__module__": "cupy"})
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(ndarray=standin, asarray=standin))
    made = MV(standin(A), X)
    assert type(made) is standin
    np.testing.assert_array_equal(made.get(), A @ X)
    assert all(type(one) is standin for one in PAIR(standin(X)))
    with pytest.raises(UsageError, match="mv: out: memory of a GPU\n  expected arrays in this machine's memory"):
        MV(A, X, out=standin(np.zeros(2, np.float32)))
    other = type("array", (OnGpu,), {"__module__": "another"})
    with pytest.raises(AssertionError, match="NumPy cannot read"):  # of no library that is known to copy
        MV(A, other(X))


def test_empty_tensors_go_in_and_come_out() -> None:
    empty = np.zeros((0, 3), np.float32)
    assert MV(empty, X).shape == (0,)
    np.testing.assert_array_equal(MV(A[:, :0], X[:0]), [0, 0])
    slid = eqsat.comprehension("def slid(float(M) x, float(K) w) -> (y) { y(i) +=! w(k) * x(i + k) }").slid
    assert slid(X, np.ones(5, np.float32)).shape == (0,)
    assert slid(X, np.ones(3, np.float32)).shape == (1,)
    assert slid(X[:0], X).shape == (0,)
    gather = eqsat.comprehension("def gather(float(N) x, int(M) at) -> (y) { y(i) = x(at(i)) }").gather
    assert gather(X[:0], np.zeros(0, np.int32)).shape == (0,)


def test_a_source_is_a_mapping_of_its_functions() -> None:
    text = "def one(float(N) x) -> (y) { y(i) = x(i) } def two(float(N) x) -> (y) { y(i) = 2 * x(i) }"
    functions = eqsat.comprehension(text)
    assert (list(functions), len(functions), "one" in functions) == (["one", "two"], 2, True)
    assert functions["two"] is functions.two
    assert {"one", "two"} <= set(dir(functions))
    assert repr(functions) == "Comprehension(one, two)"
    assert repr(functions.one) == "def one(float(N) x) -> (y) {\n  y(i) = x(i)\n}"
    with pytest.raises(AttributeError, match="no function 'tow'; "):
        _ = functions.tow
    assert functions.source == text


def test_integer_scalars_and_temporaries_are_told() -> None:
    assert (ADD.needs, ADD.name, ADD.results, ADD.temporaries) == (("n",), "add", ("y",), ())
    text = "def f(float(N) x) -> (y) { t(i) = x(i) u +=! t(i) y(i) = t(i) / u }"
    function = eqsat.comprehension(text).f
    assert function.temporaries == ("t", "u")
    assert function.inferred({"x": (4,)}).shapes == {"x": (4,), "t": (4,), "u": (), "y": (4,)}
    listed = eqsat.comprehension(text.replace("(y)", "(y, t, u)")).f
    assert listed.temporaries == ()
    y, t, u = listed(X)
    np.testing.assert_array_equal(y, function(X))
    np.testing.assert_array_equal(t / u, y)


def test_arrays_of_any_library_on_this_machine_are_taken_where_they_lie() -> None:
    class HostArray:
        """What any library gives of its arrays by the protocol of DLPack, and nothing else."""

        def __init__(self, held: np.ndarray) -> None:
            self.held = held

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.held.__dlpack_device__()

        def __dlpack__(self, **asked: Any) -> Any:
            return self.held.__dlpack__(**asked)

    np.testing.assert_array_equal(MV(HostArray(A), HostArray(X)), A @ X)
    np.testing.assert_array_equal(MV(HostArray(A.T.copy().T), X), A @ X)
    out = np.full(2, 7, np.float32)
    assert MV(HostArray(A), X, out=out) is out
    np.testing.assert_array_equal(out, A @ X)
    with pytest.raises(ShapeError, match="mv, x: elements of float64"):
        MV(A, HostArray(X.astype(np.float64)))
