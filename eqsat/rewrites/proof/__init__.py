"""Proofs of equations: chains of rules between terms, found in an e-graph, stated for all instances, checked by Z3."""
