"""Operators of which a proof knows no more than their index form: what they do along other axes is not looked at."""
