"""Checks of the gold rows: was the teacher trained on them, do they look like the unlabeled rows, are there duplicates."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.methods.context import Context, one_hot
from wdistill.methods.crossfit import Ints
from wdistill.methods.groups import SharedGroups
from wdistill.methods.on_gold import effective_number, mean_of, standard_errors
from wdistill.methods.statistics import Z, holm
from wdistill.weights.confidence import Floats, margin

SUSPICIOUS_Z, SUSPICIOUS_AREA = 4.0, 0.6  # how much more certain the teacher is on gold before a concern is raised
ALARM = 0.001  # p, corrected after Holm, below which gold does not look like the unlabeled rows
EXPECTED = 5.0  # expected count of a class, in both sets, below which it is pooled with other rare classes


@dataclass(frozen=True)
class Concern:
    """A problem with the gold rows to resolve before trusting the verdict."""

    text: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    clause: str = "but look first, for gold may not be what it seems"  # appended to the verdict


def check_gold(context: Context) -> tuple[Concern, ...]:
    """All concerns that the arrays of a context show; none where all is well."""
    return (*_seen_before(context), *_from_elsewhere(context), *_missing(context))


def gold_in_unlabeled(count: int, rows: int, by: str) -> tuple[Concern, ...]:
    """A concern where `count` of `rows` gold rows are unlabeled rows too, compared by their ids or by their inputs."""
    if not count:
        return ()
    text = f"{count:,} of {rows:,} gold rows are among the unlabeled rows too, by their {by}: leave them out there"
    return (Concern(text, {"rows": float(count)}),)


def gold_in_labeled(count: int, rows: int) -> tuple[Concern, ...]:
    """A concern where `count` of `rows` gold rows are labeled rows too."""
    if not count:
        return ()
    text = (
        f"{count:,} of {rows:,} gold rows are among the labeled rows too. Auxiliary models leave them out there; but a "
        "teacher that was trained on them is not as good as it looks"
    )
    return (Concern(text, {"rows": float(count)}),)


def gold_shares_groups(shared: SharedGroups, rows: int, others: str) -> tuple[Concern, ...]:
    """A concern where groups of gold rows, of which there are `rows`, occur among `others` too, such as "labeled rows"."""
    if not len(shared.groups):
        return ()
    count = len(shared.groups)
    groups = f"{count:,} group{'s' if count > 1 else ''}"
    text = (
        f"{len(shared.first):,} of {rows:,} gold rows are of {groups} that {others} have too: what was learned from a group "
        "looks better on its own rows than on new ones"
    )
    return (Concern(text, {"rows": float(len(shared.first)), "groups": float(count)}),)


def duplicate_gold(same: Ints | None) -> tuple[Concern, ...]:
    """A concern where gold rows occur more than once; `same` (m,) is the first equal row of each."""
    if same is None:
        return ()
    count, rows = len(same) - len(np.unique(same)), len(same)
    text = (
        f"{count:,} of {rows:,} gold rows repeat the inputs of another one: they share a fold, but intervals count all of "
        "them and are too narrow"
    )
    return (Concern(text, {"rows": float(count)}),)


def _seen_before(context: Context) -> tuple[Concern, ...]:
    """Compare the teacher's margins on gold and on the unlabeled rows: Mann and Whitney's test."""
    from scipy.stats import mannwhitneyu, norm

    gold, unlabeled = margin(context.validation["teacher"]), margin(context.unlabeled["teacher"])
    if context.design.even:
        test = mannwhitneyu(gold, unlabeled, alternative="greater", method="asymptotic")
        area = float(test.statistic) / (len(gold) * len(unlabeled))
        z = float(norm.isf(max(float(test.pvalue), 1e-300)))
    else:
        area, error = mean_of(_ranks(gold, unlabeled), context.design)
        z = (area - 0.5) / float(np.hypot(error, 1 / np.sqrt(12 * len(unlabeled)))) * Z / standard_errors(context.design)
    if not (z > SUSPICIOUS_Z and area > SUSPICIOUS_AREA):
        return ()
    text = f"the teacher is surer on gold than elsewhere ({area:.0%} of pairs, z = {z:.1f}): was it trained on gold rows?"
    return (Concern(text, {"area": area, "z": z}),)


def surer_on_gold(model: str, gold: NDArray[np.float64], others: Ints) -> tuple[Concern, ...]:
    """A concern where a model is surer on gold than elsewhere: margins (m,), and the unlabeled rows (b,) in equal bins."""
    bins = len(others)
    own = np.bincount(np.minimum((gold * bins).astype(np.int64), bins - 1), minlength=bins)
    m, n, ties = len(gold), int(others.sum()), (own + others).astype(np.float64)
    if not m or not n:
        return ()
    area = float(own @ (np.cumsum(others) - others / 2)) / (m * n)
    variance = (m + n + 1 - float(np.sum(ties**3 - ties)) / ((m + n) * (m + n - 1))) / (12 * m * n)
    z = (area - 0.5) / np.sqrt(variance) if variance > 0 else 0.0
    if not (z > SUSPICIOUS_Z and area > SUSPICIOUS_AREA):
        return ()
    text = f"the {model} is surer on gold than elsewhere ({area:.0%} of pairs, z = {z:.1f}): was it trained on gold rows?"
    return (Concern(text, {"area": area, "z": float(z)}),)


def _from_elsewhere(context: Context) -> tuple[Concern, ...]:
    """Compare confidences (Kolmogorov and Smirnov) and class rates (chi-square) of gold and unlabeled rows."""
    p_values = {}
    for name in ("teacher", "student") if "student" in context.validation else ("teacher",):
        gold, unlabeled = margin(context.validation[name]), margin(context.unlabeled[name])
        p_values[f"the {name}'s confidence"] = _same_distribution(gold, unlabeled, context)
    p_values["the teacher's classes"] = _same_rates(context)
    low = {name: p for name, p in zip(p_values, holm(list(p_values.values())), strict=True) if p < ALARM}
    if not low:
        return ()
    listed = ", ".join(f"{name} (p = {p:.1g})" for name, p in low.items())
    return (
        Concern(f"gold does not look like the unlabeled rows: {listed}. Estimates from gold may not hold for them", low),
    )


def _ranks(gold: Floats, unlabeled: Floats) -> Floats:
    """The share of the unlabeled rows (n,) that are below each gold row (m,), ties half."""
    ordered = np.sort(unlabeled)
    both = np.searchsorted(ordered, gold, "left") + np.searchsorted(ordered, gold, "right")
    return np.asarray(both / (2 * len(ordered)))


def _worth(values: Floats, context: Context) -> float:
    """How many rows the gold rows are worth for the mean of values (m,) or (m, C), fewer still with few groups."""
    return effective_number(values, context.design) * (Z / standard_errors(context.design)) ** 2


def _same_distribution(gold: Floats, unlabeled: Floats, context: Context) -> float:
    """p of Kolmogorov and Smirnov's test of values of gold rows (m,), as they were drawn, and of unlabeled rows (n,)."""
    from scipy.stats import ks_2samp, kstwobign

    if context.design.even:
        return float(ks_2samp(gold, unlabeled, method="asymp").pvalue)
    order, n = np.argsort(gold, kind="stable"), len(unlabeled)
    weights = np.ones(len(gold)) if context.gold_weights is None else context.gold_weights
    total, points = np.concatenate([[0.0], np.cumsum(weights[order])]), np.unique(np.concatenate([gold, unlabeled]))
    own = total[np.searchsorted(gold[order], points, "right")] / total[-1]
    gap = float(np.abs(own - np.searchsorted(np.sort(unlabeled), points, "right") / n).max())
    m = _worth(_ranks(gold, unlabeled), context)
    return float(kstwobign.sf(gap * np.sqrt(m * n / (m + n))))


