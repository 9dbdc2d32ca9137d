"""Whole graphs as shared libraries of C: kernels, the memory they run in, and the calls that run them."""
