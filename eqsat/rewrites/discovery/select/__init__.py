"""Selection of the rules that derive the others."""
