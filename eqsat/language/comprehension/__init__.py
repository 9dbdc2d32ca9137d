"""The language of tensor comprehensions: from text to ranges, types, bounds and values."""
