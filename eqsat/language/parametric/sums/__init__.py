"""Sums and extremes over unknown bounds: digits of indices, domains, pieces, ranges and weights."""
