"""Pages, pictures and tables of a run."""
