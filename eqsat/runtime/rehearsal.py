"""Sessions of ONNX Runtime made in a process of their own first, since that can be ended."""

from __future__ import annotations

import contextlib
import math
import subprocess
import sys
import time

from eqsat.deadline import current

#: What the process does: a session of a model on standard input, or in a file, as `session` makes it.
_MAKE = """
import sys
import onnxruntime as ort

options = ort.SessionOptions()
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
options.intra_op_num_threads, options.log_severity_level = int(sys.argv[1]), 4
source = sys.argv[2] if sys.argv[2] else sys.stdin.buffer.read()
ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
"""


def rehearse(source: str | bytes, threads: int) -> None:
    """Makes a session of a file or of a serialised model in another process, and drops it.

    TimeUp where that is not done when the deadline is over, or where there is less time left than it took: here it
    would take as long. Without a deadline in seconds nothing is done. What ONNX Runtime refuses is for the caller.
    """
    deadline = current()
    if not math.isfinite(deadline.seconds):
        return
    path, data = (source, None) if isinstance(source, str) else ("", source)
    start = time.monotonic()
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [sys.executable, "-c", _MAKE, str(threads), path],
            input=data,
            timeout=deadline.seconds,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    if deadline.seconds < time.monotonic() - start:
        deadline.stop()
