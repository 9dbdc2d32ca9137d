"""Random ONNX models, written as protobuf messages, and what must hold of each after it was optimised."""
