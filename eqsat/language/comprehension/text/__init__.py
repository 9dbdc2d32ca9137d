"""Text of comprehensions: trees, read and printed."""
