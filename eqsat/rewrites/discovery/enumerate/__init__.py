"""Terms over typed inputs, and those that are equal on all elements tried."""
