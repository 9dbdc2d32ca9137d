"""The page on PyTorch, from top to bottom."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the extra 'torch' is not installed: make test-torch")

from tests.support.pages import ROOT, follow


def test_the_page_on_pytorch_works_from_top_to_bottom(tmp_path: Path) -> None:
    follow(ROOT / "docs" / "pytorch.md", tmp_path)
    assert (tmp_path / "bert.onnx").stat().st_size
