"""Programs in C on this processor: compiled, kept and called."""
