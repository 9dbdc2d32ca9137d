"""Results of earlier runs, kept in files and found again by equal runs."""
