"""The models that eqsat is measured and tested on, each built or read without a network and with seeded
weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import onnx
from onnx import ModelProto

from benchmarks.models.nasnet import nasnet_a
from benchmarks.models.nasrnn import nasrnn
from benchmarks.models.sru import sru_text_classifier, sru_translation
from benchmarks.models.stripped import refill
from benchmarks.models.taso_bert import taso_bert

FIXTURES = Path(__file__).parents[2] / "tests" / "models"
_LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def fixture(name: str) -> ModelProto:
    """The committed export `name` as it lies in the repository, without its weights."""
    return onnx.load(FIXTURES / f"{name}.onnx", load_external_data=False)


def _exported(name: str) -> ModelProto:
    return refill(fixture(name))


def _light(name: str) -> ModelProto:
    return onnx.load(_LIGHT / f"{name}.onnx")


_BUILDERS: tuple[Callable[..., ModelProto], ...] = (
    sru_text_classifier,
    sru_translation,
    nasrnn,
    nasnet_a,
    taso_bert,
)

MODELS: dict[str, Callable[[], ModelProto]] = {
    **{build.__name__: build for build in _BUILDERS},
    **{f"{build.__name__}_batch16": partial(build, batch=16) for build in _BUILDERS},
    **{path.stem: partial(_exported, path.stem) for path in sorted(FIXTURES.glob("*.onnx"))},
    **{path.stem: partial(_light, path.stem) for path in sorted(_LIGHT.glob("*.onnx"))},
}


def load(name: str) -> ModelProto:
    """The model `name`, with weights; the same bytes on every call.

    Raises KeyError naming the known models when there is none of that name.
    """
    if name not in MODELS:
        raise KeyError(f"no model named {name!r}; known: {', '.join(MODELS)}")
    return MODELS[name]()
