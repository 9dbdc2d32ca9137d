"""Dependences of computations, and proofs that trees of loops respect them, by sets of integers in isl."""
