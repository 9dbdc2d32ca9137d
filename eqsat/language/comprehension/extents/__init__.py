"""Extents of comprehensions: ranges, shapes and bounds."""
