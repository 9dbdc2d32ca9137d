"""Programs compared on one device in one interleaved run: ours, and those of other frameworks that are installed."""
