"""ONNX models to graphs."""
