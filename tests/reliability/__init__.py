"""The reliability harness: `make reliability` proves the goals one by one, and docs/reliability.md shows them."""
