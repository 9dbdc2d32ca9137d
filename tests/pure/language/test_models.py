"""The benchmark models: fixtures are small and well-formed, weights come back the same, builders mean what they say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from benchmarks.models import FIXTURES, MODELS, fixture, load
from benchmarks.models.nasnet import nasnet_a
from benchmarks.models.nasrnn import nasrnn
from benchmarks.models.sru import sru_text_classifier, sru_translation
from benchmarks.models.stripped import is_stripped, refill, strip
from benchmarks.models.taso_bert import taso_bert

PATHS = sorted(FIXTURES.glob("*.onnx"))
NAMES = [path.stem for path in PATHS]

SMALL: dict[str, Callable[[int, int], ModelProto]] = {
    "sru_text_classifier": lambda batch, seed: sru_text_classifier(batch, seed, steps=3, hidden=8),
    "sru_translation": lambda batch, seed: sru_translation(batch, seed, steps=3, hidden=8, vocabulary=5),
    "nasrnn": lambda batch, seed: nasrnn(batch, seed, steps=2, hidden=8),
    "nasnet_a": lambda batch, seed: nasnet_a(batch, seed, normal_cells=1),
    "taso_bert": lambda batch, seed: taso_bert(batch, seed, layers=1),
}


def _model(initializers: list[TensorProto]) -> ModelProto:
    """A convolution, a batch normalisation and a matrix; every initializer a weight of one of them."""
    nodes = [
        helper.make_node("Conv", ["x", "filter"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["a", "gain", "bias", "mean", "variance"], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Reshape", ["c", "shape"], ["d"]),
        helper.make_node("MatMul", ["d", "matrix"], ["e"]),
        helper.make_node("Add", ["e", "mask"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 80, 4, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 100])
    graph = helper.make_graph(nodes, "small", [x], [y], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def small() -> ModelProto:
    rng = np.random.default_rng(0)
    filters = rng.standard_normal((80, 80, 3, 3))
    values = {
        "filter": filters,
        "gain": np.ones(80),
        "bias": np.zeros(80),
        "mean": np.zeros(80),
        "variance": np.ones(80),
        "matrix": rng.standard_normal((1280, 100)),
        "mask": np.where(np.arange(100) < 50, 0, -np.inf),
    }
    tensors = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in values.items()]
    return _model([*tensors, numpy_helper.from_array(np.array([1, 1280]), "shape")])


def _arrays(model: ModelProto) -> dict[str, np.ndarray]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def _with_inputs_for_weights(model: ModelProto) -> ModelProto:
    """The same graph with each stripped tensor an input, which checker and shape inference accept without data."""
    result = ModelProto()
    result.CopyFrom(model)
    del result.graph.initializer[:]
    for tensor in model.graph.initializer:
        if is_stripped(tensor):
            result.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
        else:
            result.graph.initializer.append(tensor)
    return result


def test_strip_takes_weights_and_leaves_integers_and_masks(small: ModelProto) -> None:
    before = small.SerializeToString(deterministic=True)
    stripped = strip(small)
    assert {t.name for t in stripped.graph.initializer if is_stripped(t)} == {
        "filter",
        "gain",
        "bias",
        "mean",
        "variance",
        "matrix",
    }
    for old, new in zip(small.graph.initializer, stripped.graph.initializer, strict=True):
        assert (old.name, old.data_type, list(old.dims)) == (new.name, new.data_type, list(new.dims))
    assert stripped.ByteSize() < 2500
    assert small.SerializeToString(deterministic=True) == before


def test_stripped_data_cannot_be_read_as_zeros(small: ModelProto, tmp_path: object) -> None:
    path = f"{tmp_path}/stripped.onnx"
    onnx.save(strip(small), path)
    with pytest.raises(Exception, match="stripped"):
        onnx.load(path)


def test_strip_keeps_tensors_of_64_elements_and_strips_65() -> None:
    tensors = [numpy_helper.from_array(np.ones(n, np.float32), f"w{n}") for n in (64, 65)]
    stripped = strip(_model(tensors))
    assert [is_stripped(tensor) for tensor in stripped.graph.initializer] == [False, True]


def test_strip_twice_is_strip_once(small: ModelProto) -> None:
    once = strip(small)
    assert strip(once).SerializeToString(deterministic=True) == once.SerializeToString(deterministic=True)


def test_refill_repeats_itself_and_follows_the_seed(small: ModelProto) -> None:
    stripped = strip(small)
    first, again, other = refill(stripped, seed=3), refill(stripped, seed=3), refill(stripped, seed=4)
    assert first.SerializeToString(deterministic=True) == again.SerializeToString(deterministic=True)
    assert not np.array_equal(_arrays(first)["matrix"], _arrays(other)["matrix"])
    assert any(is_stripped(tensor) for tensor in stripped.graph.initializer)


def test_refill_scales_by_the_reading_operator(small: ModelProto) -> None:
    model = refill(strip(small))
    weights = _arrays(model)
    assert weights["filter"].std() == pytest.approx(np.sqrt(2 / (80 * 9)), rel=0.05)
    assert weights["matrix"].std() == pytest.approx(np.sqrt(1 / 1280), rel=0.05)
    assert 0.5 < weights["gain"].min() < weights["gain"].max() < 1.5
    assert 0 < weights["variance"].min() < 1 < weights["variance"].max()
    assert np.abs(weights["mean"]).max() < 0.5 and weights["mean"].std() > 0
    assert np.array_equal(weights["mask"], _arrays(small)["mask"])
    onnx.checker.check_model(model, full_check=True)


def test_refill_keeps_equal_tensors_equal_and_others_apart(small: ModelProto) -> None:
    weights = _arrays(refill(strip(small)))
    assert np.array_equal(weights["bias"], weights["mean"])
    assert np.array_equal(weights["gain"], weights["variance"])
    assert not np.array_equal(weights["gain"], weights["bias"])


@pytest.mark.parametrize(("transposed", "fan_in"), [(0, 90), (1, 70)])
def test_refill_reads_gemm_transposition(transposed: int, fan_in: int) -> None:
    node = helper.make_node("Gemm", ["x", "w"], ["y"], transB=transposed)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, fan_in])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weight = numpy_helper.from_array(np.ones((90, 70), np.float32), "w")
    model = helper.make_model(helper.make_graph([node], "gemm", [x], [y], [weight]))
    assert _arrays(refill(strip(model)))["w"].std() == pytest.approx(fan_in**-0.5, rel=0.05)


def test_fixtures_are_all_there() -> None:
    assert {
        "bert_base",
        "bert_base_dynamo",
        "bert_base_dynamic",
        "bert_base_dynamic_dynamo",
        "bert_48_layers",
        "vit_base",
        "llama",
        "llama_dynamo",
        "llama_dynamic",
        "llama_dynamic_dynamo",
        "resnet50",
        "resnet50_dynamo",
        "resnext50",
        "inception_v3",
        "squeezenet1_1",
        "vgg19",
        "mobilenet_v2",
    } <= set(NAMES)
    assert sum(path.stat().st_size for path in PATHS) < 6_000_000


@pytest.mark.parametrize("path", PATHS, ids=NAMES)
def test_fixture_is_under_a_megabyte(path: object) -> None:
    assert FIXTURES.joinpath(str(path)).stat().st_size < 1_000_000


@pytest.mark.parametrize("name", NAMES)
def test_fixture_is_stripped_and_well_formed(name: str) -> None:
    model = fixture(name)
    assert strip(model).SerializeToString(deterministic=True) == model.SerializeToString(deterministic=True)
    onnx.checker.check_model(_with_inputs_for_weights(model), full_check=True)


def test_bert_is_the_export_of_448_nodes_and_436_megabytes() -> None:
    model = fixture("bert_base")
    assert sum(node.op_type != "Constant" for node in model.graph.node) == 448
    lengths = [int(e.value) for t in model.graph.initializer for e in t.external_data if e.key == "length"]
    assert round(sum(lengths) / 1e6) == 436


def test_dynamic_fixtures_name_their_dims() -> None:
    for name in (name for name in NAMES if "dynamic" in name):
        for value in fixture(name).graph.input:
            assert [dim.dim_param for dim in value.type.tensor_type.shape.dim] == ["batch", "sequence"]


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", SMALL)
def test_builder_gives_a_typed_graph_and_the_same_bytes(name: str, batch: int) -> None:
    model = SMALL[name](batch, 0)
    onnx.checker.check_model(model, full_check=True)
    serialised = model.SerializeToString(deterministic=True)
    assert serialised == SMALL[name](batch, 0).SerializeToString(deterministic=True)
    assert serialised != SMALL[name](batch, 1).SerializeToString(deterministic=True)


def test_classifier_computes_the_recurrence_of_the_paper() -> None:
    model = sru_text_classifier(2, steps=4, hidden=8)
    w = {name: value.astype(np.float64) for name, value in _arrays(model).items()}
    x = np.random.default_rng(0).standard_normal((4, 2, 8)).astype(np.float32)

    def sigmoid(v: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-v))

    c, hidden = w["c_0"][0], []
    for step in x:
        forget = sigmoid(step @ w["sru_forget"] + w["sru_forget_bias"])
        reset = sigmoid(step @ w["sru_reset"] + w["sru_reset_bias"])
        c = forget * c + (1 - forget) * (step @ w["sru_candidate"])
        hidden.append(reset * np.tanh(c) + (1 - reset) * step)
    expected = np.mean(hidden, axis=0) @ w["classifier"] + w["classifier_bias"]
    (logits,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)


def test_classifier_multiplies_each_step_by_shared_weights() -> None:
    model = sru_text_classifier(steps=20, hidden=8)
    products = [node.input[1] for node in model.graph.node if node.op_type == "MatMul"]
    assert {name: products.count(name) for name in products} == dict.fromkeys(
        ("sru_candidate", "sru_forget", "sru_reset"), 20
    )


def test_taso_bert_keeps_its_attention_results_as_outputs() -> None:
    model = taso_bert(layers=2)
    assert [value.name for value in model.graph.output] == ["y", "attention_0", "attention_1"]
    assert "Softmax" not in {node.op_type for node in model.graph.node}


def test_load_knows_every_model_and_says_which() -> None:
    assert sum(name.startswith("light_") for name in MODELS) == 9
    assert {"sru_text_classifier", "sru_translation", "nasrnn", "nasnet_a", "taso_bert", *NAMES} <= set(MODELS)
    assert len(load("light_squeezenet").graph.node) == 105
    with pytest.raises(KeyError, match=r"no model named 'resnet51'; known: .*resnet50"):
        load("resnet51")


def test_load_gives_a_fixture_its_weights() -> None:
    model = load("squeezenet1_1")
    assert not any(is_stripped(tensor) for tensor in model.graph.initializer)
    onnx.checker.check_model(model, full_check=True)


def test_refill_looks_through_a_transpose_of_the_weight() -> None:
    nodes = [helper.make_node("Transpose", ["w"], ["t"]), helper.make_node("MatMul", ["x", "t"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 70])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weight = numpy_helper.from_array(np.ones((90, 70), np.float32), "w")
    model = helper.make_model(helper.make_graph(nodes, "transposed", [x], [y], [weight]))
    assert _arrays(refill(strip(model)))["w"].std() == pytest.approx(70**-0.5, rel=0.05)
