"""Attention in any spelling, as the one operator that it is: read, written, and proved."""
