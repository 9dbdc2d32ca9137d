"""Graphs to ONNX models."""
