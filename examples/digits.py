"""Debiasing weights for scikit-learn models on real data, in seconds:  python examples/digits.py

scikit-learn's handwritten digits, 80 of them labeled. A teacher learns from those and labels some 900 others, with
mistakes; `debiased` weighs its labels with the help of 300 gold rows; a small student, which sees 4 × 4 pixels instead
of 8 × 8, is trained on them with `sample_weight`. We know the truth of the unlabeled rows and use it only to judge: do
the weights find the teacher's mistakes, and does the student gain?

How the settings were chosen: a first student saw all 64 pixels and was as good as its teacher, nearly all weights were
1, and nothing was gained. The smaller student replaced it because the teacher is clearly better on the gold rows; the
first one's test accuracies had been seen by then, those of the second had not, and no setting was changed after they
were.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.stats import ttest_1samp
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

from wdistill import Evidence, Weighed, debiased, margin, oracle, unweighted
from wdistill.core import store
from wdistill.report.inspect import picture, tables
from wdistill.weights.diagnostics import Histogram

LABELED, VALIDATION, TEST = 80, 300, 500  # the rest of the 1797 rows is unlabeled
SPLITS = 10  # each with its own rows, teacher and student

INPUTS, LABELS = load_digits(return_X_y=True)
INPUTS = INPUTS / 16  # pixels within [0, 1], as the teacher sees them
SMALL = INPUTS.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16)  # as the student does

rule = debiased.using(targets="hard")  # hard: the student will learn the teacher's most likely class


@dataclass(frozen=True, eq=False)
class Split:
    """Which rows play which part, and the two models trained on the labeled ones."""

    labeled: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    unlabeled: np.ndarray
    teacher: MLPClassifier
    student: LogisticRegression


def split(seed: int) -> Split:
    rows = np.random.default_rng(seed).permutation(len(LABELS))
    labeled, validation, test, unlabeled = np.split(rows, np.cumsum([LABELED, VALIDATION, TEST]))
    teacher = MLPClassifier(200, solver="lbfgs", alpha=1.0, tol=1e-3, max_iter=1000, random_state=seed)
    teacher.fit(INPUTS[labeled], LABELS[labeled])
    return Split(labeled, validation, test, unlabeled, teacher, train(labeled, LABELS[labeled]))


def train(rows: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None) -> LogisticRegression:
    """A student."""
    return LogisticRegression(max_iter=1000).fit(SMALL[rows], targets, sample_weight=weights)


def evidence_of(s: Split) -> Evidence:
    """All that a rule may see: predictions, and the labels of the validation rows. The truth is for the oracle alone."""
    return Evidence(
        LABELS[s.validation],
        s.teacher.predict_proba(INPUTS[s.validation]),
        s.student.predict_proba(SMALL[s.validation]),
        s.teacher.predict_proba(INPUTS[s.unlabeled]),
        s.student.predict_proba(SMALL[s.unlabeled]),
        truth=LABELS[s.unlabeled],
    )


def arms(evidence: Evidence, seed: int) -> dict[str, np.ndarray]:
    """The weights that are compared; shuffled ones tell a good weight from a merely smaller one."""
    weights = rule(evidence)
    return {
        "unweighted": unweighted(evidence),
        "debiased": weights,
        "shuffled": np.random.default_rng(seed).permutation(weights),
        "oracle": oracle(evidence),
    }


def distill(s: Split, weights: np.ndarray) -> float:
    """Train the student on labeled rows (weight 1) and teacher-labeled rows; its test accuracy in percent."""
    targets = np.r_[LABELS[s.labeled], s.teacher.predict(INPUTS[s.unlabeled])]
    student = train(np.r_[s.labeled, s.unlabeled], targets, np.r_[np.ones(len(s.labeled)), weights])
    return 100 * student.score(SMALL[s.test], LABELS[s.test])


def models(s: Split) -> Table:
    table = Table(
        "accuracy", "on validation rows", "on unlabeled rows (truth hidden from the rule)", title="Models of the first split"
    )
    for name, model, seen in (("teacher", s.teacher, INPUTS), ("student, labeled rows only", s.student, SMALL)):
        table.add_row(name, *(f"{model.score(seen[rows], LABELS[rows]):.3f}" for rows in (s.validation, s.unlabeled)))
    return table


def mistakes_found(s: Split, evidence: Evidence, weighed: Weighed) -> Table:
    """How well the weights, and simpler scores, tell rightly labeled rows from wrongly labeled ones."""
    right = s.teacher.predict(INPUTS[s.unlabeled]) == LABELS[s.unlabeled]
    scores = {
        "debiased weights": weighed.weights,
        "teacher's margin": margin(evidence.teacher),
        "shuffled weights": np.random.default_rng(0).permutation(weighed.weights),
    }
    rows = f"mean on {right.sum()} right rows", f"on {(~right).sum()} wrong rows"
    table = Table("", *rows, "AUC (0.5: chance)", title="Do the weights find the teacher's mistakes? (first split)")
    for name, score in scores.items():
        means = f"{score[right].mean():.3f}", f"{score[~right].mean():.3f}"
        table.add_row(name, *means, f"{roc_auc_score(right, score):.3f}")
    return table


def differences(accuracies: dict[str, np.ndarray], base: str) -> Table:
    table = Table("weights", "test accuracy, %", f"minus {base} ± standard error", title=f"Students, {SPLITS} paired splits")
    for name, found in accuracies.items():
        gain = found - accuracies[base]
        error = gain.std(ddof=1) / np.sqrt(len(gain))
        table.add_row(name, f"{found.mean():.2f}", "" if name == base else f"{gain.mean():+.2f} ± {error:.2f}")
    return table


def in_words(accuracies: dict[str, np.ndarray]) -> str:
    against = {other: compared(accuracies["debiased"] - accuracies[other]) for other in ("unweighted", "shuffled")}
    clauses = [f"{found} the {other} one" for other, found in against.items()]
    ceiling = compared(accuracies["oracle"] - accuracies["unweighted"])
    return (
        f"In words: the student with debiased weights is {clauses[0]} and {clauses[1]}; "
        f"one trained without any of the teacher's mistakes is {ceiling} the unweighted one."
    )


def compared(gain: np.ndarray) -> str:
    """What paired differences say, at the 5 % level of a t test."""
    if not gain.any():
        return "exactly as good as"
    if ttest_1samp(gain, 0).pvalue > 0.05:
        return "not different beyond noise from"
    return f"{abs(gain.mean()):.2f} points {'better' if gain.mean() > 0 else 'worse'} than"


def main() -> None:
    console = Console(width=100)
    first = split(seed=0)
    evidence = evidence_of(first)
    fitted = rule.fit(evidence)  # the small state, from the validation rows
    weighed = rule.explain(evidence)  # the weights, with what the rule saw
    histogram = Histogram().plus(weighed.weights)
    console.print(models(first))
    console.print(tables(fitted, histogram, {"clipped to 1": str(weighed.clipped)})[0])
    console.print(mistakes_found(first, evidence, weighed))

    trials = []
    for seed in range(SPLITS):
        s = split(seed)
        trials.append({name: distill(s, weights) for name, weights in arms(evidence_of(s), seed).items()})
    accuracies = {name: np.array([trial[name] for trial in trials]) for name in trials[0]}
    console.print(differences(accuracies, base="unweighted"))
    console.print(in_words(accuracies))
    console.print("Settings were not tuned on test accuracy; this file's first lines say how they came about.")

    path = Path("demo") / "digits.png"
    store.make_folder(path.parent)
    store.write_bytes(path, picture(fitted, histogram, "Digits: teacher, weights and rule", "png"))
    console.print(f"The rule as a picture: {path}")


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
