"""Plans as programs: buffers, and the launches that fill them."""
