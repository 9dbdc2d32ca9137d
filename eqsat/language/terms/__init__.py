"""Types, dims, constants, graphs, plans and patterns: the data that everything else works on."""
