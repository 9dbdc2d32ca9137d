"""Sessions of ONNX Runtime made in a process of their own first, since that can be ended."""

from __future__ import annotations

import contextlib
import math
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from eqsat.system.deadline import current

#: Seconds between two looks at the deadline, which may come to end earlier.
_LOOK_SECONDS = 0.2
#: The program of the process: make a session of a model on standard input, or in a file, as `session` does.
_MAKE = """
import sys
import onnxruntime as ort

options = ort.SessionOptions()
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
options.intra_op_num_threads, options.log_severity_level = int(sys.argv[1]), 4
source = sys.argv[2] if sys.argv[2] else sys.stdin.buffer.read()
if sys.argv[3]:
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", sys.argv[3])
ort.InferenceSession(source, options, providers=["CPUExecutionProvider"], disabled_optimizers=sys.argv[4:])
"""


def rehearse(source: str | bytes, threads: int, without: Sequence[str] = (), folder: str = "") -> None:
    """Make a session of a file or of a serialised model in another process, `without` some fusions, and drop it.

    A serialised model may keep tensors in files of a `folder`.

    TimeUp where that is not done when the deadline is over, or where there is less time left than it took: here it
    would take as long. Without a deadline in seconds nothing is done. A refusal by ONNX Runtime is for the caller.
    """
    deadline = current()
    if not math.isfinite(deadline.seconds):
        return
    path, data = (source, None) if isinstance(source, str) else ("", source)
    start = time.monotonic()
    command = [sys.executable, "-c", _MAKE, str(threads), path, folder, *without]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, stdin=subprocess.PIPE, **quiet) as process:
        # In a thread, as `communicate` forgets the bytes left to send when its time is over.
        sender = threading.Thread(target=_send, args=(process, data), daemon=True)
        sender.start()
        try:
            while process.poll() is None and not deadline.over:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(min(deadline.seconds, _LOOK_SECONDS))
        finally:
            process.kill()
            sender.join()
    if process.returncode == -signal.SIGINT:
        deadline.stop()  # Ctrl-C goes to the whole group of processes
    if deadline.seconds < time.monotonic() - start:
        deadline.stop()


def _send(process: subprocess.Popen[bytes], data: bytes | None) -> None:
    """Write a model to the standard input of a process, and close that; a process that has ended reads no more."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as stream:
        if data is not None:
            stream.write(data)
