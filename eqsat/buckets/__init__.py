"""One e-graph, a choice for each of several sizes of named dims, and results that pick theirs when they run."""
