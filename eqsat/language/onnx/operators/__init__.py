"""The translation of each operator from ONNX and to it, by tables."""
