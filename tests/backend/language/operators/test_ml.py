"""Arithmetic operators of ai.onnx.ml mean what ONNX Runtime computes; the others have the types of what it returns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper

import eqsat
from eqsat.language.onnx.read.importer import load
from eqsat.language.onnx.write.exporter import to_model
from eqsat.language.terms.types import TensorType
from tests.support.one_operator import agree, fits, is_lowered, model, opaque, session_run

RNG = np.random.default_rng(5)
X = RNG.standard_normal((5, 3)).astype(np.float32)
ZEROS = np.float32([[0, 0, 0], [1, -2, 0], [-1, -2, -3], [-1, 0, -2]])
GAPS = np.float32([[np.nan, 1, 2], [3, np.nan, -1], [-1, 0, np.nan]])
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def node(op_type: str, inputs: list[str], outputs: list[str], **attrs: Any) -> Any:
    return helper.make_node(op_type, inputs, outputs, domain="ai.onnx.ml", **attrs)


def kinds(proto: ModelProto) -> list[str]:
    return [n.op_type for n in proto.graph.node]


ARITHMETIC: list[tuple[str, Any, dict[str, Any]]] = [
    ("LinearRegressor", X, {"coefficients": [1.0, 2.0, 3.0], "intercepts": [0.5]}),
    ("LinearRegressor", X, {"coefficients": [1.0, 2.0, 3.0, -1.0, 0.5, 0.25], "targets": 2, "intercepts": [0.5, -2.0]}),
    ("LinearRegressor", X, {"coefficients": [1.0, 2.0, 3.0]}),
    ("Scaler", X, {"offset": [1.0, 2.0, 3.0], "scale": [0.3, 2.0, -1.0]}),
    ("Scaler", X, {"offset": [0.1], "scale": [3.0]}),
    ("Scaler", X.astype(np.float64), {"offset": [1.0, 2.0, 3.0], "scale": [0.3, 2.0, -1.0]}),
    ("Scaler", RNG.integers(-9, 9, (5, 3)), {"offset": [1.5], "scale": [0.3]}),
    ("Scaler", RNG.integers(-9, 9, (5, 3)).astype(np.int32), {"offset": [1.5], "scale": [0.3]}),
    ("Binarizer", X, {"threshold": 0.25}),
    ("Binarizer", ZEROS, {}),
    ("Imputer", GAPS, {"imputed_value_floats": [7.0], "replaced_value_float": float("nan")}),
    ("Imputer", GAPS, {"imputed_value_floats": [7.0, 8.0, 9.0], "replaced_value_float": -1.0}),
    ("Imputer", np.int64([[1, 2, 3], [2, 2, 0]]), {"imputed_value_int64s": [7], "replaced_value_int64": 2}),
    ("Imputer", np.int64([[1, 2, 3], [2, 2, 0]]), {"imputed_value_int64s": [7, 8, 9]}),
    ("Normalizer", X, {"norm": "L1"}),
    ("Normalizer", X, {"norm": "L2"}),
    ("Normalizer", X, {"norm": "MAX"}),
    ("Normalizer", ZEROS, {"norm": "L1"}),
    ("Normalizer", ZEROS, {"norm": "L2"}),
    ("Normalizer", ZEROS, {}),
    ("FeatureVectorizer", X, {"inputdimensions": [3]}),
]


@pytest.mark.parametrize("op_type, x, attrs", ARITHMETIC)
def test_arithmetic_is_read_and_written(op_type: str, x: Any, attrs: dict[str, Any]) -> None:
    proto = model(node(op_type, ["x"], ["y"], **attrs), {"x": x})
    graph = is_lowered(proto, {"x": x}, **CLOSE)
    assert kinds(to_model(graph)) in ([op_type], ["Identity"])


TIED = np.float32([[0, 0, 0], [1, -1, 0], [3, 2, 1], [-3, 2, 5]])


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
@pytest.mark.parametrize("labels", [[3, 7], [9, -2, 0], [1, 2, 3, 4]])
@pytest.mark.parametrize("x", [X, TIED, X[:0]], ids=["drawn", "tied", "empty"])
def test_classes_are_those_of_the_greatest_score(x: Any, labels: list[int], transform: str) -> None:
    """Equal scores too, of which the first has it."""
    count = len(labels)
    weights = RNG.standard_normal((count, 3)).astype(np.float32)
    weights[1] = weights[0]
    attrs = {"coefficients": weights.ravel().tolist(), "intercepts": [0.5] * count, "post_transform": transform}
    proto = model(node("LinearClassifier", ["x"], ["l", "s"], classlabels_ints=labels, **attrs), {"x": x})
    graph = is_lowered(proto, {"x": x}, **CLOSE)
    if x.size:
        assert kinds(to_model(graph)) == ["LinearClassifier"]


def test_a_scaler_before_a_classifier_goes_into_its_weights() -> None:
    attrs = {"coefficients": [1.0, 2.0, 3.0, -1.0, 0.5, 0.25], "intercepts": [0.5, -2.0], "classlabels_ints": [0, 1]}
    nodes = [
        node("Scaler", ["x"], ["h"], offset=[1.0, 2.0, 3.0], scale=[0.3, 2.0, -1.0]),
        node("LinearClassifier", ["h"], ["l", "s"], post_transform="LOGISTIC", **attrs),
    ]
    proto = model(nodes, {"x": X}, shapes={"x": ("n", 3)})
    written = eqsat.optimize(proto, measure=False, time_limit=20).to_onnx()
    assert "Scaler" not in kinds(written) and "Mul" not in kinds(written)
    for made, want in zip(session_run(written, {"x": X}), session_run(proto, {"x": X}), strict=True):
        agree(made, want, **CLOSE)


@pytest.mark.parametrize("x", [X, X[0], RNG.standard_normal((2, 3, 4)).astype(np.float32), np.int64([[4, 5, 6]])])
@pytest.mark.parametrize("places", [np.int64([2, 0]), np.int64([[1, 1, 0]]), np.int64([1])])
def test_features_are_extracted(x: Any, places: Any) -> None:
    proto = model(node("ArrayFeatureExtractor", ["x", "i"], ["y"]), {"x": x}, {"i": places})
    assert kinds(to_model(is_lowered(proto, {"x": x}))) == ["ArrayFeatureExtractor"]


def test_features_of_several_types_are_joined() -> None:
    feeds = {"x": X, "i": RNG.integers(0, 9, (5, 2)), "d": X.astype(np.float64)}
    proto = model(node("FeatureVectorizer", ["x", "x2"], ["y"], inputdimensions=[3, 3]), {"x": X, "x2": X})
    is_lowered(proto, {"x": X, "x2": X})
    for name, width in (("i", 2), ("d", 3)):
        proto = model(node("FeatureVectorizer", [name], ["y"], inputdimensions=[width]), {name: feeds[name]})
        is_lowered(proto, {name: feeds[name]}, **CLOSE)


STUMP = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [1, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_values": [0.2, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
}
REGRESSOR = STUMP | {
    "target_treeids": [0, 0],
    "target_nodeids": [1, 2],
    "target_ids": [0, 1],
    "target_weights": [1.0, 2.0],
}
CLASSIFIER = STUMP | {
    "class_treeids": [0, 0],
    "class_nodeids": [1, 2],
    "class_ids": [0, 2],
    "class_weights": [1.0, 2.0],
}
TEXTS = ["a", "b", "c"]
SUPPORT = {"kernel_type": "LINEAR", "kernel_params": [0.1, 0.0, 3.0], "post_transform": "NONE"}
SVM = SUPPORT | {
    "coefficients": [1.0, -1.0, 0.5, -0.5, 0.25, 0.75],
    "support_vectors": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.0, 1.0, 0.0],
    "vectors_per_class": [1, 1, 1],
    "rho": [0.1, 0.2, 0.3],
}
#: Operator, features, attributes, results.
TYPED: list[tuple[str, Any, dict[str, Any], int]] = [
    ("TreeEnsembleRegressor", X, REGRESSOR | {"n_targets": 2}, 1),
    ("TreeEnsembleClassifier", X, CLASSIFIER | {"classlabels_int64s": [3, 4, 5]}, 2),
    ("TreeEnsembleClassifier", X, CLASSIFIER | {"classlabels_strings": TEXTS}, 2),
    (
        "LinearClassifier",
        X,
        {
            "coefficients": [1.0] * 9,
            "intercepts": [0.1] * 3,
            "classlabels_ints": [1, 2, 3],
            "post_transform": "SOFTMAX_ZERO",
        },
        2,
    ),
    ("LinearClassifier", X, {"coefficients": [1.0] * 9, "intercepts": [0.1] * 3, "classlabels_strings": TEXTS}, 2),
    ("LinearClassifier", X, {"coefficients": [1.0] * 3, "intercepts": [0.1], "classlabels_ints": [0, 1]}, 2),
    (
        "SVMRegressor",
        X,
        SUPPORT | {"coefficients": [1.0], "support_vectors": [1.0] * 3, "n_supports": 1, "rho": [0.1]},
        1,
    ),
    ("SVMClassifier", X, SVM | {"classlabels_ints": [0, 1, 2]}, 2),
    ("SVMClassifier", X, SVM | {"classlabels_strings": TEXTS}, 2),
    ("OneHotEncoder", np.int64([[1, 2], [3, 1]]), {"cats_int64s": [1, 2, 3]}, 1),
    ("OneHotEncoder", np.array(["a", "c"], object), {"cats_strings": TEXTS}, 1),
    ("LabelEncoder", np.int64([1, 2, 9]), {"keys_int64s": [1, 2], "values_floats": [0.5, 1.5]}, 1),
    ("LabelEncoder", np.array(["a", "c"], object), {"keys_strings": TEXTS, "values_int64s": [1, 2, 3]}, 1),
    ("LabelEncoder", np.int64([1, 2]), {"keys_int64s": [1, 2], "values_strings": ["x", "y"]}, 1),
    ("LabelEncoder", np.float32([1, 2]), {"keys_floats": [1.0], "values_int64s": [7]}, 1),
    ("CategoryMapper", np.int64([1, 2]), {"cats_int64s": [1, 2, 3], "cats_strings": TEXTS}, 1),
    (
        "LinearRegressor",
        X,
        {"coefficients": [1.0] * 6, "targets": 2, "intercepts": [0.0] * 2, "post_transform": "SOFTMAX"},
        1,
    ),
    ("Normalizer", X.astype(np.float64), {"norm": "L1"}, 1),
]


@pytest.mark.parametrize("op_type, x, attrs, count", TYPED)
def test_what_stays_opaque_has_the_types_of_what_is_returned(
    op_type: str, x: Any, attrs: dict[str, Any], count: int
) -> None:
    outputs = [f"y{i}" for i in range(count)]
    proto = model(node(op_type, ["x"], outputs, **attrs), {"x": x})
    graph = load(proto)
    (reason,) = opaque(graph)
    assert reason and "no counterpart" not in reason
    for value, made in zip(outputs, session_run(proto, {"x": x}), strict=True):
        fits(graph, value, np.asarray(made, object) if made.dtype.kind in "OU" else made)


def test_the_double_version_of_trees_is_typed() -> None:
    attrs = {
        "n_targets": 2,
        "nodes_featureids": [0],
        "nodes_modes": helper.make_tensor("m", 2, (1,), np.uint8([0]).tobytes(), raw=True),
        "nodes_splits": helper.make_tensor("s", 11, (1,), [0.2]),
        "nodes_truenodeids": [0],
        "nodes_falsenodeids": [1],
        "nodes_trueleafs": [1],
        "nodes_falseleafs": [1],
        "leaf_targetids": [0, 1],
        "leaf_weights": helper.make_tensor("w", 11, (2,), [1.0, 2.0]),
        "tree_roots": [0],
    }
    x = X.astype(np.float64)
    proto = model(node("TreeEnsemble", ["x"], ["y"], **attrs), {"x": x})
    for entry in proto.opset_import:
        entry.version = 5 if entry.domain == "ai.onnx.ml" else entry.version
    graph = load(proto)
    assert opaque(graph) == ["compares features along trees, which no sum or product stands for"]
    fits(graph, "y", session_run(proto, {"x": x})[0])


def test_maps_say_why_and_what_is_before_them_is_read() -> None:
    nodes = [
        node("Scaler", ["x"], ["s"], offset=[1.0], scale=[2.0]),
        node("ZipMap", ["s"], ["y"], classlabels_int64s=[1, 2, 3]),
    ]
    graph = load(model(nodes, {"x": X}))
    assert opaque(graph) == ["reads or makes maps, which are no tensors"]
    assert [n.op for n in graph.nodes] == ["sub", "mul", "opaque"]


def test_named_rows_run_through_trees() -> None:
    attrs = CLASSIFIER | {"classlabels_int64s": [3, 4, 5]}
    graph = load(model(node("TreeEnsembleClassifier", ["x"], ["l", "p"], **attrs), {"x": X}, shapes={"x": ("n", 3)}))
    assert graph.type("p") == TensorType.of("float32", ("n", 3))
    assert graph.type("l") == TensorType.of("int64", ("n",))


def test_what_surrounds_a_tree_is_optimised() -> None:
    """Repeated nodes before and after it go, though nobody looks inside."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        node("TreeEnsembleRegressor", ["b"], ["t"], **REGRESSOR, n_targets=2),
        helper.make_node("Relu", ["t"], ["u"]),
        helper.make_node("Relu", ["u"], ["y"]),
    ]
    proto = model(nodes, {"x": X})
    written = eqsat.optimize(proto, measure=False, time_limit=20).to_onnx()
    assert kinds(written) == ["Relu", "TreeEnsembleRegressor", "Relu"]
    agree(session_run(written, {"x": X})[0], session_run(proto, {"x": X})[0])
