"""Lower precisions as eqsat chooses them, beside ONNX Runtime's quantisers and OpenVINO's hint."""
