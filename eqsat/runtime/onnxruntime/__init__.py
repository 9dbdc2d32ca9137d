"""Graphs on ONNX Runtime's CPU provider."""
