"""Costs of a node on a device, measured or estimated."""
