"""The steps of a run: reading, choice, trials and certification."""
