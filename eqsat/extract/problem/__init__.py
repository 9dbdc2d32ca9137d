"""Extraction problems, their solutions, and limits."""
