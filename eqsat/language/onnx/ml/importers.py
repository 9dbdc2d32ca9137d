"""Import of the operators of ai.onnx.ml that are arithmetic on tensors, as ONNX Runtime computes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.language.onnx.read.importing import Call, Importer, Unsupported
from eqsat.language.terms import DType


def _rows(call: Call) -> int:
    """The number of features of rows of them."""
    if len(call.shape(0)) != 2:
        raise Unsupported(f"features of rank {len(call.shape(0))}")
    return call.size(0, 1)


def _of(call: Call, *dtypes: DType) -> None:
    if call.type(0).dtype not in dtypes:
        raise Unsupported(f"features of {call.type(0).dtype.value}")


def _numbers(call: Call, values: Sequence[Any], dtype: DType) -> str:
    """One number for all features, or one for each."""
    if len(values) == 1:
        return call.number(values[0], dtype)
    if len(values) != _rows(call):
        raise Unsupported(f"{len(values)} numbers for {_rows(call)} features")
    return call.number(np.asarray(values).reshape(1, -1), dtype)


def _linear_regressor(call: Call) -> None:
    _of(call, DType.FLOAT32)
    transform = call.attrs.get("post_transform", "NONE")
    if transform != "NONE":
        raise Unsupported(f"post_transform {transform}")
    features, targets = _rows(call), int(call.attrs.get("targets", 1))
    weights = np.asarray(call.attrs["coefficients"], np.float32)
    if weights.size != targets * features:
        raise Unsupported(f"{weights.size} coefficients for {features} features and {targets} targets")
    weight = call.number(weights.reshape(targets, features).T, DType.FLOAT32)
    offsets = np.asarray(call.attrs.get("intercepts", ()), np.float32)
    if offsets.size not in (0, targets):
        raise Unsupported(f"{offsets.size} intercepts for {targets} targets")
    if not offsets.size:
        return call.emit("matmul", call.value(0), weight)
    return call.emit("gemm", call.value(0), weight, call.number(offsets, DType.FLOAT32))


#: Operators that ONNX Runtime applies to two or more scores; the label is that of the greatest before.
_SCORES: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "NONE": ("identity", {}),
    "SOFTMAX": ("softmax", {"axis": 1}),
    "LOGISTIC": ("sigmoid", {}),
}


def _linear_classifier(call: Call) -> None:
    """A score for each class: its label is that of the greatest, the first of equal ones."""
    _of(call, DType.FLOAT32)
    features, labels = _rows(call), np.asarray(call.attrs.get("classlabels_ints", ()), np.int64)
    offsets = np.asarray(call.attrs.get("intercepts", ()), np.float32)
    weights = np.asarray(call.attrs["coefficients"], np.float32)
    transform = call.attrs.get("post_transform", "NONE")
    if not labels.size:
        raise Unsupported("labels that are strings")
    if offsets.size < 2:
        raise Unsupported("one score for two classes, with rules of its own")
    if labels.size != offsets.size or weights.size != offsets.size * features:
        raise Unsupported(f"{weights.size} coefficients for {features} features and {offsets.size} scores")
    if transform not in _SCORES:
        raise Unsupported(f"post_transform {transform}")
    weight = call.number(weights.reshape(offsets.size, features).T, DType.FLOAT32)
    scores = call.make("gemm", call.value(0), weight, call.number(offsets, DType.FLOAT32))
    if call.uses(0):
        best = call.make("argmax", scores, axis=1, keepdims=False, select_last=False)
        call.emit("gather", call.number(labels, DType.INT64), best, axis=0)
    if call.uses(1):
        op, attrs = _SCORES[transform]
        call.emit(op, scores, outputs=[call.node.output[1]], **attrs)


def _scaler(call: Call) -> None:
    """(x - offset) · scale: of doubles in double, of integers in single precision, and then always float32."""
    if not call.attrs.get("scale") or not call.attrs.get("offset"):
        raise Unsupported("no scale or offset")
    given = call.type(0).dtype
    dtype = DType.FLOAT64 if given is DType.FLOAT64 else DType.FLOAT32
    x = call.value(0) if given is dtype else call.make("cast", call.value(0), to=dtype.value)
    centred = call.make("sub", x, _numbers(call, call.attrs["offset"], dtype))
    scale = _numbers(call, call.attrs["scale"], dtype)
    if dtype is DType.FLOAT32:
        return call.emit("mul", centred, scale)
    return call.emit("cast", call.make("mul", centred, scale), to="float32")


def _binarizer(call: Call) -> None:
    _of(call, DType.FLOAT32)
    above = call.make("less", call.number(call.attrs.get("threshold", 0.0), DType.FLOAT32), call.value(0))
    call.emit("where", above, call.number(1.0, DType.FLOAT32), call.number(0.0, DType.FLOAT32))


def _imputer(call: Call) -> None:
    """One value, which may be NaN, replaced by a number for all features, or by one for each."""
    _of(call, DType.FLOAT32, DType.INT64)
    dtype, x = call.type(0).dtype, call.value(0)
    kind = "float" if dtype is DType.FLOAT32 else "int64"
    imputed = call.attrs.get(f"imputed_value_{kind}s")
    if not imputed:
        raise Unsupported("nothing to impute")
    replaced = call.attrs.get(f"replaced_value_{kind}", 0)
    if isinstance(replaced, float) and math.isnan(replaced):
        missing = call.make("isnan", x)
    else:
        missing = call.make("equal", x, call.number(replaced, dtype))
    call.emit("where", missing, _numbers(call, imputed, dtype), x)


def _normalizer(call: Call) -> None:
    _of(call, DType.FLOAT32)
    _rows(call)
    norm = call.attrs.get("norm", "MAX")
    if norm in ("L1", "L2"):
        return call.emit("lp_norm", call.value(0), axis=1, p=int(norm[1]))
    if norm != "MAX":
        raise Unsupported(f"norm {norm}")
    most = call.make("reduce_max", call.value(0), axes=(1,), keepdims=True)
    none = call.make("equal", most, call.number(0.0, DType.FLOAT32))
    return call.emit("where", none, call.value(0), call.make("div", call.value(0), most))


def _array_feature_extractor(call: Call) -> None:
    rank, (*lead, count) = len(call.shape(0)), (1, *call.shape(1))
    for size in lead:
        count = count * size
    if not rank:
        raise Unsupported("features of a scalar")
    places = call.make("reshape", call.value(1), shape=(count,))
    if rank > 1:
        return call.emit("gather", call.value(0), places, axis=rank - 1)
    return call.emit("reshape", call.make("gather", call.value(0), places, axis=0), shape=(1, count))


def _feature_vectorizer(call: Call) -> None:
    widths = call.attrs["inputdimensions"]
    shapes = [call.shape(i) for i in range(call.arity)]
    if any(len(s) != 2 for s in shapes) or [s[1] for s in shapes] != list(widths):
        raise Unsupported("features that are cut or padded")
    floats = [
        call.value(i)
        if call.type(i).dtype is DType.FLOAT32
        else call.make("cast", call.value(i), to=DType.FLOAT32.value)
        for i in range(call.arity)
    ]
    call.emit("concat", *floats, axis=1)


#: Operator of ai.onnx.ml -> the function that translates a node of it.
IMPORTS: Mapping[str, Importer] = {
    "ArrayFeatureExtractor": _array_feature_extractor,
    "Binarizer": _binarizer,
    "FeatureVectorizer": _feature_vectorizer,
    "Imputer": _imputer,
    "LinearClassifier": _linear_classifier,
    "LinearRegressor": _linear_regressor,
    "Normalizer": _normalizer,
    "Scaler": _scaler,
}
