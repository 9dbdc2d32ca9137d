"""Loop nests: computations as statements over boxes of indices, their schedules, and their text in C."""
