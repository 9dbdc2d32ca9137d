"""Exploration of a run: the e-graph as it grows, equal forms, chains of rules, choices."""