def _same_rates(context: Context) -> float:
    """p of a chi-square test of equal rates of the teacher's classes on gold and unlabeled rows; rare ones are pooled."""
    from scipy.stats import chi2_contingency

    classes = context.validation["teacher"].shape[1]
    gold, unlabeled = (rows["teacher"].argmax(axis=1) for rows in (context.validation, context.unlabeled))
    counts = np.stack([np.bincount(sample, minlength=classes) for sample in (gold, unlabeled)])
    if not context.design.even:
        own = np.bincount(gold, context.gold_weights, minlength=classes)
        counts = np.stack([own / own.sum() * _worth(one_hot(gold, classes), context), counts[1]])
    expected = counts.sum(axis=0) * counts.sum(axis=1).min() / counts.sum()
    common = expected >= EXPECTED
    table = np.column_stack([counts[:, common], counts[:, ~common].sum(axis=1)])
    table = table[:, table.sum(axis=0) > 0]
    return float(chi2_contingency(table, correction=False).pvalue) if table.shape[1] > 1 else 1.0


def _missing(context: Context) -> tuple[Concern, ...]:
    """Classes that no gold row has."""
    classes = context.validation["teacher"].shape[1]
    absent = np.flatnonzero(np.bincount(context.labels, minlength=classes) == 0)
    if not len(absent):
        return ()
    names = context.evidence.classes
    shown = ", ".join(names[i] if names else str(i) for i in absent[:10]) + (", …" if len(absent) > 10 else "")
    share = np.isin(context.unlabeled["teacher"].argmax(axis=1), absent).mean()
    text = (
        f"{len(absent)} of {classes} classes have no gold row: {shown}. The teacher gives them to {share:.1%} of the rows, "
        "for which gold estimates nothing"
    )
    clause = "of classes without gold rows nothing is known"
    return (Concern(text, {"classes": float(len(absent)), "share": float(share)}, clause),)


