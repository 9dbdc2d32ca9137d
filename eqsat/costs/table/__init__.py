"""Measured costs in a file."""
