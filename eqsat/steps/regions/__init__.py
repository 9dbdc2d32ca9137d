"""Regions of a graph that may run as one function, and their trial beside what they stand for."""
