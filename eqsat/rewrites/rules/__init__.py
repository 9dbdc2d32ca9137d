"""Rules: their parts, their text, and the evidence with which they load."""
