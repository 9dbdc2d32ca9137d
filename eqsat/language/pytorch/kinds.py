"""The kinds of models of PyTorch, told apart without importing torch, and the packages that reading them needs."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

from eqsat.errors import MissingExtraError

#: Classes of models, by the module that has them once torch is imported.
_MODELS = (("torch.nn", "Module"), ("torch.export", "ExportedProgram"), ("torch.onnx", "ONNXProgram"))


def is_torch_model(model: Any) -> bool:
    """True for a torch.nn.Module, a torch.export.ExportedProgram and a torch.onnx.ONNXProgram.

    >>> is_torch_model("model.onnx")
    False
    """
    return any(isinstance(model, getattr(sys.modules[m], name, ())) for m, name in _MODELS if m in sys.modules)


def check_extra() -> None:
    """MissingExtraError where a package is not installed that models of PyTorch are read by."""
    absent = [name for name in ("torch", "onnxscript") if find_spec(name) is None]
    if absent:
        raise MissingExtraError(
            f"{' and '.join(absent)} cannot be imported, by which models of PyTorch are read",
            expected="the extra 'torch'",
            remedy="pip install 'eqsat[torch]'",
        )
