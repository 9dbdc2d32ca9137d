"""Models of frameworks that are not read as they are, each with the way to ONNX."""

from __future__ import annotations

from typing import Any

from eqsat.errors import ImportModelError

_JAX = "jax2onnx.to_onnx(function, inputs) gives a ModelProto: pip install jax2onnx"
_KERAS = "model.export('model.onnx', format='onnx'), once it was called, writes a file to pass: pip install tf2onnx"
_TENSORFLOW = "tf2onnx.convert gives a ModelProto: pip install tf2onnx"
_SKLEARN = "skl2onnx.to_onnx(model, X[:1]) gives a ModelProto: pip install skl2onnx"

#: The framework and the way to ONNX by the first part of the name of the module that a type is from.
_FRAMEWORKS = {
    "jax": ("JAX", _JAX),
    "jaxlib": ("JAX", _JAX),
    "flax": ("Flax", _JAX),
    "equinox": ("Equinox", _JAX),
    "keras": ("Keras", _KERAS),
    "tf_keras": ("Keras", _TENSORFLOW),
    "tensorflow": ("TensorFlow", _TENSORFLOW),
    "sklearn": ("scikit-learn", _SKLEARN),
    "torch": ("PyTorch", "pass a torch.nn.Module, a torch.export.ExportedProgram or an ONNXProgram"),
}
_FUNCTION = "a function of JAX: jax2onnx.to_onnx(function, inputs); of PyTorch: a torch.nn.Module around it"
_EXPECTED = "a path, an onnx.ModelProto, an eqsat.Graph, or a model of PyTorch"


def no_model(given: Any) -> ImportModelError:
    """The error for an argument that is no model, with the way to ONNX where its framework has one.

    >>> print(no_model(3))
    a int is no model
      expected a path, an onnx.ModelProto, an eqsat.Graph, or a model of PyTorch
    """
    for cls in type(given).__mro__[:-1]:
        framework, way = _FRAMEWORKS.get(cls.__module__.partition(".")[0], ("", ""))
        if framework:
            what = f"a {type(given).__name__} of {framework} is not read as it is"
            return ImportModelError(what, expected=_EXPECTED, remedy=way)
    if callable(given):
        return ImportModelError(f"a {type(given).__name__} is no model", expected=_EXPECTED, remedy=_FUNCTION)
    return ImportModelError(f"a {type(given).__name__} is no model", expected=_EXPECTED)
