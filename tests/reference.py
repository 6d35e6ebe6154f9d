"""The weights once more, slowly, from the paper and the decisions alone: Python numbers, 50 digits, every pair compared.

Nothing here imports wdistill. Probabilities and losses are Decimals of 50 digits; neighbour means are exact fractions; only
what the decisions fix as float64 is float64: the confidences, and the squared distances that settle who is near.
"""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np

DIGITS = 50
PROBABILITY_FLOOR = Decimal("1e-12")
LOSS_FLOOR = Decimal("1e-6")


def decimals(row):
    """A row of any float type as exact Decimals (−inf stays −inf)."""
    return [Decimal(float(value)) for value in row]


def distribution(row, kind="probabilities", renormalize=False):
    """Probabilities of one row, 50 digits; logarithms rounded to a short type are made to sum to 1 again, as logits are."""
    values = decimals(row)
    if kind != "probabilities":
        top = max(values)
        values = [(value - top).exp() for value in values]
    if renormalize or kind != "probabilities":
        total = sum(values)
        values = [value / total for value in values]
    return values


def log_distribution(row, kind="probabilities", renormalize=False):
    """Log-probabilities of one row: log-softmax of logits, otherwise floored at log 1e-12."""
    if kind == "logits":
        values = decimals(row)
        top = max(values)
        total = sum((value - top).exp() for value in values).ln()
        return [value - top - total for value in values]
    return [max(value, PROBABILITY_FLOOR).ln() for value in distribution(row, kind, renormalize)]


def argmax(row):
    """The lowest index of the largest value."""
    values = [float(value) for value in row]
    return values.index(max(values))


def margin(values, kind="probabilities", renormalize=False):
    """Largest minus second largest probability of every row."""
    answer = []
    with localcontext(prec=DIGITS):
        for row in values:
            second, top = sorted(distribution(row, kind, renormalize))[-2:]
            answer.append(float(top - second))
    return np.array(answer)


def entropy(values, kind="probabilities", renormalize=False):
    """Entropy of every row in nats; a probability of 0 adds nothing."""
    answer = []
    with localcontext(prec=DIGITS):
        for row in values:
            probabilities = distribution(row, kind, renormalize)
            answer.append(float(-sum((p * p.ln() for p in probabilities if p > 0), Decimal(0))))
    return np.array(answer)


def losses(labels, teacher, student, kind="probabilities", targets="soft", renormalize=False):
    """Per validation row: is the teacher wrong, the student's loss on the truth (not floored), and on the target."""
    wrong, on_truth, on_target = [], [], []
    with localcontext(prec=DIGITS):
        for label, teacher_row, student_row in zip(labels, teacher, student, strict=True):
            logs = log_distribution(student_row, kind, renormalize)
            chosen = argmax(teacher_row)
            wrong.append(chosen != int(label))
            on_truth.append(-logs[int(label)])
            if targets == "hard":
                on_target.append(-logs[chosen])
            else:
                shares = distribution(teacher_row, kind, renormalize)
                on_target.append(-sum((share * log for share, log in zip(shares, logs, strict=True) if share), Decimal(0)))
    return wrong, on_truth, on_target


def neighbors_of(m):
    """ceil(√m / 2), at least 1: the least k with (2k)² >= m."""
    k = 1
    while 4 * k * k < m:
        k += 1
    return k


def shares(points, query, k, rounding=0.0):
    """Row → its share of the mean over the k nearest: 1/k each; points tied at the k-th distance divide what is left.

    Tied are those whose squared distance differs from the k-th, d², by at most (d + rounding)² − d².
    """
    distances = []
    for x, y in points:
        across, up = float(x) - float(query[0]), float(y) - float(query[1])
        distances.append(across * across + up * up)
    last = sorted(distances)[k - 1]
    with localcontext(prec=DIGITS):
        allowed = Fraction(Decimal(rounding) * (2 * Decimal(last).sqrt() + Decimal(rounding)))
    inside = [row for row, distance in enumerate(distances) if Fraction(distance) < Fraction(last) - allowed]
    tied = [row for row, distance in enumerate(distances) if abs(Fraction(distance) - Fraction(last)) <= allowed]
    answer = dict.fromkeys(inside, Fraction(1, k))
    answer.update(dict.fromkeys(tied, Fraction(k - len(inside), k * len(tied))))
    return answer


