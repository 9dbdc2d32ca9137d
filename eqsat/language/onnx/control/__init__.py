"""If, Loop and Scan: bodies read as graphs, types inferred through them, and what can be put in their place."""
