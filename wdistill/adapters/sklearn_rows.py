"""For scikit-learn's `Distiller`: what `y` and `teacher` say, as rows that are gold, labeled or unlabeled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from wdistill.adapters.target_table import distributions, matrix_of
from wdistill.core import checks
from wdistill.core.errors import bad_input, wrong_shape
from wdistill.methods.crossfit import Ints
from wdistill.weights.confidence import Floats


@dataclass(frozen=True, eq=False)
class Rows:
    """Which rows of X are gold, labeled (seen by the teacher) and unlabeled, by their numbers."""

    classes: NDArray[Any]  # (K,) sorted
    labels: Ints  # (n,) the number of the class, −1 where there is no label
    gold: Ints  # (m,)
    labeled: Ints  # (l,)
    unlabeled: Ints  # (u,)


def read_rows(y: Any, seen: Any = None, classes: Any = None) -> Rows:
    """What `y` (n,) says: −1, None and NaN mark unlabeled rows; `seen` (n,) labeled rows that the teacher was trained on."""
    given = column_or_1d(y, warn=True)
    known = ~_unlabeled(given)
    values = given[known]
    if given.dtype == object and not all(isinstance(each, str) for each in values):
        values = np.asarray(values.tolist())
    if len(values):
        check_classification_targets(values)
    kinds = np.unique(values) if classes is None else np.unique(np.asarray(classes))
    strange = np.setdiff1d(values, kinds)
    if len(strange):
        found, expected = repr(strange[0].item() if hasattr(strange[0], "item") else strange[0]), "one of teacher_classes"
        raise bad_input("a label that is no class", "y", found, expected, "name all classes in teacher_classes")
    labels = np.full(len(given), -1)
    labels[known] = np.searchsorted(kinds, values)
    mask = np.zeros(len(given), bool) if seen is None else np.asarray(seen)
    if mask.dtype != bool or mask.shape != given.shape:
        found, remedy = f"shape {mask.shape}, dtype {mask.dtype}", "pass a boolean for every row of X"
        raise wrong_shape("not a mask of rows", "seen_by_teacher", found, f"({len(given)},) booleans", remedy)
    return Rows(kinds, labels, *(np.flatnonzero(part) for part in (known & ~mask, known & mask, ~known)))


def _unlabeled(given: NDArray[Any]) -> NDArray[np.bool_]:
    kind = given.dtype.kind
    if kind == "O":
        return np.array([_is_mark(each) for each in given], bool)
    if kind in "US":
        lost = np.flatnonzero(np.isin(given.astype(str), ("-1", "nan")))
        if len(lost):
            found, expected = repr(str(given[lost[0]])), "None, NaN or −1 among texts"
            remedy = "pass y as an array of dtype=object: NumPy makes texts of such marks"
            raise bad_input("marks of unlabeled rows became texts", "y", found, expected, remedy, lost)
        return np.zeros(len(given), bool)
    return np.asarray((given == -1) | (np.isnan(given) if kind == "f" else False))


def _is_mark(value: Any) -> bool:
    """Whether it stands for no label: None, NaN, pandas' NA, or −1."""
    if isinstance(value, str | bool | np.bool_):
        return False
    return value is None or type(value).__name__ == "NAType" or value != value or value == -1


def read_teacher(teacher: Any, rows: Rows, classes: Any = None) -> Floats:
    """The teacher's probabilities (n, K), checked, with columns in the order of the sorted classes."""
    if teacher is None:
        count, remedy = int((rows.labels < 0).sum()), "fit(X, y, teacher=model.predict_proba(X))"
        found, expected = f"{count:,} unlabeled rows, no teacher", "probabilities (n, K)"
        raise bad_input("nobody labels the unlabeled rows", "teacher", found, expected, remedy)
    given = matrix_of(
        teacher, "teacher", "pass its predict_proba(X); a table of targets is for fit_student, not for Distiller"
    )
    checks.same_length({"X": len(rows.labels), "teacher": len(given)})
    if given.shape[1] != len(rows.classes):
        found, expected = f"{given.shape[1]} columns", f"{len(rows.classes)}, one for each class of y, sorted"
        remedy = "name the class of every column: Distiller(…, teacher_classes=[…])"
        raise wrong_shape("the teacher has other classes than y", "teacher", found, expected, remedy)
    told = rows.classes if classes is None else np.asarray(classes)
    named, wanted = ([*map(str, names)] for names in (getattr(teacher, "columns", ()), told))
    if named != wanted and sorted(named) == sorted(wanted):
        remedy = f"teacher[{[*told.tolist()]!r}], or Distiller(…, teacher_classes=…) in the order of its columns"
        raise bad_input("its columns are in another order", "teacher", ", ".join(named), ", ".join(wanted), remedy)
    allowed = checks.tolerance(checks.precision(given), given.shape[1])
    return distributions(given[:, np.argsort(told)], allowed, "teacher")
