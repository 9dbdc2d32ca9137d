"""If, Loop and Scan: bodies read as graphs, types inferred through them, and nodes put in their place."""
