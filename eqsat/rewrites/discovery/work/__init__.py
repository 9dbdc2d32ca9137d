"""Long work in parts that are kept."""
