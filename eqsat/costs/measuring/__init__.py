"""Measurement of kernels."""
