"""Normalisations and attention."""
