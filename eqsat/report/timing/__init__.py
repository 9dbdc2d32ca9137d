"""Results made ready to run, and the levels that a runtime optimises them at, timed."""
