"""The process and its machine: files, time, interrupts, the terminal."""
