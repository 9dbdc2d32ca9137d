"""Text of trees of loops."""
