"""The GPU: memory, loaded programs, timing."""
