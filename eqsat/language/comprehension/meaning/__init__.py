"""Meaning of comprehensions: names, element types and functions."""
