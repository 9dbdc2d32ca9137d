"""Small graphs beside the equivalents that an expert would write, and how often eqsat reaches their cost."""
