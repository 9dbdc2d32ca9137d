"""Theories: equal forms that are computed where rules, one step at a time, would have too many to try."""
