"""Graphs built in Python: what users write, and what they read when it is wrong."""

import numpy as np
import pytest

from eqsat.errors import DeclarationError, GraphError, ShapeError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.declaration.spec import broadcast
from eqsat.language.graphs import functions as F
from eqsat.language.graphs.builder import Builder, Tensor
from eqsat.language.graphs.interpret import run
from eqsat.language.ops import op
from eqsat.language.terms.dims import Sym


def value(tensor: Tensor, **inputs: np.ndarray) -> np.ndarray:
    g = tensor.graph
    g.output("y", tensor)
    return run(g.build(), inputs, Floats())["y"]


X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def given() -> Tensor:
    return Builder("g").input("x", (2, 3, 4))


def test_attention_reads_as_in_a_paper() -> None:
    g = Builder("attention")
    x = g.input("x", ("batch", 4, 6))
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((6, 6)).astype(np.float32) for _ in range(3)]
    q, k, v = (x @ g.constant(w) + g.constant(w[0]) for w in weights)
    p = F.softmax(q @ k.transpose(0, 2, 1) / 8.0, axis=-1)
    g.output("y", p @ v)
    graph = g.build()
    assert graph.type("matmul_4").dims == (Sym.named("batch"), 4, 6)
    data = rng.standard_normal((2, 4, 6)).astype(np.float32)
    a, b, c = (data @ w + w[0] for w in weights)
    scores = np.exp(a @ b.transpose(0, 2, 1) / 8)
    wanted = scores / scores.sum(-1, keepdims=True) @ c
    np.testing.assert_allclose(run(graph, {"x": data}, Floats())["y"], wanted, rtol=1e-5)


def test_operators_on_either_side_of_numbers_and_arrays() -> None:
    x = given()
    y = 1 - (2 * x + X) / 4.0 - -(x**2)
    np.testing.assert_allclose(value(y, x=X), 1 - (2 * X + X) / 4 + X**2)


def test_numbers_take_the_element_type_of_the_tensor() -> None:
    for dtype in ("float32", "float16", "float64", "int64", "bfloat16"):
        x = Builder().input("x", (2,), dtype)
        assert (x + 1).dtype.value == (np.float64(2) * x).dtype.value == dtype
    condition = given() > 3
    assert F.where(condition, 1.0, given_like(condition)).dtype.value == "float32"


def given_like(tensor: Tensor) -> Tensor:
    return tensor.graph.input("z", tensor.shape)


def test_equal_constants_become_one() -> None:
    x = given()
    y = (x + 1.0) * 1.0 + np.float32(1)
    x.graph.output("y", y)
    assert len(x.graph.build().constants) == 1


