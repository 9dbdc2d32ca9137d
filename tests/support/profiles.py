"""The operators that ONNX Runtime runs, from its profile."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnxruntime as ort


def profiled(model: Path, feeds: Mapping[str, Any]) -> tuple[list[Any], Counter[str]]:
    """The outputs of a model in a file, and how often each operator ran; the profile is written beside the file."""
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(Path(model).with_suffix(""))
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    outputs = session.run(None, feeds)
    events = json.loads(Path(session.end_profiling()).read_text())
    return outputs, Counter(e["args"]["op_name"] for e in events if e.get("cat") == "Node" and "op_name" in e["args"])
