"""Rewrite rules and their evidence."""
