"""Choices between numbers, of which some are infinite, in other forms."""
