"""Operators of ai.onnx.ml: what those that are arithmetic mean in ours, and the types of the others."""
