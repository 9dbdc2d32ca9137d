"""Schedules: from computations and options to trees of loops."""
