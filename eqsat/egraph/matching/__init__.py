"""Left sides as queries, their matches, and right sides as e-nodes."""
