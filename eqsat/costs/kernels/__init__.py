"""Priced kernels: their keys, and the work they do."""
