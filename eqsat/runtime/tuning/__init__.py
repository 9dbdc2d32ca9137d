"""Search for the fastest options of a kernel by measurement, and the persistent cache of its results."""
