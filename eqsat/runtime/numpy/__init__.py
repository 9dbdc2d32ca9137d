"""Graphs on the references of their operators, in NumPy."""
