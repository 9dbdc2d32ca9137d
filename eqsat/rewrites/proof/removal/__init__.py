"""Ranks that suffice: axes that an instance may lose and still refute a rule."""
