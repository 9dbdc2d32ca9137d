"""Backends that execute a graph, and the measurement of programs against each other."""

import os

# ONNX Runtime 1.31 reports what it does to its maker unless told otherwise before it is loaded. What a user optimises
# is the user's own; and the thread it keeps for that makes every forked child wait forever when it ends.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
