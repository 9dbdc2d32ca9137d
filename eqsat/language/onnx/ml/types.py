"""Result types of operators of ai.onnx.ml that are kept as they are.

Source: results of ONNX Runtime's kernels; onnx infers few of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from eqsat.language.onnx.read.importing import Call, TypeRule, types_by
from eqsat.language.terms import Dim, DType, TensorType, ValueType


def result_types(call: Call) -> Mapping[str, ValueType]:
    """The types of the outputs of a node of ai.onnx.ml, as far as the table has them."""
    return types_by(TYPES.get(call.node.op_type) if call.node.domain == "ai.onnx.ml" else None, call)


def _batch(call: Call) -> Dim:
    """The number of rows; one row may stand for itself."""
    shape = call.shape(0)
    return shape[0] if len(shape) > 1 else 1


def _labels(call: Call, integers: str) -> tuple[DType, int]:
    """The element type of labels and how many there are."""
    texts, numbers = call.attrs.get("classlabels_strings", ()), call.attrs.get(integers, ())
    return (DType.STRING, len(texts)) if texts else (DType.INT64, len(numbers))


def _tree_classifier(call: Call) -> list[ValueType]:
    dtype, count = _labels(call, "classlabels_int64s")
    batch = _batch(call)
    return [TensorType(dtype, (batch,)), TensorType(DType.FLOAT32, (batch, count))]


def _linear_classifier(call: Call) -> list[ValueType]:
    dtype, count = _labels(call, "classlabels_ints")
    batch, scores = _batch(call), len(call.attrs.get("intercepts", ()))
    width = count if scores == 1 and count == 2 else scores
    known: Dim = width if width else call.fresh_dim()
    return [TensorType(dtype, (batch,)), TensorType(DType.FLOAT32, (batch, known))]


def _svm_classifier(call: Call) -> list[ValueType]:
    dtype, _ = _labels(call, "classlabels_ints")
    batch = _batch(call)
    return [TensorType(dtype, (batch,)), TensorType(DType.FLOAT32, (batch, call.fresh_dim()))]


def _regressor(name: str, default: int) -> TypeRule:
    def rule(call: Call) -> list[ValueType]:
        return [TensorType(DType.FLOAT32, (_batch(call), int(call.attrs.get(name, default))))]

    return rule


def _tree_ensemble(call: Call) -> list[ValueType]:
    return [TensorType(call.type(0).dtype, (_batch(call), int(call.attrs["n_targets"])))]


def _one_hot(call: Call) -> list[ValueType]:
    categories = call.attrs.get("cats_int64s") or call.attrs.get("cats_strings", ())
    return [TensorType(DType.FLOAT32, (*call.shape(0), len(categories)))]


def _encoded(call: Call) -> list[ValueType]:
    kinds = {"values_strings": DType.STRING, "values_int64s": DType.INT64, "values_floats": DType.FLOAT32}
    dtypes = [dtype for name, dtype in kinds.items() if call.attrs.get(name)]
    if "classes_strings" in call.attrs:  # the first version: between labels and their places
        dtypes = [DType.INT64 if call.type(0).dtype is DType.STRING else DType.STRING]
    return [TensorType(dtypes[0], call.type(0).shape)]


def _mapped(call: Call) -> list[ValueType]:
    dtype = DType.INT64 if call.type(0).dtype is DType.STRING else DType.STRING
    return [TensorType(dtype, call.type(0).shape)]


def _floats(call: Call) -> list[ValueType]:
    return [TensorType(DType.FLOAT32, call.type(0).shape)]


def _same(call: Call) -> list[ValueType]:
    return [call.type(0)]


#: Operator of ai.onnx.ml -> the types of its results.
TYPES: Mapping[str, TypeRule] = {
    "Binarizer": _same,
    "CategoryMapper": _mapped,
    "Imputer": _same,
    "LabelEncoder": _encoded,
    "LinearClassifier": _linear_classifier,
    "LinearRegressor": _regressor("targets", 1),
    "Normalizer": _floats,
    "OneHotEncoder": _one_hot,
    "SVMClassifier": _svm_classifier,
    "SVMRegressor": _regressor("", 1),
    "Scaler": _floats,
    "TreeEnsemble": _tree_ensemble,
    "TreeEnsembleClassifier": _tree_classifier,
    "TreeEnsembleRegressor": _regressor("n_targets", 1),
}
