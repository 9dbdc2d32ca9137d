"""ONNX Runtime's own operators: their translation to ours and back, and the types of those kept as they are."""