Keys = NDArray[np.bytes_]  # (n,) a hash of every row's inputs: equal where the inputs are, bit for bit
Bools = NDArray[np.bool_]

TELLING = 100  # fewest rows from which the rate of repeats is estimated
RARE = 0.05  # share of rows without a repeat below which repeats are common
KINDRED = 0.1  # least ratio of observed to expected repeats at which a shared row is a coincidence


def keys_of(rows: NDArray[Any]) -> Keys:
    """Keys of rows (n, …); floating-point inputs are hashed as float32, whatever their precision."""
    floating = np.issubdtype(rows.dtype, np.floating)
    with np.errstate(over="ignore"):
        exact = (row.astype(np.float32) + np.float32(0) if floating else row for row in rows)  # −0.0 becomes 0.0
        digests = [hashlib.blake2b(np.ascontiguousarray(row).tobytes(), digest_size=16).digest() for row in exact]
    return np.frombuffer(b"".join(digests), "S16")


def twice(keys: Keys) -> Bools:
    """Which rows (n,) occur more than once among these."""
    _, place, counts = np.unique(keys, return_inverse=True, return_counts=True)
    return np.asarray(counts[place] > 1)


def among(unlabeled: Keys, others: Keys) -> float:
    """The rate at which unlabeled rows are among `others` by chance.

    They may also be there by design: a pool of all rows has the labeled ones in it. Rows that coincide by chance also repeat
    each other; so where those that are not among `others` hardly repeat each other, their rate of repeats is returned.
    """
    if len(unlabeled) < TELLING:
        return 0.0
    shared = np.isin(unlabeled, others)
    share = float(shared.mean())
    if share > 1 - RARE:
        return share
    unshared = unlabeled[~shared]
    repeats, expected = float(twice(unshared).mean()), min(1.0, share * len(unshared) / max(1, len(np.unique(others))))
    return share if repeats >= KINDRED * expected else min(share, repeats)


def by_itself(unlabeled: Keys) -> float:
    """The share of unlabeled rows that occur more than once."""
    return float(twice(unlabeled).mean()) if len(unlabeled) >= TELLING else 0.0


def leaked(gold: Bools, chance: float) -> Bools:
    """Which gold rows (m,) have leaked: `gold`, the rows with a repeat, or none where so many repeats occur by chance.

    `chance`: the rate of repeats without a leak.
    """
    from scipy.special import bdtrc  # of every run: scipy.stats takes more than a second to import

    count = int(gold.sum())
    return gold if count and bdtrc(count - 1, len(gold), chance) < ALARM else np.zeros_like(gold)


def one_of_each(gold: Keys, unlabeled: Keys) -> Ints | None:
    """The first equal gold row of every gold row (m,), where gold rows are repeated; None where all differ."""
    if not leaked(twice(gold), among(unlabeled, gold)).any():
        return None
    _, first, place = np.unique(gold, return_index=True, return_inverse=True)
    return np.asarray(first[place], np.int64)
