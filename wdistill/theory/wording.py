"""Checks and findings in words, the same on the terminal and on the page."""

from __future__ import annotations

import math

from wdistill.pages.words import MINUS
from wdistill.theory.claims import Check, Finding


def measured(check: Check) -> str:
    """With its standard error, to the second digit of that; 4 digits of what has none."""
    if check.error is None or not check.error > 0:
        return f"{check.measured:.4g}".replace("-", MINUS)
    places = min(12, max(0, 1 - math.floor(math.log10(check.error))))
    return f"{check.measured:.{places}f} ± {check.error:.{places}f}".replace("-", MINUS)


def verdict(check: Check) -> str:
    """A contrast is no claim: it does what theory says of it, or not."""
    if check.contrast:
        return "as expected" if check.holds else "not as expected"
    return "holds" if check.holds else "fails"


def summary(finding: Finding) -> str:
    """The verdict of a whole experiment, with what it rests on."""
    failed = sum(not check.holds for check in finding.checks)
    return "holds" if finding.holds else f"fails: {failed} of {len(finding.checks)} checks"
