"""Losses, classical models, strings, and values that are optional or lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from benchmarks.onnx_models.elementwise import Step
from benchmarks.onnx_models.growing import Growing, RefusedError, Value

_CLASSICAL = {"domain": "ai.onnx.ml"}


def _loss(g: Growing) -> None:
    classes, count = g.integer(2, 4), g.among([1, 3, "n"])
    kind = g.among(["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"])
    x = g.input(np.float32, [count, classes])
    labels = g.rng.integers(0, classes, x.shape[:1])
    at = g.constant(labels) if not x.free(0) else g.add("ArgMax", [x], axis=1, keepdims=0)[0]
    more = [g.constant(g.numbers.positive(np.float32, (classes,)))] if g.flip(0.4) else []
    attrs = {"reduction": g.among([None, "sum", "none"]), "ignore_index": g.among([None, 1])}
    outputs = 2 if kind.startswith("Soft") and g.flip(0.3) else 1
    g.add(kind, [x, at, *more], outputs, **attrs)


def _written(g: Growing) -> None:
    """Numbers put into a tensor by the oldest and the newest way."""
    x = g.pick("f", least=1)
    if 9 <= g.opset <= 10 and not x.free(0) and x.shape[0]:
        places = g.constant(np.zeros((1,) * x.rank, np.int64))
        g.add("Scatter", [x, places, g.constant(g.numbers.array(x.dtype, (1,) * x.rank))], axis=0)
        return
    past = g.input(np.float32, [2, 1, 4, 2])
    new = g.input(np.float32, [2, 1, g.among([1, 2]), 2])
    at = [g.constant(np.array([0, 1], np.int64))] if g.flip() else []
    g.add("TensorScatter", [past, new, *at], mode=g.among([None, "circular"]) if at else None)


def _reversed(g: Growing) -> None:
    x = g.input(g.among([np.float32, np.int64]), [g.among([2, 3]), g.among([2, 4]), *g.dims(g.integer(0, 1))])
    batch = g.among([0, 1])
    lengths = g.rng.integers(1, x.shape[1 - batch] + 1, x.shape[batch])
    g.add("ReverseSequence", [x, g.constant(lengths)], batch_axis=batch, time_axis=1 - batch)


def _optional(g: Growing) -> None:
    """A value that may be there, asked for and taken."""
    if g.opset < 15:
        raise RefusedError("opset")
    x = g.pick("f")
    held, made = g.fresh("o"), g.fresh()
    op_type = g.among(["OptionalHasElement", "OptionalGetElement"])
    nodes = [helper.make_node("Optional", [x.name], [held]), helper.make_node(op_type, [held], [made])]
    g.fragment(nodes, [x], [made])


def _listed(g: Growing) -> None:
    """Lists from which one is taken away, or of which each becomes another."""
    if g.opset < 11:
        raise RefusedError("opset")
    x = g.pick("f", least=1)
    held, kept, made = g.fresh("q"), g.fresh("q"), g.fresh()
    place = g.constant(np.array(0, np.int64))
    make = helper.make_node("SequenceConstruct", [x.name, x.name], [held])
    take = helper.make_node("SequenceAt", [kept, place.name], [made])
    if g.flip() or g.opset < 17:
        nodes = [make, helper.make_node("SequenceErase", [held, place.name], [kept]), take]
    else:
        inner, result = g.fresh("b"), g.fresh("b")
        code = helper.np_dtype_to_tensor_dtype(x.dtype)
        body = helper.make_graph(
            [helper.make_node("Neg", [inner], [result])],
            "body",
            [helper.make_tensor_value_info(inner, code, None)],
            [helper.make_tensor_value_info(result, code, None)],
        )
        nodes = [make, helper.make_node("SequenceMap", [held], [kept], body=body), take]
    g.fragment(nodes, [x, place], [made])


def _words(g: Growing) -> None:
    x = g.pick("O", 1)
    match g.integer(0, 2):
        case 0:
            g.add("StringNormalizer", [x], case_change_action=g.among(["LOWER", "UPPER"]), stopwords=["a"], locale="C")
        case 1:
            g.add("StringSplit", [x], 2, delimiter=g.among([None, " "]))
        case _:
            attrs: dict[str, Any] = {"mode": g.among(["TF", "IDF", "TFIDF"]), "min_gram_length": 1}
            attrs |= {"max_gram_length": 2, "max_skip_count": 0, "ngram_counts": [0, 2], "ngram_indexes": [0, 1, 2]}
            attrs |= {"pool_int64s": [1, 2, 1, 2], "weights": g.among([None, [1.0, 0.5, 2.0]])}
            g.add("TfIdfVectorizer", [g.pick("i", 1)], **attrs)


def _features(g: Growing) -> Value:
    return g.input(np.float32, [g.among([1, 3, "n"]), 2])


def _linear(g: Growing) -> None:
    x, after = _features(g), g.among([None, "SOFTMAX", "LOGISTIC"])
    match g.integer(0, 3):
        case 0:
            numbers: dict[str, Any] = {"offset": [0.5, -1.0], "scale": [2.0, 0.25]}
            g.add("Scaler", [x], **numbers, **_CLASSICAL)
        case 1:
            numbers = {"coefficients": [0.5, -1.0], "intercepts": [0.25]}
            g.add("LinearRegressor", [x], **numbers, **_CLASSICAL)
        case 2:
            numbers = {"coefficients": [0.5, -1.0, 0.75, 0.1], "intercepts": [0.25, 0.0], "classlabels_ints": [3, 7]}
            g.add("LinearClassifier", [x], 2, post_transform=after, **numbers, **_CLASSICAL)
        case _:
            g.add("ArrayFeatureExtractor", [x, g.integers([g.among([0, 1])])], **_CLASSICAL)


def _tree(g: Growing) -> None:
    """A tree of one question."""
    nodes: dict[str, Any] = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [g.among([0, 1]), 0, 0],
        "nodes_values": [g.among([0.0, 0.5]), 0.0, 0.0],
        "nodes_modes": [g.among(["BRANCH_LEQ", "BRANCH_LT"]), "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
    }
    target = {"target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [-1.0, 2.0]}
    g.add("TreeEnsembleRegressor", [_features(g)], n_targets=1, **nodes, **target, **_CLASSICAL)


def _labels(g: Growing) -> None:
    """Numbers as names of classes, and back."""
    x = g.input(np.int64, g.dims(1))
    (words,) = g.add("LabelEncoder", [x], classes_strings=["a", "b"], default_string="c", **_CLASSICAL)
    g.add("LabelEncoder", [words], classes_strings=["a", "c"], default_int64=-1, **_CLASSICAL)


def _support(g: Growing) -> None:
    kernel = g.among(["LINEAR", "RBF", "POLY"])
    vectors = [0.5, 1.0, -1.0, 0.25]
    attrs: dict[str, Any] = {"coefficients": [1.0, -0.5], "support_vectors": vectors, "n_supports": 2, "rho": [0.1]}
    g.add("SVMRegressor", [_features(g)], kernel_type=kernel, kernel_params=[0.5, 1.0, 2.0], **attrs, **_CLASSICAL)


def _cast_words(g: Growing) -> None:
    """Numbers as words and back."""
    if g.opset < 9:
        raise RefusedError("opset")
    (words,) = g.add("Cast", [g.pick("i", 1)], to=TensorProto.STRING)
    g.add("Cast", [words], to=TensorProto.INT64)


STEPS: Mapping[Step, float] = {
    _loss: 2, _written: 1.5, _reversed: 1, _optional: 1, _listed: 1.5, _words: 1.5, _linear: 1, _tree: 0.5,
    _labels: 0.5, _support: 0.5, _cast_words: 0.5,
}  # fmt: skip
