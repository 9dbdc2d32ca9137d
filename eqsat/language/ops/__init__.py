"""The operators, one declaration each, grouped by kind; importing this package registers them."""

from eqsat.language.ops import linear

__all__ = ["linear"]
