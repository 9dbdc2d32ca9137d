"""`eqsat.load` and `eqsat.inspect`: the model before it is optimised."""

import json
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import eqsat
from eqsat.errors import ImportModelError, UsageError
from eqsat.language.terms import Graph


@pytest.fixture
def model(tmp_path):
    """The path of a model with a named dim, a weight and an operator of an unknown domain."""
    w = onnx.numpy_helper.from_array(np.ones((8, 4), np.float32), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    made = helper.make_model(
        helper.make_graph(nodes, "small", [x], [y], [w]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.save(made, tmp_path / "small.onnx")
    return tmp_path / "small.onnx"


def built():
    g = eqsat.Graph("twice")
    x = g.input("x", ("batch", 8))
    g.output("y", eqsat.relu(x + x))
    return g


SOURCES: dict[str, Callable] = {
    "path": lambda path: path,
    "text": str,
    "proto": onnx.load,
    "builder": lambda _: built(),
    "graph": lambda _: built().build(),
}


@pytest.mark.parametrize("source", SOURCES)
def test_a_loaded_model_is_looked_at_and_run_and_optimised(source, model):
    loaded = eqsat.load(SOURCES[source](model))
    assert isinstance(loaded, Graph)
    assert loaded.inputs == ("x",)
    assert str(loaded.type("x")) == "float32[batch, 8]"
    x = np.arange(16, dtype=np.float32).reshape(2, 8)
    before = loaded.run(x=x)["y"]
    result = eqsat.optimize(loaded, measure=False)
    np.testing.assert_allclose(result.run(x=x)["y"], before)


def test_an_operator_that_onnx_lacks_is_run_on_numpy_with_a_warning():
    @eqsat.op("tripled", pointwise=True)
    def _tripled(xp, x):
        return x * 3

    g = eqsat.Graph("own")
    g.output("y", g.apply("tripled", g.input("x", (2,))))
    with pytest.warns(UserWarning, match="it runs on the NumPy reference instead"):
        assert eqsat.load(g).run(x=np.ones(2, np.float32))["y"].tolist() == [3.0, 3.0]


@pytest.mark.parametrize("source", SOURCES)
def test_a_model_is_inspected_from_python(source, model):
    content = eqsat.inspect(SOURCES[source](model), sizes={"batch": 3})
    assert content.inputs == {"x": "float32[batch, 8]"}
    assert content.named_dims == {"batch": 3}
    assert content.operators["relu"].count == 1
    assert content.flops == sum(node.flops for node in content.nodes)
    assert "float32[batch, 8]" in str(content)
    assert json.loads(content.to_json()) == content.document()


def test_inspect_prints_the_text_of_the_command(model, run):
    _, out, _ = run("inspect", model, "--size", "batch=3")
    assert str(eqsat.inspect(model, sizes={"batch": 3})) == "\n".join(line.rstrip() for line in out.splitlines())


def test_inspect_of_a_loaded_graph_is_that_of_its_model(model):
    assert eqsat.inspect(eqsat.load(model)) == eqsat.inspect(model)


def test_a_cell_shows_a_dozen_operators_and_opaque_nodes_escaped():
    names = [f"n{i}" for i in range(20)]
    nodes = [
        helper.make_node(f"Odd{i}", ["x" if i == 0 else names[i - 1]], [name], f"<script>{i}", domain="com.example")
        for i, name in enumerate(names)
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info(names[-1], TensorProto.FLOAT, [2])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    odd = helper.make_model(helper.make_graph(nodes, "odd", [x], [y]), opset_imports=opsets, ir_version=8)
    content = eqsat.inspect(odd)
    html = content._repr_html_()
    assert "<script>" not in html
    assert html.count("&lt;script&gt;") == 12
    assert "and 8 more operators" in html
    assert "and 8 more opaque nodes" in html
    assert str(content).count("<script>") == 20


def test_a_dim_that_the_model_lacks_is_named_with_those_it_has(model):
    with pytest.raises(UsageError, match=r"no named dim 'bach'\n  expected one of batch"):
        eqsat.inspect(model, sizes={"bach": 3})


@pytest.mark.parametrize("call", [eqsat.load, eqsat.inspect, eqsat.optimize])
def test_example_inputs_go_with_modules_of_pytorch_alone(call, model):
    with pytest.raises(UsageError, match="example inputs for a PosixPath"):
        call(model, (1,))


def foreign(module, name="Model"):
    """An object whose class says that it is from a module."""
    return type(name, (), {"__module__": module})()


@pytest.mark.parametrize("arguments", [(), ((1,),)], ids=["alone", "with inputs"])
@pytest.mark.parametrize("call", [eqsat.load, eqsat.inspect, eqsat.optimize])
@pytest.mark.parametrize(
    ("model", "words"),
    [
        (foreign("keras.src.models.functional"), r"a Model of Keras is not read as it is[\s\S]*model\.export"),
        (foreign("tensorflow.python.eager.def_function"), r"of TensorFlow is not read as it is[\s\S]*tf2onnx"),
        (foreign("sklearn.pipeline", "Pipeline"), r"a Pipeline of scikit-learn[\s\S]*skl2onnx\.to_onnx"),
        (foreign("jaxlib._jax", "PjitFunction"), r"a PjitFunction of JAX[\s\S]*jax2onnx\.to_onnx"),
        (foreign("flax.linen.module"), r"a Model of Flax[\s\S]*jax2onnx"),
        (foreign("torch.jit", "ScriptFunction"), r"a ScriptFunction of PyTorch[\s\S]*pass a torch\.nn\.Module"),
        (built, r"a function is no model[\s\S]*jax2onnx\.to_onnx\(function, inputs\)"),
        (3, r"^a int is no model\n  expected a path, an onnx\.ModelProto, an eqsat\.Graph, or a model of PyTorch$"),
    ],
    ids=["keras", "tensorflow", "sklearn", "jax", "flax", "torch", "function", "number"],
)
def test_a_model_of_another_framework_is_refused_with_the_way_to_onnx(call, model, words, arguments):
    with pytest.raises(ImportModelError, match=words):
        call(model, *arguments)


def test_a_subclass_of_a_frameworks_model_is_known_by_its_base():
    base = type("Module", (), {"__module__": "flax.nnx.module"})
    own = type("Net", (base,), {"__module__": "__main__"})
    with pytest.raises(ImportModelError, match="a Net of Flax"):
        eqsat.load(own())
