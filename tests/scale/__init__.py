"""Tests that start clusters and groups of processes: `make test-scale` runs them, in a network namespace of their own."""
