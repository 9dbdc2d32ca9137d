"""Equations that were found: their forms, names, directions and files."""
