"""Figures that a person reads: models, latencies, optimiser times. Nothing here is part of the package."""

import os

# Every figure is of a run of its own.
os.environ.setdefault("EQSAT_RESULTS", "")
