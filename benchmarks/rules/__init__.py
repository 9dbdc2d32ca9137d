"""What measures the rules themselves: mutants, power, and how much is written down."""
