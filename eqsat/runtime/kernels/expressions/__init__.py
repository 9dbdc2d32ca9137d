"""C expressions: coordinates, and the arithmetic of single elements."""
