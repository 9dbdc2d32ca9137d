"""Instances of rules: operands and attributes, drawn or listed in order."""
