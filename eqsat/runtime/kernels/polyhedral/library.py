"""The library isl, or the error that says how to install it."""

from eqsat.system.extras import missing

try:
    import islpy as isl
except ImportError:
    raise missing("islpy") from None

__all__ = ["isl"]
