"""Operators whose operands have to fit together as draws by the schema alone do not make them."""
