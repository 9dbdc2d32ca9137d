"""What can go wrong, tried on purpose: random graphs, broken files, killed processes, full disks, missing homes."""
