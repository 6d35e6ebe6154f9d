"""The command line: one file a command, named like it; `entry` parses and calls."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    from wdistill.cli import entry

    return entry.main(argv)
