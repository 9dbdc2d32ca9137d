"""Commands about measured costs."""
