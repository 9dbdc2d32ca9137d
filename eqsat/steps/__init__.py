"""The steps of a run: what is read, chosen, tried and certified."""
