"""Operators that move windows as sums over the places of a window, where that is what they are."""
