"""PyTorch: a module or an exported program to a graph, through torch's own exporter to ONNX, weights in place."""
