"""Tensors whose sizes are parameters: integers, arrays and elements of which every decision is recorded."""