INDICES = [
    0, -1, slice(1, None), slice(None, None, -1), (Ellipsis, 0), (slice(None), 1), (0, None, slice(0, 2)),
    (slice(None), slice(None, None, 2), slice(-3, -1)), (None, Ellipsis, None), (1, 2, 3), slice(5, 9), slice(2, 0, -1),
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_indexing_is_that_of_numpy(index: object) -> None:
    made = given()[index]
    np.testing.assert_array_equal(value(made, x=X), X[index])
    assert made.type.static == X[index].shape


def test_indexing_of_named_dims() -> None:
    x = Builder().input("x", ("n", 4))
    n = Sym.named("n")
    assert x[-1:].shape == (1, 4)
    assert x[-1].shape == (4,)
    assert x[:, 1:3].shape == (n, 2)
    assert x[1:].shape[0].evaluate({"n": 0}) == 0  # type: ignore[union-attr]
    np.testing.assert_array_equal(value(x[1:-1], x=X[0]), X[0][1:-1])


def test_friendly_forms_agree_with_numpy() -> None:
    x = given()
    g = x.graph
    first, second = F.split(x, 2, axis=-1)
    made = {
        "stack": (F.stack([first, second], 1), np.stack([X[..., :2], X[..., 2:]], 1)),
        "sizes": (F.split(x, [1, 3], axis=2)[1], X[..., 1:]),
        "squeeze": (F.squeeze(F.unsqueeze(x, [0, -1])), X),
        "flatten": (F.flatten(x), X.reshape(2, 12)),
        "mean": (F.reduce_mean(x), X.mean()),
        "max": (F.reduce_max(x, -1, keepdims=True), X.max(-1, keepdims=True)),
        "clip": (F.clip(x, 2.0, 5.0), X.clip(2, 5)),
        "low": (F.clip(x, None, 5.0), X.clip(None, 5)),
        "einsum": (F.einsum("bij,bkj->bik", x, x), X @ X.transpose(0, 2, 1)),
        "gather": (F.gather(x, [1, -1], axis=2), X[..., [1, -1]]),
        "transpose": (F.transpose(x), X.T),
        "reshape": (F.reshape(x, (3, -1)), X.reshape(3, -1)),
        "pool": (F.avg_pool(x, 2, strides=2), X.reshape(2, 3, 2, 2).mean(-1)),
        "unpacked": (sum(x), X.sum(0)),
        "one-hot": (F.one_hot(g.constant([2, 0]), np.float32([0, 1]), depth=3), np.eye(3)[[2, 0]]),
        "one-hot columns": (F.one_hot(g.constant([2, 0]), np.float32([0, 1]), depth=3, axis=0), np.eye(3)[[2, 0]].T),
    }
    for name, (tensor, _) in made.items():
        g.output(name, tensor)
    results = run(g.build(), {"x": X}, Floats())
    for name, (_, wanted) in made.items():
        np.testing.assert_allclose(results[name], wanted, err_msg=name)


def test_conv_takes_single_numbers() -> None:
    g = Builder()
    x = g.input("x", ("n", 3, 8, 8))
    assert F.conv(x, np.zeros((4, 3, 3, 3), np.float32), strides=2, pads=1).shape == (Sym.named("n"), 4, 4, 4)
    assert F.max_pool(x, 2, strides=2).shape == (Sym.named("n"), 3, 4, 4)


def test_axes_are_counted_from_the_left() -> None:
    x = given()
    F.softmax(x, axis=-1)
    F.layer_norm(x, np.ones(4, np.float32), axis=-1)
    x.graph.output("y", F.concat([x, x], axis=-2))
    assert [n.attrs["axis"] for n in x.graph.build().nodes] == [2, 2, 1]


@pytest.mark.parametrize("op", ["conv", "conv_transpose"])
def test_a_bias_fits_unless_its_size_is_known_to_differ(op: str) -> None:
    g = Builder()
    x, w, named = g.input("x", (1, 4, 5, 5)), g.input("w", (4, 4, 1, 1)), g.input("b", ("n",))
    four = g.input("four", (4,))
    assert g.apply(op, x, w, named).shape == g.apply(op, x, w, four).shape == (1, 4, 5, 5)
    filters = g.input("v", ("n", 4, 1, 1) if op == "conv" else (4, "n", 1, 1))
    wanted = (1, Sym.named("n"), 5, 5)
    assert g.apply(op, x, filters, named).shape == g.apply(op, x, filters, four).shape == wanted
    for wrong in ((3,), (4, 1), ()):
        with pytest.raises(ShapeError, match=r"bias float32\[.*\] for 4 output channels\n  expected a vector of 4"):
            g.apply(op, x, w, g.input(f"wrong{len(wrong)}", wrong))


def test_what_gemm_adds_fits_unless_it_is_known_to_be_larger() -> None:
    g = Builder()
    x, y, named = g.input("x", (1, 2)), g.input("y", (2, 3)), g.input("n", ("n", 2))
    for shape in ((3,), (1, 3), (1, 1), (), ("n", 3), (1, "n")):
        assert g.apply("gemm", x, y, g.input(f"c{shape}", shape)).shape == (1, 3)
    assert g.apply("gemm", named, y, g.input("five", (5, 3))).shape == (Sym.named("n"), 3)
    for wrong in ((2, 3), (1, 1, 3)):
        with pytest.raises(ShapeError, match=r"to which \[.*\] does not broadcast\n  expected a third operand"):
            g.apply("gemm", x, y, g.input(f"wrong{len(wrong)}", wrong))


def test_reshape_works_out_a_dim_of_named_ones() -> None:
    x = Builder().input("x", ("n", 6, 4))
    n = Sym.named("n")
    assert x.reshape("n", -1).shape == (n, 24)
    assert x.reshape(-1, 8).shape == (n * 3, 8)
    with pytest.raises(ShapeError, match=r"reshape of 'x', float32\[n, 6, 4\], to \[-1, 5\](.|\n)*5 divides"):
        x.reshape(-1, 5)


def test_an_operator_of_a_user_is_applied_by_name() -> None:
    @op("halved_sum", infer=broadcast(), pointwise=True)
    def halved_sum(xp, a, b, *, times: int = 1):  # type: ignore[no-untyped-def]
        """(a + b) / 2, so many times."""
        return xp.multiply(xp.add(a, b), xp.number(0.5**times, a))

    x = given()
    np.testing.assert_allclose(value(x.graph.apply("halved_sum", x, 2.0, times=2), x=X), (X + 2) / 4)
    assert F.halved_sum(x, x).shape == (2, 3, 4)
    with pytest.raises(GraphError, match="halved_sum has no attribute 'time'"):
        F.halved_sum(x, x, time=3)
    with pytest.raises(DeclarationError, match="declared twice"):
        op("halved_sum", infer=broadcast())(halved_sum.reference)


ERRORS = {
    "shapes": (lambda x: x + np.zeros((5, 4), np.float32), "do not broadcast", "g: node 'add_0' (add) of float32"),
    "inner": (lambda x: x @ np.zeros((5, 4), np.float32), "sums over dims 4 and 5", "node 'matmul_0' (matmul) of"),
    "dtype": (lambda x: x * np.zeros((3, 4)), "element types differ: float32, float64", "cast the operands"),
    "axis": (lambda x: F.softmax(x, axis=3), "axis 3 of float32[2, 3, 4]", "expected an axis from -3 to 2"),
    "perm": (lambda x: x.transpose(0, 1), "perm [0, 1] for float32[2, 3, 4]", "a permutation of 3 axes"),
    "reshape": (lambda x: x.reshape(5, 5), "reshape of float32[2, 3, 4] to [5, 5]", "expected 24 elements, not 25"),
    "concat": (lambda x: F.concat([x, x[0]]), "concat of float32[2, 3, 4], float32[3, 4]", "operands of one rank"),
    "split": (lambda x: F.split(x, [1, 2], axis=2), "into [1, 2]", "expected sizes that sum to 4"),
    "parts": (lambda x: F.split(x, 3, axis=2), "cannot be split into 3 equal parts along axis 2", "g:"),
    "conv": (
        lambda x: F.conv(F.unsqueeze(x, 0), np.zeros((4, 3, 1, 1), np.float32)),
        "weight has 3 input channels a group, the input has 2 in 1 groups",
        "set group, or fix the weight",
    ),
    "window": (lambda x: F.max_pool(x, 7), "a window of 7 with dilation 1 does not fit into 4", "no larger"),
    "padding": (
        lambda x: F.avg_pool(x, 2, pads=(2, 0)),
        "a window lies in the padding of axis 2 alone",
        "expected pads smaller than windows",
    ),
    "gain": (
        lambda x: F.layer_norm(x, np.ones((2, 1, 4), np.float32), axis=-1),
        "scale or bias float32[2, 1, 4] for float32[2, 3, 4] normalised from axis 2 on",
        "normalise with a scale of ones, then multiply and add",
    ),
    "integers": (lambda x: F.gelu(x.cast("int32")), "an operand of int32", "expected a tensor of floats"),
    "factor": (
        lambda x: F.gemm(x[0].cast("int32"), x[1].cast("int32"), alpha=0.5, trans_b=True),
        "alpha 0.5 and beta 1.0 of a gemm of int32[3, 4]",
        "expected whole numbers for integers",
    ),
    "index": (lambda x: x[5], "index 5 into axis 0", "expected less than 2"),
    "indices": (lambda x: x[0, 0, 0, 0], "4 indices into", "at most 3"),
    "fraction": (lambda x: x.cast("int64") + 0.5, "0.5 is no int64", "cast the tensor"),
    "squeeze": (lambda x: F.squeeze(x, 1), "squeeze of axis 1", "axes of size 1"),
    "unknown": (lambda x: x.graph.apply("sofmax", x), "no operator 'sofmax'", "did you mean softmax"),
    "operands": (lambda x: F.softmax(x, x, axis=0), "softmax got 2 operands", "1 to 1"),
    "attribute": (lambda x: x.graph.apply("transpose", x), "transpose needs attribute 'perm'", "transpose(perm=…)"),
    "bool": (lambda x: F.and_(x, x), "operands are float32[2, 3, 4]", "expected booleans"),
    "scale": (lambda x: F.layer_norm(x, np.ones(3, np.float32)), "scale or bias float32[3]", "to the axes normalised"),
    "none": (lambda x: F.relu(2.0), "relu of no tensor", "graph.apply('relu', …)"),
    "truth": (lambda x: bool(x > 1), "has no truth value", "where(condition, a, b)"),
    "alien": (lambda x: x + Builder("other").input("z", (1,)), "belongs to graph 'other'", "tensors of one graph"),
    "twice": (lambda x: x.graph.input("x", (1,)), "value 'x' is defined twice", "one definition a name"),
    "output": (lambda x: [x.graph.output("y", x) for _ in range(2)], "output 'y' is defined twice", "one tensor"),
    "nothing": (lambda x: x.graph.build(), "the graph has no output", "name one with .output(name, tensor)"),
    "type": (lambda x: x.graph.input("n", (2,), "foo"), "no element type 'foo'", "one of float32, float64"),
    "value": (lambda x: x.graph.type_of("nope"), "g: no value 'nope'", "the name of one that was made"),
    "negative": (lambda x: x.graph.input("n", (-2,)), "negative dim", "dims of 0 or more"),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_errors_say_what_where_and_what_was_expected(case: str) -> None:
    build, *parts = ERRORS[case]
    with pytest.raises(GraphError) as caught:
        build(given())
    for part in parts:
        assert part in str(caught.value)


def test_an_unknown_function_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no function 'sofmax'"):
        F.sofmax  # noqa: B018
    assert "softmax" in dir(F)


def test_an_index_that_stands_twice_in_one_operand_has_one_size() -> None:
    g = Builder("diagonal")
    x = g.input("x", (1, 2))
    with pytest.raises(ShapeError, match="one size for index 'i' of one operand, not 1 and 2"):
        F.einsum("ii->i", x)
    assert F.einsum("ij,ij->ij", x, g.input("y", (3, 2))).shape == (3, 2)
