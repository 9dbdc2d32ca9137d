"""Discovery of rules: enumeration, generalisation, verification and selection."""
