"""What a tensor program is."""
