"""Sums of products side by side, as a sum of products of what lies side by side."""
