"""How each operator is read from ONNX and written to it, by tables."""
