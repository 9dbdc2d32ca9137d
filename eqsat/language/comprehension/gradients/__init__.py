"""Gradients of comprehensions, as comprehensions."""
