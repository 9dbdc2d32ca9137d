"""Models of Keras and functions of TensorFlow, exported by Keras and by tf2onnx."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed: make test-frameworks")
tf2onnx = pytest.importorskip("tf2onnx", reason="tf2onnx is not installed: make test-frameworks")
import keras  # noqa: E402

import eqsat  # noqa: E402
from eqsat.errors import ImportModelError  # noqa: E402

layers = keras.layers


def attention() -> Any:
    x = layers.Input((8, 32))
    h = layers.LayerNormalization()(x)
    return keras.Model(x, layers.Dense(4)(layers.MultiHeadAttention(4, 8)(h, h) + x))


def sequential(shape: tuple[int, ...], *parts: Any) -> Any:
    return keras.Sequential([layers.Input(shape), *parts])


MODELS = {
    "mlp": (lambda: sequential((16,), layers.Dense(32, activation="relu"), layers.Dense(4)), (2, 16)),
    "convolutions": (
        lambda: sequential(
            (16, 16, 3),
            layers.Conv2D(8, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(4),
        ),
        (2, 16, 16, 3),
    ),
    "attention": (attention, (2, 8, 32)),
    "lstm": (lambda: sequential((8, 16), layers.LSTM(8), layers.Dense(2)), (2, 8, 16)),
}


def by_keras(model: Any, folder: Path) -> Any:
    model.export(str(folder / "model.onnx"), format="onnx", verbose=False)
    return folder / "model.onnx"


def by_tf2onnx(model: Any, _folder: Path) -> Any:
    shape = tf.TensorSpec([None, *model.input_shape[1:]], tf.float32)
    return tf2onnx.convert.from_function(tf.function(lambda x: model(x)), input_signature=[shape], opset=18)[0]


@pytest.mark.parametrize("export", [by_keras, by_tf2onnx])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_keras_and_its_result_agree(name: str, export: Any, tmp_path: Path) -> None:
    build, shape = MODELS[name]
    keras.utils.set_random_seed(0)
    model = build()
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    expected = np.asarray(model(x))
    result = eqsat.optimize(export(model, tmp_path), measure=False, time_limit=20.0)
    assert not result.report.failure
    (y,) = result.run(**{result.graph.inputs[0]: x}).values()
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_a_model_of_keras_is_refused_with_the_way_to_onnx() -> None:
    with pytest.raises(ImportModelError, match=r"of Keras is not read as it is[\s\S]*model\.export\('model\.onnx'"):
        eqsat.optimize(MODELS["mlp"][0]())


def test_a_function_of_tensorflow_is_refused_with_the_way_to_onnx() -> None:
    with pytest.raises(ImportModelError, match=r"of TensorFlow is not read as it is[\s\S]*tf2onnx"):
        eqsat.optimize(tf.function(lambda x: x))
