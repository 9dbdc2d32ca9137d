"""The operators, one declaration each, grouped by kind; importing this package registers them."""

from eqsat.language.ops import activations, elementwise, indexing, linear, movement

__all__ = ["activations", "elementwise", "indexing", "linear", "movement"]
