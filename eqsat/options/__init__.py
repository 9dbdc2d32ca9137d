"""Options of a run, each written once: its default, its check, its help, and the calls that take it."""
