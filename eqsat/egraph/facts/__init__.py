"""Facts about values that rules ask for: finiteness, ranges, signs of zeros."""
