"""Quantisation, and products and convolutions of quantised numbers; importing this package registers them."""

from eqsat.language.ops.quantised import packed, products, quantisation

__all__ = ["packed", "products", "quantisation"]
