"""ONNX Runtime's own operators: what they mean in ours, the types of those kept as they are, and writing them back."""
