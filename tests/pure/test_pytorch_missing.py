"""The door from PyTorch where its packages are not installed."""

import importlib.util
import sys

import pytest

from eqsat.errors import MissingExtraError
from eqsat.language.pytorch import kinds


def test_a_missing_package_is_named_with_the_extra_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        kinds, "find_spec", lambda name: None if name == "onnxscript" else importlib.util.find_spec("sys")
    )
    monkeypatch.delitem(sys.modules, "eqsat.pytorch", raising=False)
    words = r"onnxscript cannot be imported[\s\S]*the extra 'torch'\n  pip install 'eqsat\[torch\]'"
    with pytest.raises(MissingExtraError, match=words):
        importlib.import_module("eqsat.pytorch")


def test_paths_and_graphs_are_no_models_of_pytorch() -> None:
    assert not kinds.is_torch_model("model.onnx")
    assert not kinds.is_torch_model(None)
