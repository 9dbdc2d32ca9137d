"""Equal blocks of a model: one chosen form for all that are equal, and what the report says of them."""
