"""Proofs by chains of laws, found in an e-graph and confirmed by Z3."""
