"""Figures that a person reads: models, latencies, optimiser times. Nothing here is part of the package."""
