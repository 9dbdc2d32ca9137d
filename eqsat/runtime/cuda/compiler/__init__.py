"""Compilation of generated kernels, kept by content."""
