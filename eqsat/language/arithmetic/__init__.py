"""Arithmetic that references of operators run in: floats, residues modulo a prime, real terms of Z3."""
