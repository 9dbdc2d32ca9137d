"""Settings of the tests on ONNX Runtime: sessions that tests make have one thread unless they say otherwise."""

from collections.abc import Iterator
from typing import Any

import onnxruntime
import pytest


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """Threads that spin while they wait take ten times as long as a small model does, and the other worker's time."""
    session, options = onnxruntime.InferenceSession, onnxruntime.SessionOptions

    def one_thread() -> Any:
        made = options()
        made.intra_op_num_threads = 1
        return made

    def on_one_thread(model: Any, sess_options: Any = None, *given: Any, **more: Any) -> Any:
        return session(model, sess_options or one_thread(), *given, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnxruntime, "SessionOptions", one_thread)
        patch.setattr(onnxruntime, "InferenceSession", on_one_thread)
        yield
