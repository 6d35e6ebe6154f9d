"""What would make the verdict worthless: gold the teacher has seen, gold from elsewhere, gold that is trained on too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from wdistill.confidence import margin
from wdistill.methods.folds import Ints
from wdistill.methods.intervals import holm
from wdistill.methods.lessons import Case

SUSPICIOUS_Z, SUSPICIOUS_AREA = 4.0, 0.6  # the teacher surer on gold than elsewhere, beyond chance and by much
ALARM = 0.001  # p, corrected after Holm, below which gold does not look like the unlabeled rows
EXPECTED = 5.0  # rows a class must lead to expect, in both sets, to be counted by itself


@dataclass(frozen=True)
class Finding:
    """Something to look into before anything else is believed."""

    text: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    clause: str = "but look first, for gold may not be what it seems"  # of the verdict


def guarded(case: Case) -> tuple[Finding, ...]:
    """All that the arrays of a case give away; nothing where all is well."""
    return (*_seen_before(case), *_from_elsewhere(case), *_missing(case))


def repeated(count: int, rows: int, by: str) -> tuple[Finding, ...]:
    """Gold rows that are in the unlabeled pool as well, `count` of `rows`, by their ids or by their inputs."""
    if not count:
        return ()
    text = f"{count:,} of {rows:,} gold rows are among the unlabeled rows too, by their {by}: leave them out there"
    return (Finding(text, {"rows": float(count)}),)


def learned_from(count: int, rows: int) -> tuple[Finding, ...]:
    """Gold rows that are labeled rows as well, `count` of `rows`."""
    if not count:
        return ()
    text = (
        f"{count:,} of {rows:,} gold rows are among the labeled rows too. Second opinions leave them out there; but a "
        "teacher that was trained on them is not as good as it looks"
    )
    return (Finding(text, {"rows": float(count)}),)


def doubled(same: Ints | None) -> tuple[Finding, ...]:
    """Gold rows that stand more than once, from the first that is the same as each (m,)."""
    if same is None:
        return ()
    count, rows = len(same) - len(np.unique(same)), len(same)
    text = (
        f"{count:,} of {rows:,} gold rows repeat the inputs of another one: none answers for the other, but intervals count "
        "all of them and are too narrow"
    )
    return (Finding(text, {"rows": float(count)}),)


def _seen_before(case: Case) -> tuple[Finding, ...]:
    """The teacher's certainty on gold against that on the unlabeled rows: Mann and Whitney's test."""
    from scipy.stats import mannwhitneyu, norm

    gold, rest = margin(case.validation["teacher"]), margin(case.unlabeled["teacher"])
    found = mannwhitneyu(gold, rest, alternative="greater", method="asymptotic")
    area = float(found.statistic) / (len(gold) * len(rest))
    z = float(norm.isf(max(float(found.pvalue), 1e-300)))
    if not (z > SUSPICIOUS_Z and area > SUSPICIOUS_AREA):
        return ()
    text = f"the teacher is surer on gold than elsewhere ({area:.0%} of pairs, z = {z:.1f}): was it trained on gold rows?"
    return (Finding(text, {"area": area, "z": z}),)


def _from_elsewhere(case: Case) -> tuple[Finding, ...]:
    """Confidences (Kolmogorov and Smirnov) and class rates (chi-square) of gold against those of the unlabeled rows."""
    from scipy.stats import ks_2samp

    chances = {}
    for name in ("teacher", "student"):
        gold, rest = margin(case.validation[name]), margin(case.unlabeled[name])
        chances[f"the {name}'s confidence"] = float(ks_2samp(gold, rest, method="asymp").pvalue)
    gold, rest = case.validation["teacher"], case.unlabeled["teacher"]
    chances["the teacher's classes"] = _same_rates(gold.argmax(axis=1), rest.argmax(axis=1), gold.shape[1])
    low = {name: p for name, p in zip(chances, holm(list(chances.values())), strict=True) if p < ALARM}
    if not low:
        return ()
    shown = ", ".join(f"{name} (p = {p:.1g})" for name, p in low.items())
    return (Finding(f"gold does not look like the unlabeled rows: {shown}. What it says may not hold for them", low),)


def _same_rates(gold: NDArray[np.integer], rest: NDArray[np.integer], classes: int) -> float:
    """The chance of class rates so different, in two samples of classes (m,) and (n,); rare classes are taken together."""
    from scipy.stats import chi2_contingency

    counts = np.stack([np.bincount(each, minlength=classes) for each in (gold, rest)])
    expected = counts.sum(axis=0) * counts.sum(axis=1).min() / counts.sum()
    common = expected >= EXPECTED
    table = np.column_stack([counts[:, common], counts[:, ~common].sum(axis=1)])
    table = table[:, table.sum(axis=0) > 0]
    return float(chi2_contingency(table, correction=False).pvalue) if table.shape[1] > 1 else 1.0


def _missing(case: Case) -> tuple[Finding, ...]:
    """Classes that no gold row has."""
    classes = case.validation["teacher"].shape[1]
    absent = np.flatnonzero(np.bincount(case.labels, minlength=classes) == 0)
    if not len(absent):
        return ()
    names = case.evidence.classes
    shown = ", ".join(names[i] if names else str(i) for i in absent[:10]) + (", …" if len(absent) > 10 else "")
    said = np.isin(case.unlabeled["teacher"].argmax(axis=1), absent).mean()
    text = (
        f"{len(absent)} of {classes} classes have no gold row: {shown}. The teacher gives them to {said:.1%} of the rows, "
        "of which gold says nothing"
    )
    clause = "of classes without gold rows nothing is known"
    return (Finding(text, {"classes": float(len(absent)), "share": float(said)}, clause),)
