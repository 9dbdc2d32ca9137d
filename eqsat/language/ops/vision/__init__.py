"""Operators on images: resizing, and sampling at places that are computed."""

from eqsat.language.ops.vision import grid, resize

__all__ = ["grid", "resize"]
