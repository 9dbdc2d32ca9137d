"""ONNX in and out: two tables keyed by operator."""
