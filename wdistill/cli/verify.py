"""`wdistill verify`: read a result whole, and say what is whole, damaged or missing."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add(commands: Any) -> None:
    """The command and its argument."""
    verify = commands.add_parser(
        "verify",
        help="whether a run, weights, prepared data or an exported student are as they were written",
        description="Read a run, a file of weights, an unfinished job (OUTPUT.parts), prepared data or an exported\n"
        "student, compare it with its SHA-256, and say what is whole, damaged or missing. Of weights, the contents are\n"
        "compared: all rows and the record. Of bytes that no reader uses, such as padding, nothing is said.",
        epilog="exit codes: 0 all is whole, 2 nothing to verify, 3 something is damaged, missing or does not belong there",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verify.add_argument("path", type=Path, metavar="PATH", help="a folder or a file")
    verify.set_defaults(run=run_verify)


def run_verify(arguments: argparse.Namespace) -> None:
    from wdistill.core.errors import StorageError, printable
    from wdistill.report.verify import verify

    kind, findings = verify(arguments.path)
    bad = [finding for finding in findings if finding.is_bad]
    print(printable(f"{arguments.path}: {kind}, {len(findings) - len(bad):,} of {len(findings):,} files whole"))
    for finding in bad:
        print(printable(f"  {finding.state}: {finding.path}; {finding.remedy}"))
    if bad:
        names = ", ".join(str(finding.path) for finding in bad[:5])
        raise StorageError(
            "files are damaged or missing, or do not belong there",
            where=str(arguments.path),
            found=f"{len(bad)} of {len(findings)}: {names}",
            expected="files whose SHA-256 is the one that was recorded",
            remedy=bad[0].remedy,
        )
