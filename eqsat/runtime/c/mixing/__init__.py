"""Programs of C of which ONNX Runtime computes regions, where that is measured to be faster."""
