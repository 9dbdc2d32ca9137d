"""Proofs for every rank and size of rules that move elements past what is computed of each of them."""
