"""What the paper says of its arms beside what our trials say: one row a claim, made of lines alone.

Trials of one number belong together, whatever their number of labels (they share rows): their mean is one observation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from experiments import celeba, cifar10, cifar100, fidelity, imagenet, svhn, temperature
from experiments.figures import FIGURE_LOOK
from experiments.lines import Line, Measure, accuracy, arms_of, budgets, labels_of
from experiments.tables import BOTH, MISSING, corrected, joined, markdown, of_tests, paper_gap, two_gains
from wdistill.inspection import BLUE, INK, ORANGE, PALE
from wdistill.pages.accuracies import Difference, difference
from wdistill.pages.figures import AMBER, GREEN, PURPLE, SKY
from wdistill.pages.words import count, signed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    Claim("Figure 16: weights gain at almost all temperatures; ours: the mean", "debiased-T*", "unweighted-T*"),
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
LOOKS = {  # color and marker
    "SVHN, small pair": (BLUE, "o"),
    "CIFAR-10, small pair": (ORANGE, "s"),
    "Fashion-MNIST, small pair": (GREEN, "D"),
    "CelebA, small teacher": (PURPLE, "^"),
    "SVHN, the paper's models": (AMBER, "v"),
    "CIFAR-10, the paper's models": (SKY, "P"),
}


def claims(lines: Mapping[str, Sequence[Line]]) -> str:
    """Every claim with the paper's differences and ours, best / final, for every column that has been run."""
    columns = _columns(lines)
    if not columns:
        return "No results yet.\n"
    gaps = {
        (row, title, measure): observed(groups, claim, measure)
        for row, claim in enumerate(CLAIMS)
        for title, groups in columns.items()
        for measure in BOTH
    }
    chances = corrected(gaps)
    trials = {title: max(found.trials for at, found in gaps.items() if found and at[1] == title) for title in columns}

    def cell(row: int, title: str) -> str:
        """Best / final, with the number of trials where others of the column have more."""
        found = gaps[row, title, "final"]
        fewer = f" ({found.trials})" if found and found.trials < trials[title] else ""
        return two_gains(gaps, chances, row, title) + fewer

    rows = [
        [
            claim.says,
            f"{claim.arm} − {claim.base}",
            " to ".join(map(signed, printed(claim))) or claim.curves or MISSING,
            *(cell(row, title) for title in columns),
        ]
        for row, claim in enumerate(CLAIMS)
    ]
    meaning = (
        "Points of test accuracy, best / final: mean over all numbers of labels ± standard error over trials (small pairs "
        "and CelebA: each with a labeled set, teacher and student of its own). The paper's: the smallest and the largest "
        "difference in its tables, or its curves. (n): of n trials alone."
    )
    shared = [group[0]["repeat"] is None for groups in columns.values() for group in groups]
    titles = [f"{title}, {count(each, 'trial')}" for title, each in trials.items()]
    grid = markdown(["claim", "difference", "the paper's", *titles], rows)
    return joined([grid, f"{meaning} {of_tests(gaps.values(), len(chances), shared)}"])


def claims_figure(lines: Mapping[str, Sequence[Line]]) -> Figure:
    """The final differences with their 95 % intervals over trials (no line for a single one), beside the paper's range."""
    import matplotlib.style
    from matplotlib.figure import Figure

    columns = {title: groups for title, groups in _columns(lines).items() if title in LOOKS}
    with matplotlib.style.context(["default", FIGURE_LOOK]):
        drawn = Figure(figsize=(8.5, 0.6 + 0.5 * len(CLAIMS)), layout="constrained")
        axes = drawn.add_subplot()
        spans = {row: span for row, claim in enumerate(CLAIMS) if (span := printed(claim))}
        lows, highs = (np.array(each) for each in zip(*spans.values(), strict=True))
        axes.barh(list(spans), highs - lows, 0.8, lows, color=PALE, label="the paper's tables (best)")
        for place, (title, groups) in enumerate(columns.items()):
            found = [(row, observed(groups, claim, "final")) for row, claim in enumerate(CLAIMS)]
            known = [(row, 100 * each.mean, 100 * _half(each)) for row, each in found if each]
            rows, means, halves = (np.array(each) for each in zip(*known, strict=True))
            heights = rows + ((place + 0.5) / len(columns) - 0.5) * 0.7
            color, marker = LOOKS[title]
            axes.errorbar(
                means, heights, None, halves, color=color, marker=marker, markersize=4.5, linestyle="none", label=title
            )
        axes.axvline(0, color=INK, linewidth=1)
        axes.set_yticks(range(len(CLAIMS)), [f"{claim.says}\n{claim.arm} − {claim.base}" for claim in CLAIMS], fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel("difference in final test accuracy, points", fontsize=9)
        drawn.suptitle(
            "bars: 95 % intervals over trials, uncorrected (the paper's models: over three splits, one teacher)", fontsize=9
        )
        drawn.legend(loc="outside lower center", ncols=3, fontsize=8)
    return drawn


def _half(found: Difference) -> float:
    """Half of the 95 % interval of Student's t."""
    from scipy.special import stdtrit

    return found.standard_error * float(stdtrit(found.trials - 1, 0.975)) if found.standard_error else 0.0


def _columns(lines: Mapping[str, Sequence[Line]]) -> dict[str, list[list[Line]]]:
    """The lines of every column that some claim can be judged by: of several budgets, those that cost most."""
    groups = {name: found[0] for name, each in lines.items() if (found := budgets(each))}
    known = {title: [groups[name] for name in names if name in groups] for title, names in COLUMNS.items()}
    return {title: found for title, found in known.items() if any(observed(found, claim, "final") for claim in CLAIMS)}


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


def printed(claim: Claim) -> tuple[float, ...]:
    """The smallest and the largest difference that the paper's tables have, in points; () where they have none."""
    found = [
        gap
        for paper in PAPERS
        for arm, base in _pairs(claim, list(paper))
        for labels in paper[arm]
        if (gap := paper_gap(paper, arm, base, labels)) is not None
    ]
    return (min(found), max(found)) if found else ()
