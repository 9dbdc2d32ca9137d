"""Comprehensions as operators of graphs."""
