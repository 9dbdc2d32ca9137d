"""Dims that a model carries as text: formulas are read as what they mean, other texts stay names."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import eqsat
from eqsat.language.onnx.read.importer import load
from eqsat.language.onnx.write.exporter import to_model
from eqsat.language.terms import Sym, TensorType
from eqsat.language.terms.formulas import dim_of, text_of
from eqsat.runtime.backend import execute

OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("made.here", 1)]
N, M = Sym.named("n"), Sym.named("m")


def known(name: str) -> bool:
    return name in ("n", "m", "past.length")


@pytest.mark.parametrize(
    ("text", "dim"),
    [
        ("n - 3", N - 3),
        ("2*n + 1", 2 * N + 1),
        ("n**2*m", N * N * M),
        ("floor(n/2 - 1/2)", (N - 1) // 2),
        ("floor(floor(n/2 - 1/2)/2 - 1/2) + 1", ((N - 1) // 2 - 1) // 2 + 1),
        ("n//4", N // 4),
        ("ceiling(n/4)", -(-N // 4)),
        ("Max(1, n)", Sym.function("max", 1, N)),
        ("Mod(n, 2)", N % 2),
        ("4*n/2", 2 * N),
        ("past.length + 1", Sym.named("past.length") + 1),
    ],
)
def test_a_formula_is_read_as_the_dim_it_means_and_written_so_that_it_is_read_again(text: str, dim: Sym) -> None:
    assert dim_of(text, known) == dim
    assert dim_of(text_of(dim), known) == dim


@pytest.mark.parametrize(
    "text",
    [
        "batch-size",
        "n-best",
        "n/2",
        "n n",
        "(n",
        "n)",
        "3",
        "1.5*n",
        "n**99",
        "floor(n/0)",
        "exp(n)",
        "n.__class__",
        "-",
    ],
)
def test_a_text_that_is_no_formula_over_known_names_stays_a_name(text: str) -> None:
    assert dim_of(text, known) == Sym.named(text)


@pytest.mark.parametrize("text", ["(" * 500 + "n" + ")" * 500, "n+" * 5000 + "n", "9" * 40 + "*n"])
def test_a_text_that_would_take_long_stays_a_name(text: str) -> None:
    assert dim_of(text, known) == Sym.named(text)


def downsampled() -> onnx.ModelProto:
    """A model as symbolic shape inference leaves it: dims of inner values that only formulas relate to the inputs."""
    nodes = [
        helper.make_node("Custom", ["x"], ["h"], domain="made.here"),
        helper.make_node("Shape", ["h"], ["s"]),
        helper.make_node("Gather", ["s", "two"], ["height"]),
        helper.make_node("Concat", ["height", "minus"], ["target"], axis=0),
        helper.make_node("Reshape", ["z", "target"], ["y"]),
    ]
    half = "floor(floor(height/2 - 1/2)/2 - 1/2) + 1"
    graph = helper.make_graph(
        nodes,
        "downsampled",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "height", 8]),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, ["elements"]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            helper.make_tensor("two", TensorProto.INT64, [1], [2]),
            helper.make_tensor("minus", TensorProto.INT64, [1], [-1]),
        ],
        value_info=[helper.make_tensor_value_info("h", TensorProto.FLOAT, [1, 3, half, 2])],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=OPSETS)


def test_a_dim_that_no_value_shows_is_computed_from_those_of_inputs() -> None:
    # Nothing but the dim was read of the value that had it, so that value is gone.
    model = to_model(load(downsampled()))
    assert "Custom" not in [n.op_type for n in model.graph.node]
    feeds = {"x": np.zeros((1, 3, 13, 8), np.float32), "z": np.arange(12, dtype=np.float32)}
    made = execute(load(model), feeds, "onnxruntime")["y"]
    assert made.shape == (3, 4)


@pytest.mark.parametrize("size", [5, 9])
def test_a_name_that_only_a_multiple_of_it_shows_is_solved_for(size: int) -> None:
    g = eqsat.Graph("g")
    n = Sym.named("n")
    x = g.input("x", (2 * n + 1, 3))
    g.output("y", g.apply("expand", g.input("z", (1,)), shape=(n,)))
    g.output("same", x)
    graph = g.build()
    feeds = {"x": np.zeros((size, 3), np.float32), "z": np.ones(1, np.float32)}
    for backend in ("onnxruntime", "numpy"):
        assert execute(graph, feeds, backend)["y"].shape == (size // 2,)


def test_formulas_of_a_graph_that_is_written_are_read_back_as_the_same_dims() -> None:
    g = eqsat.Graph("g")
    n = Sym.named("n")
    x, past = g.input("x", (n, 4)), g.input("past", (2 * n + 1, 4))
    g.output("y", eqsat.concat([past, x], axis=0))
    model = to_model(g.build())
    texts = [[d.dim_param for d in v.type.tensor_type.shape.dim] for v in (*model.graph.input, *model.graph.output)]
    assert texts == [["n", ""], ["2*n + 1", ""], ["3*n + 1", ""]]
    again = load(model)
    assert again.types["past"] == TensorType.of("float32", (2 * n + 1, 4))
    assert again.type(again.outputs["y"]) == TensorType.of("float32", (3 * n + 1, 4))


def test_dims_are_added_to_numbers_of_any_kind() -> None:
    for three in (3, np.int64(3), np.array(3), np.uint8(3)):
        assert (N + three, three * N if isinstance(three, int) else N * three, N - three) == (N + 3, 3 * N, N - 3)
        assert isinstance((N + three - N), int)
