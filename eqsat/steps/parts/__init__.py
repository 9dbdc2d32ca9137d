"""Graphs that are too large for one e-graph, optimised a part at a time."""
