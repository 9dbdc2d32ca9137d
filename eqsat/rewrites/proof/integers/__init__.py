"""Integers in proofs over the real numbers: what types hold of results, and parameters of quantised operators."""
