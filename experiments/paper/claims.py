"""What the paper says of its arms beside what our trials say: one row a claim, made of lines alone.

Trials of one number belong together, whatever their number of labels (they share rows): their mean is one observation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.lab.figures import FIGURE_LOOK
from experiments.lab.results import Line, budgets, paper_gap
from experiments.lab.tables import (
    BOTH,
    MISSING,
    NONE_YET,
    SHOWN,
    corrected,
    joined,
    markdown,
    paired,
    pairs_of,
    tests_note,
    two_gains,
)
from experiments.paper import celeba, cifar10, cifar100, fidelity, imagenet, svhn, temperature
from wdistill.report.accuracies import Difference
from wdistill.report.svg import AMBER, BLUE, GREEN, INK, ORANGE, PALE, PURPLE, SKY
from wdistill.report.words import count, signed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPERS = (
    *(svhn.PAPER, cifar10.PAPER, cifar100.PAPER, celeba.PAPER, imagenet.PAPER, temperature.PAPER),
    *(fidelity.CIFAR10_PAPER, fidelity.CIFAR100_PAPER),
)


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
COLUMNS = {  # of the table: experiments, and the color and marker of the figure
    "SVHN, small pair": (("small-svhn",), BLUE, "o"),
    "CIFAR-10, small pair": (("small-cifar10", "small-temperature"), ORANGE, "s"),
    "Fashion-MNIST, small pair": (("small-fashion",), GREEN, "D"),
    "all small pairs": (("small-svhn", "small-cifar10", "small-fashion"), "", ""),  # not in the figure
    "CelebA, small teacher": (("small-celeba",), PURPLE, "^"),
    "SVHN, the paper's models": (("svhn",), AMBER, "v"),
    "CIFAR-10, the paper's models": (("cifar10",), SKY, "P"),
}
MEANING = (
    f"Points of test accuracy, {SHOWN}: mean over all numbers of labels ± standard error over trials (small pairs and "
    "CelebA: each with its own labeled set, teacher and student). The paper's: the smallest and the largest difference in "
    "its tables, or its curves. (n): of n trials alone."
)


def claims(lines: Mapping[str, Sequence[Line]]) -> str:
    """Every claim with the paper's differences and ours, for every column that has been run."""
    columns = _columns(lines)
    if not columns:
        return NONE_YET
    gaps = {
        (row, title, measure): paired(groups, claim.arm, claim.base, measure)
        for row, claim in enumerate(CLAIMS)
        for title, groups in columns.items()
        for measure in BOTH
    }
    tested = corrected(gaps)
    n = {title: max(found.trials for at, found in gaps.items() if found and at[1] == title) for title in columns}

    def cell(row: int, title: str) -> str:
        found = gaps[row, title, "final"]
        return two_gains(gaps, tested, row, title) + (f" ({found.trials})" if found and found.trials < n[title] else "")

    rows = []
    for row, claim in enumerate(CLAIMS):
        theirs = " to ".join(map(signed, printed(claim))) or claim.curves or MISSING
        rows.append([claim.says, f"{claim.arm} − {claim.base}", theirs, *(cell(row, title) for title in columns)])
    titles = [f"{title}, {count(trials, 'trial')}" for title, trials in n.items()]
    return joined([markdown(["claim", "difference", "the paper's", *titles], rows), f"{MEANING} {tests_note(len(tested))}"])


def claims_figure(lines: Mapping[str, Sequence[Line]]) -> Figure:
    """The final differences with their 95 % intervals over trials (no line for a single one), beside the paper's range."""
    import matplotlib.style
    from matplotlib.figure import Figure

    columns = {title: groups for title, groups in _columns(lines).items() if COLUMNS[title][1]}
    with matplotlib.style.context(["default", FIGURE_LOOK]):
        drawn = Figure(figsize=(8.5, 0.6 + 0.5 * len(CLAIMS)), layout="constrained")
        axes = drawn.add_subplot()
        spans = {row: span for row, claim in enumerate(CLAIMS) if (span := printed(claim))}
        lows, highs = (np.array(each) for each in zip(*spans.values(), strict=True))
        axes.barh(list(spans), highs - lows, 0.8, lows, color=PALE, label="the paper's tables (max on test)")
        for place, (title, groups) in enumerate(columns.items()):
            found = [(row, paired(groups, claim.arm, claim.base, "final")) for row, claim in enumerate(CLAIMS)]
            known = [(row, 100 * each.mean, 100 * _half(each)) for row, each in found if each]
            rows, means, halves = (np.array(each) for each in zip(*known, strict=True))
            heights, (_, color, marker) = rows + ((place + 0.5) / len(columns) - 0.5) * 0.7, COLUMNS[title]
            look: dict[str, Any] = {"color": color, "marker": marker, "markersize": 4.5, "linestyle": "none"}
            axes.errorbar(means, heights, None, halves, label=title, **look)
        axes.axvline(0, color=INK, linewidth=1)
        axes.set_yticks(range(len(CLAIMS)), [f"{claim.says}\n{claim.arm} − {claim.base}" for claim in CLAIMS], fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel("difference in final test accuracy, points", fontsize=9)
        bars = "bars: 95 % intervals over trials, uncorrected (the paper's models: over three splits, one teacher)"
        drawn.suptitle(bars, fontsize=9)
        drawn.legend(loc="outside lower center", ncols=3, fontsize=8)
    return drawn


def _half(found: Difference) -> float:
    """Half of the 95 % interval of Student's t."""
    from scipy.special import stdtrit

    return found.standard_error * float(stdtrit(found.trials - 1, 0.975)) if found.standard_error else 0.0


def _columns(lines: Mapping[str, Sequence[Line]]) -> dict[str, list[list[Line]]]:
    """The lines of every column that some claim can be judged by: of several budgets, those that cost most."""
    groups = {name: found[0] for name, each in lines.items() if (found := budgets(each))}
    known = {title: [groups[name] for name in names if name in groups] for title, (names, *_) in COLUMNS.items()}
    judged = [
        title for title, each in known.items() if any(paired(each, claim.arm, claim.base, "final") for claim in CLAIMS)
    ]
    return {title: known[title] for title in judged}


def printed(claim: Claim) -> tuple[float, ...]:
    """The smallest and the largest difference that the paper's tables have, in points; () where they have none."""
    gaps = [
        gap
        for paper in PAPERS
        for arm, base in pairs_of(claim.arm, claim.base, list(paper))
        for labels in paper[arm]
        if (gap := paper_gap(paper, arm, base, labels)) is not None
    ]
    return (min(gaps), max(gaps)) if gaps else ()
