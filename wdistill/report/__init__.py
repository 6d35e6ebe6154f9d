"""Reports of runs: one self-contained page, and one table for the terminal."""
