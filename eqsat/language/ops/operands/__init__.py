"""Rules about the operands of operators: shapes and attributes listed up to a bound, conditions on named dims."""
