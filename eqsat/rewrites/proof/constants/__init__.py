"""Constants of unknown size of which conditions say what each element is by its place."""
