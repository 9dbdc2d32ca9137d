"""Proofs by what operators do along each axis by itself."""
