"""Quantised operators of ONNX, to and from ours."""
