"""For scikit-learn's `Distiller`: what teacher, student and a forest predict of gold and unlabeled rows."""

# ruff: noqa: N803 (X is scikit-learn's name)

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
from scipy.sparse import issparse

from wdistill.adapters.expand import take
from wdistill.adapters.sklearn_labels import learned
from wdistill.adapters.sklearn_rows import Rows
from wdistill.core import checks
from wdistill.methods.best import check_enough_gold
from wdistill.methods.context import AuxiliaryPredictions, Context
from wdistill.methods.crossfit import Ints, combine_folds, fit_fold_forests, folds_of, normalized_exp
from wdistill.methods.gold_design import check_groups
from wdistill.methods.groups import shared_groups
from wdistill.methods.guards import (
    Concern,
    among,
    by_itself,
    duplicate_gold,
    gold_in_labeled,
    gold_in_unlabeled,
    gold_shares_groups,
    keys_of,
    leaked,
    one_of_each,
)
from wdistill.text.directions import SAMPLE, directions
from wdistill.weights.confidence import Floats
from wdistill.weights.debiased import Targets
from wdistill.weights.evidence import Evidence

WIDEST = 4096  # dense columns up to which there is a forest
SEEN = 10_000  # unlabeled rows that gold rows are compared with
Numbers = Callable[[Ints], Floats]  # rows of X (r,) → numbers (r, d)


def make_context(
    student: Any,
    X: Any,
    rows: Rows,
    teacher: Floats,
    targets: str = "soft",
    seed: int = 0,
    groups: Any = None,
) -> tuple[Context, tuple[Concern, ...]]:
    """What all experts predict of gold and unlabeled rows, gold out of fold; and what is suspicious of the gold rows.

    The student learns from the labeled rows; where there are none from gold, in five folds. A forest learns from both, from
    the main directions of a sparse X; from texts and mixed frames there is none.
    """
    checks.one_of("targets", targets, ("soft", "hard"))
    gold, labels, classes = rows.gold, rows.labels, len(rows.classes)
    check_enough_gold(len(gold), "y", "fit the student to the teacher's classes")
    checks.same_length({"X": len(labels), "groups": len(labels) if groups is None else len(groups)})
    own = None if groups is None else check_groups(np.asarray(groups)[gold], "groups")
    numbers = _numbers(X, rows.unlabeled)
    same, concerns = None, tuple[Concern, ...]()
    if numbers is not None:
        same, concerns, rows = _repeats(numbers, rows)
    if own is not None and len(rows.labeled):
        others = check_groups(np.asarray(groups)[rows.labeled], "groups", fewest=1)
        concerns += gold_shares_groups(shared_groups(own, others), len(gold), "labeled rows")
    folds = folds_of(labels[gold], seed=seed, same=same, groups=own)
    auxiliary = dict[str, AuxiliaryPredictions]()
    if numbers is not None:
        seen = [(numbers(part), labels[part]) for part in (rows.labeled, gold)]
        forest = fit_fold_forests(seen[0], seen[1], folds, classes, seed)
        auxiliary["forest"] = AuxiliaryPredictions(forest(seen[1][0], slice(None)), forest(numbers(rows.unlabeled)))
    of_gold, of_pool = _student(student, X, rows, folds, seed) if hasattr(student, "predict_proba") else (None, None)
    names = tuple(map(str, rows.classes))
    evidence = Evidence(labels[gold], teacher[gold], of_gold, teacher[rows.unlabeled], of_pool, classes=names)
    alone, kind = not len(rows.labeled), cast(Targets, targets)
    return Context(evidence, auxiliary, kind, seed, same, gold_alone=alone, gold_groups=own), concerns


def _student(student: Any, X: Any, rows: Rows, folds: Ints, seed: int) -> tuple[Floats, Floats]:
    """Probabilities of gold (m, K) and unlabeled rows (u, K) by students of labels alone."""
    gold, pool = take(X, rows.gold), take(X, rows.unlabeled)
    if len(rows.labeled):
        model = learned(student, X, rows, rows.labeled, seed)
        return model(gold), model(pool)
    numbers, place = np.unique(folds, return_inverse=True)
    models = [learned(student, X, rows, rows.gold[place != number], seed) for number in range(len(numbers))]
    combined = [combine_folds(np.stack([model(part) for model in models]), of) for part, of in ((gold, place), (pool, None))]
    return normalized_exp(combined[0]), normalized_exp(combined[1])


def _numbers(X: Any, unlabeled: Ints) -> Numbers | None:
    """How rows are read as numbers; None where they are no numbers, or too many a row."""
    if issparse(X):
        sparse = X.tocsr()
        sample = sparse[unlabeled[:SAMPLE]]
        if min(sample.shape[0], len(np.unique(sample.indices))) < 2:
            return None
        main = directions(sample)
        return lambda part: main(sparse[part])
    values = np.asarray(X)
    if values.dtype.kind not in "fiub" or values.ndim != 2 or values.shape[1] > WIDEST or np.isinf(values).any():
        return None
    return lambda part: np.asarray(values[part])


def _repeats(numbers: Numbers, rows: Rows) -> tuple[Ints | None, tuple[Concern, ...], Rows]:
    """The first equal gold row of every gold row, where some repeat; what is suspicious; rows, no labeled one gold too."""
    gold, pool = keys_of(numbers(rows.gold)), keys_of(numbers(rows.unlabeled[:SEEN]))
    labeled, count = keys_of(numbers(rows.labeled)), len(rows.gold)
    in_labeled = leaked(np.isin(gold, labeled), among(pool, labeled))
    in_pool, same = leaked(np.isin(gold, pool), by_itself(pool)), one_of_each(gold, pool)
    concerns = (*gold_in_unlabeled(int(in_pool.sum()), count, "inputs"), *gold_in_labeled(int(in_labeled.sum()), count))
    others = replace(rows, labeled=rows.labeled[~np.isin(labeled, gold[in_labeled])])
    return same, (*concerns, *duplicate_gold(same)), others
