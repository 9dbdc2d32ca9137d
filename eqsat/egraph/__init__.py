"""The e-graph: the only package that imports egglog."""
