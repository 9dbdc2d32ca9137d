"""Regions of a graph, as one function in the language of comprehensions."""
