"""The paper's tables and figures, each a file of its own; see README.md beside it."""
