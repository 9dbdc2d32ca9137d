"""Operators of ai.onnx.ml: the translation of those that are arithmetic, and the types of the others."""
