"""Tensor programs and their operators, and the ONNX models that they are read from and written to."""
