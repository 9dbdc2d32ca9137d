"""Operators of ONNX Runtime's own domain in which results may be written."""
