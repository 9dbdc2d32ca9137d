"""Operators on images: resizing, and sampling at places that are computed."""

from eqsat.language.ops.vision import resize

__all__ = ["resize"]
