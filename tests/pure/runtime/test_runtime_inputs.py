"""What a graph's inputs must be, and what callers read when they are not."""

import numpy as np
import pytest

from eqsat.errors import BackendError
from eqsat.language import ops  # noqa: F401  (registers the operators)
from eqsat.language.terms import Graph, Node, Sym
from eqsat.language.terms.types import OpaqueType, TensorType
from eqsat.runtime.backend import BACKENDS, execute, select
from eqsat.runtime.inputs import checked_inputs

N = Sym.named("n")


def product_graph() -> Graph:
    """The product of a and b over a named dim n that both inputs share."""
    types = {
        "a": TensorType.of("float32", ("n", 3)),
        "b": TensorType.of("float32", (3, "n")),
        "y": TensorType.of("float32", ("n", "n")),
    }
    return Graph("product", ("a", "b"), {"y": "y"}, (Node("matmul", ("a", "b"), ("y",)),), {}, types)


def good(n: int = 2) -> dict[str, np.ndarray]:
    return {"a": np.ones((n, 3), np.float32), "b": np.ones((3, n), np.float32)}


def test_inputs_that_fit_are_run():
    np.testing.assert_array_equal(execute(product_graph(), good(), "numpy")["y"], np.full((2, 2), 3, np.float32))


def test_a_named_dim_may_be_zero():
    assert execute(product_graph(), good(0), "numpy")["y"].shape == (0, 0)


def test_lists_take_the_declared_element_type():
    made = checked_inputs(product_graph(), {"a": [[1, 2, 3]], "b": [[1], [2], [3]]})
    assert made["a"].dtype == np.float32


@pytest.mark.parametrize(
    ("change", "what", "expected", "remedy"),
    [
        ({"a": None}, "input 'a' is missing", "a: float32[n, 3]", "pass a=…; the graph has inputs a, b"),
        ({"c": 1}, "unknown input 'c'", "inputs a: float32[n, 3], b: float32[3, n]", "leave it out"),
        (
            {"a": np.ones((2, 4), np.float32)},
            "input 'a' of shape [2, 4] has 4 at axis 1, not 3",
            "a: float32[n, 3]",
            "",
        ),
        ({"a": np.ones(3, np.float32)}, "input 'a' of shape [3] has rank 1, not 2", "a: float32[n, 3]", ""),
        ({"a": np.ones((2, 3))}, "input 'a' has element type float64", "float32[n, 3]", "a.astype('float32')"),
        ({"a": [[1], [2, 3]]}, "input 'a' is no tensor", "float32[n, 3]", "pass a NumPy array"),
        (
            {"b": np.ones((3, 5), np.float32)},
            "named dim 'n' is 2 in input 'a' and 5 in input 'b'",
            "one size a named dim",
            "pass inputs that agree in it",
        ),
    ],
)
def test_each_misfit_is_named_with_its_remedy(change, what, expected, remedy):
    given = {k: v for k, v in {**good(), **change}.items() if v is not None}
    with pytest.raises(BackendError) as caught:
        execute(product_graph(), given, "numpy")
    assert caught.value.where == "product"
    assert what in caught.value.what
    assert expected in caught.value.expected
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("number", [256, -1])
def test_numbers_beyond_the_element_type_are_refused(number):
    types = {"a": TensorType.of("uint8", (1,))}
    with pytest.raises(BackendError, match=r"input 'a' is no tensor: .* out of bounds for uint8") as caught:
        checked_inputs(Graph("bytes", ("a",), {"a": "a"}, (), {}, types), {"a": [number]})
    assert caught.value.remedy == "pass a NumPy array"


def test_a_dim_computed_from_names_is_checked_wherever_it_stands():
    types = {"a": TensorType.of("float32", (N * 2,)), "b": TensorType.of("float32", (N,))}
    graph = Graph("twice", ("a", "b"), {"a": "a", "b": "b"}, (), {}, types)
    three = np.ones(3, np.float32)
    assert len(checked_inputs(graph, {"a": np.ones(6, np.float32), "b": three})) == 2
    with pytest.raises(BackendError, match=r"input 'a' has 5 at axis 0, where 2\*n is 6"):
        checked_inputs(graph, {"a": np.ones(5, np.float32), "b": three})


def test_values_that_are_no_tensors_and_shapes_unknown_pass():
    types = {"s": OpaqueType("seq(float32[?])"), "x": TensorType.of("string", None)}
    graph = Graph("odd", ("s", "x"), {"s": "s"}, (), {}, types)
    made = checked_inputs(graph, {"s": [1, 2], "x": np.array([["word"]])})
    assert made["s"] == [1, 2]
    assert made["x"].dtype == object


def test_backends_are_chosen_by_name_or_as_the_first_that_works():
    assert select().available() is None
    assert [select(n).name for n in ("onnxruntime", "numpy")] == list(BACKENDS)[:2]
    with pytest.raises(
        BackendError, match=r"no backend 'tpu'\n  expected one of onnxruntime, numpy, openvino, c, cupy"
    ):
        select("tpu")


def test_a_backend_that_cannot_be_used_says_why_and_names_the_others(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BackendError, match="cannot be used here: onnxruntime is not installed") as caught:
        select("onnxruntime")
    assert caught.value.remedy == "use one of numpy, c"
    assert select().name == "numpy"
