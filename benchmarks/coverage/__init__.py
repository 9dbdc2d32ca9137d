"""What eqsat understands of the models people have, and what becomes of them: `python -m benchmarks.coverage`."""
