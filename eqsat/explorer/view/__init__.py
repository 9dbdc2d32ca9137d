"""A run as plain data."""
