"""The page on other frameworks, from top to bottom."""

from pathlib import Path

import pytest

for _package in ("jax2onnx", "tensorflow", "tf2onnx", "skl2onnx"):
    pytest.importorskip(_package, reason=f"{_package} is not installed: make test-frameworks")

from tests.support.pages import ROOT, follow  # noqa: E402


def test_the_page_on_other_frameworks_works_from_top_to_bottom(tmp_path: Path) -> None:
    follow(ROOT / "docs" / "frameworks.md", tmp_path)
    assert (tmp_path / "keras.onnx").stat().st_size
