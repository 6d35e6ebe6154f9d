"""What the paper says of its arms beside what our trials say: one row a claim, made of lines alone.

Trials of one number belong together, whatever their number of labels (they share rows): their mean is one observation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments import celeba, cifar10, cifar100, fidelity, imagenet, svhn, temperature
from experiments.lines import Line, Measure, accuracy, arms_of, budgets, labels_of
from experiments.tables import BOTH, MISSING, corrected, joined, markdown, of_tests, paper_gap, two_gains
from wdistill.pages.accuracies import Difference, difference
from wdistill.pages.words import count, signed

PAPERS = (
    *(svhn.PAPER, cifar10.PAPER, cifar100.PAPER, celeba.PAPER, imagenet.PAPER, temperature.PAPER),
    *(fidelity.CIFAR10_PAPER, fidelity.CIFAR100_PAPER),
)
EVERY = "*"  # at the end of an arm: all arms that begin so


@dataclass(frozen=True)
class Claim:
    """Something that is said of one arm beside another."""

    says: str
    arm: str
    base: str
    curves: str = ""  # what the paper shows, where it has no numbers


CLAIMS = (
    Claim("Figure 1: wrong labels cost the student", "oracle", "unweighted", "curves: above"),
    Claim("Figures 4 to 8: weights estimated once gain", "debiased", "unweighted"),
    Claim("not in the paper: more than as many weights at random", "debiased", "shuffled"),
    Claim("Figures 4 and 8: also with hard targets", "debiased-hard", "unweighted-hard"),
    Claim("Figure 8: hard in place of soft targets", "unweighted-hard", "unweighted"),
    Claim("Figure 7: VID gains", "vid", "unweighted"),
    Claim("Figure 7: weights gain with VID too", "debiased-vid", "vid"),
    Claim("Figure 9: updating gains", "debiased-refresh", "debiased", "curves: above on two of three"),
    Claim("not in the paper: fidelity gains", "fidelity", "unweighted"),
    Claim("Figure 10: our weights are better than fidelity's", "debiased-refresh", "fidelity"),
    Claim("Figure 10: the same, estimated once", "debiased", "fidelity"),
    Claim("Figure 10: both together are better than fidelity", "composition", "fidelity"),
    Claim("Figure 16: weights gain at all temperatures, their mean", "debiased-T*", "unweighted-T*"),
)
COLUMNS = {  # experiments, and what they are called
    "SVHN, small pair": ("small-svhn",),
    "CIFAR-10, small pair": ("small-cifar10", "small-temperature"),
    "Fashion-MNIST, small pair": ("small-fashion",),
    "all small pairs": ("small-svhn", "small-cifar10", "small-fashion"),
    "CelebA, small teacher": ("small-celeba",),
    "SVHN, the paper's models": ("svhn",),
    "CIFAR-10, the paper's models": ("cifar10",),
}


def claims(lines: Mapping[str, Sequence[Line]]) -> str:
    """Every claim with the paper's differences and ours, best / final, for every column that has been run."""
    groups = {name: found[0] for name, each in lines.items() if (found := budgets(each))}  # of several, what cost most
    columns = {title: [groups[name] for name in names if name in groups] for title, names in COLUMNS.items()}
    shown = [title for title, found in columns.items() if found]
    if not shown:
        return "No results yet.\n"
    gaps = {
        (row, title, measure): observed(columns[title], claim, measure)
        for row, claim in enumerate(CLAIMS)
        for title in shown
        for measure in BOTH
    }
    chances = corrected(gaps)
    rows = [
        [
            claim.says,
            f"{claim.arm} − {claim.base}",
            _printed(claim),
            *(two_gains(gaps, chances, row, title) for title in shown),
        ]
        for row, claim in enumerate(CLAIMS)
    ]
    meaning = (
        "Points of test accuracy, best / final: mean over all numbers of labels ± standard error over trials (small pairs "
        "and CelebA: each with a labeled set, teacher and student of its own). The paper's: the smallest and the largest "
        "difference in its tables, or its curves."
    )
    shared = [group[0]["repeat"] is None for title in shown for group in columns[title]]
    most = {title: max(found.trials for place, found in gaps.items() if found and place[1] == title) for title in shown}
    grid = markdown(
        ["claim", "difference", "the paper's", *(f"{title}, {count(most[title], 'trial')}" for title in shown)], rows
    )
    return joined([grid, f"{meaning} {of_tests(gaps.values(), len(chances), shared)}"])


def observed(groups: Sequence[Sequence[Line]], claim: Claim, measure: Measure) -> Difference | None:
    """One observation for every trial of every group: the mean over numbers of labels; trials that lack one do not count."""
    found = [each for group in groups for each in _differences(group, claim, measure)]
    return difference(found, [0.0] * len(found))


def _differences(group: Sequence[Line], claim: Claim, measure: Measure) -> Iterator[float]:
    pairs, wanted = _pairs(claim, arms_of(group)), labels_of(group)
    for number in sorted({line["trial"] for line in group}):
        mine = [line for line in group if line["trial"] == number]
        known = [(accuracy(line, arm, measure), accuracy(line, base, measure)) for line in mine for arm, base in pairs]
        gaps = [ours - theirs for ours, theirs in known if ours is not None and theirs is not None]
        if pairs and len(gaps) == len(wanted) * len(pairs):
            yield float(np.mean(gaps))


def _pairs(claim: Claim, arms: Sequence[str]) -> list[tuple[str, str]]:
    """The arms that a claim compares, of those that there are."""
    if not claim.arm.endswith(EVERY):
        return [(claim.arm, claim.base)] if {claim.arm, claim.base} <= set(arms) else []
    ours, theirs = claim.arm.removesuffix(EVERY), claim.base.removesuffix(EVERY)
    pairs = [(arm, theirs + arm.removeprefix(ours)) for arm in arms if arm.startswith(ours)]
    return [pair for pair in pairs if pair[1] in arms]


def _printed(claim: Claim) -> str:
    """The smallest and the largest difference that the paper's tables have; else what its curves show."""
    found = [
        gap
        for paper in PAPERS
        for arm, base in _pairs(claim, list(paper))
        for labels in paper[arm]
        if (gap := paper_gap(paper, arm, base, labels)) is not None
    ]
    return " to ".join(signed(each) for each in (min(found), max(found))) if found else claim.curves or MISSING
