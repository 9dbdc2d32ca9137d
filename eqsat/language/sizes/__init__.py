"""Sizes of named dims that a graph accepts: constraints and their solution."""
