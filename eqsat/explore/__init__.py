"""Looking into a run: the e-graph as it grows, equal forms, chains of rules, what changed, as tables and pictures."""
