"""Devices, and the measured entries that ship for them."""