def estimate_one(share, wrong, on_truth, on_target, estimate):
    """(weight, error, distortion, inverse of the unclipped weight) of one query; losses are Fractions."""
    floored = {row: max(on_truth[row], Fraction(LOSS_FLOOR)) for row in share}
    error = sum((part for row, part in share.items() if wrong[row]), Fraction(0))
    if estimate == "ratio":
        truth = sum(part * floored[row] for row, part in share.items())
        target = sum(part * (on_target[row] if wrong[row] else floored[row]) for row, part in share.items())
        return min(Fraction(1), truth / target) if target > 0 else Fraction(1), error, target / truth, target / truth
    bad = {row: on_target[row] / floored[row] for row in share if wrong[row]}
    if estimate == "conditional":
        distortion = sum(share[row] * value for row, value in bad.items()) / error if bad else Fraction(1)
    else:
        distortion = sum((part * bad.get(row, 1) for row, part in share.items()), Fraction(0))
    denominator = 1 + error * (distortion - 1)
    weight = min(Fraction(1), 1 / denominator) if denominator > 0 else Fraction(1)
    return weight, error, distortion, denominator


def rounding_of(*arrays, kind="probabilities"):
    """What rounding can do to distances between margins of arrays of these types."""
    types = [np.float32 if array.dtype == np.float16 and kind != "probabilities" else array.dtype for array in arrays]
    epsilons = {np.dtype(np.float64): 256, np.dtype(np.float32): 3, np.dtype(np.float16): 1}
    return max(epsilons[np.dtype(kind)] * float(np.finfo(kind).eps) for kind in types)


def scale_of(points):
    """Twice the median size of scores that are not 0."""
    sizes = sorted(abs(float(value)) for value in np.ravel(points) if value)
    return sizes[(len(sizes) - 1) // 2] + sizes[len(sizes) // 2] if sizes else 0.0


def weigh(points, queries, labels, teacher, student, *, targets="soft", estimate="paper", k=None, rounding=0.0, **form):
    """Weights, error, distortion (n,) and clear and possible clippings, from confidences that are given.

    The counts are of unclipped weights that exceed 1 by more than 1e-12, and that may exceed it but for rounding.
    """
    wrong, on_truth, on_target = losses(labels, teacher, student, targets=targets, **form)
    on_truth, on_target = [Fraction(x) for x in on_truth], [Fraction(x) for x in on_target]
    k = neighbors_of(len(points)) if k is None else k
    seen, rows = {}, []
    for query in queries:
        place = (float(query[0]), float(query[1]))
        if place not in seen:
            answer = estimate_one(shares(points, place, k, rounding), wrong, on_truth, on_target, estimate)
            inverse = answer[3]
            seen[place] = (*map(float, answer[:3]), inverse < 1 - 1e-12, inverse != 1 and inverse < 1 + 1e-12)
        rows.append(seen[place])
    weights, error, distortion, clear, possible = zip(*rows, strict=True)
    return np.array(weights), np.array(error), np.array(distortion), (sum(clear), sum(possible))


def distortions(labels, teacher, student, **options):
    """Distortion of every validation row (1 where the teacher is right) and how many wrong rows had their loss floored."""
    wrong, on_truth, on_target = losses(labels, teacher, student, **options)
    values = [
        float(target / max(truth, LOSS_FLOOR)) if bad else 1.0
        for bad, truth, target in zip(wrong, on_truth, on_target, strict=True)
    ]
    return np.array(values), sum(bad and truth < LOSS_FLOOR for bad, truth in zip(wrong, on_truth, strict=True))


def fidelity(teacher, others=(), kind="probabilities"):
    """exp(−entropy / mean entropy), the mean over `teacher` and the rows of `others`."""
    own = entropy(teacher, kind)
    everything = list(own)
    for other in others:
        everything.extend(entropy(other, kind))
    mean = math.fsum(everything) / len(everything)
    return np.array([math.exp(-value / mean) if mean else 1.0 for value in own])


def effective_sample_size(weights):
    """(Σ w)² / Σ w², exactly."""
    values = [Fraction(float(weight)) for weight in weights]
    squares = sum(value * value for value in values)
    return float(sum(values) ** 2 / squares) if squares else 0.0


def share_below_one(weights):
    return sum(float(weight) < 1 for weight in weights) / len(weights)
