"""The result of a run, and the report of it."""
