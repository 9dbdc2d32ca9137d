"""Quantisation: calibration data, the ranges of values on them, and scales."""
