"""The kinds of models of PyTorch, told apart without importing torch."""

from __future__ import annotations

import sys
from typing import Any

#: Classes of models, by the module that has them once torch is imported.
_MODELS = (("torch.nn", "Module"), ("torch.export", "ExportedProgram"), ("torch.onnx", "ONNXProgram"))


def is_torch_model(model: Any) -> bool:
    """True for a torch.nn.Module, a torch.export.ExportedProgram and a torch.onnx.ONNXProgram.

    >>> is_torch_model("model.onnx")
    False
    """
    return any(isinstance(model, getattr(sys.modules[m], name, ())) for m, name in _MODELS if m in sys.modules)
