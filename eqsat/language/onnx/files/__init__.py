"""ONNX messages and files: tensors, checked reading, whole writing."""
