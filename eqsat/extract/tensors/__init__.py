"""Extraction problems of tensor e-graphs."""
