"""The page on the first hour: its first part with the wheel and no extra, its second with PyTorch."""

import os
import shlex
from importlib.util import find_spec
from pathlib import Path

import onnx
import pytest

from tests.support import environments as env
from tests.support.pages import ROOT, follow

PYTORCH = "From PyTorch"


def without_pytorch(title):
    return title != PYTORCH


@pytest.mark.skipif(env.too_old(), reason="wheels are built by setuptools 77, of the extra 'dev'")
def test_the_first_hour_needs_the_wheel_alone(tmp_path):
    """In an environment of the packages that eqsat requires, from an empty folder, by the installed script.

    `make test-install` names one into which pip installed them from the package index.
    """
    program = Path(os.environ.get("FIRST_HOUR_PYTHON") or tmp_path / "environment" / "bin" / "python")
    if not program.exists():
        wheel = env.build(env.copied_sources(tmp_path / "eqsat"), "wheel", tmp_path / "wheels")
        env.install(env.linked_environment(tmp_path / "environment", env.core_requirements()), wheel)
    folder = tmp_path / "empty"
    folder.mkdir()

    def step_by(step, language):
        words = ["-c", step] if language == "python" else shlex.split(step)[1:]
        command = program if language == "python" else program.with_name(shlex.split(step)[0])
        ran = env.python(command, *words, cwd=folder)
        assert ran.returncode == 0, f"{step}\n{ran.stderr}"
        return ran.stdout or "nothing printed"

    follow(ROOT / "docs" / "first-hour.md", folder, step_by=step_by, sections=without_pytorch)
    assert len(onnx.load(folder / "fast.onnx").graph.node)
    assert (folder / "report.json").stat().st_size


@pytest.mark.skipif(not (find_spec("torch") and find_spec("transformers")), reason="the extra 'torch': make test-torch")
def test_the_first_hour_goes_on_with_pytorch(tmp_path):
    follow(ROOT / "docs" / "first-hour.md", tmp_path, sections=lambda title: title == PYTORCH)
    assert (tmp_path / "bert.onnx").stat().st_size
