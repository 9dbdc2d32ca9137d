"""`eqsat bench` and the tables of what it measures."""
