"""What every array must be before a weight is computed from it; each fault is one clear error or warning."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.errors import ConfigError, InputError, WdistillWarning

KINDS = ("probabilities", "logits", "logprobs")
LEAST_SUM = 1e-290  # a row of probabilities must sum to more to be scaled to sum to 1
_TOLERANCE = {"float64": 1e-8, "float32": 1e-5, "float16": 5e-3, "bfloat16": 4e-2}


def warn(text: str) -> None:
    """One warning of ours, pointing at the caller of the library."""
    warnings.warn(text, WdistillWarning, stacklevel=3)


def kind(value: str) -> None:
    if value not in KINDS:
        raise ConfigError(
            "unknown kind of predictions",
            where="kind",
            found=repr(value),
            expected=" or ".join(map(repr, KINDS)),
            remedy="say which of the three the arrays hold",
        )


def array(values: Any, name: str) -> NDArray[Any]:
    """Anything array-like as an ndarray; what NumPy would hide (objects, masks, sparse matrices) is an error."""
    if hasattr(values, "toarray"):
        raise InputError(
            "a sparse matrix",
            where=name,
            found=type(values).__name__,
            expected="a dense array",
            remedy="pass its .toarray()",
        )
    if isinstance(values, np.ma.MaskedArray):
        masked = int(np.ma.getmaskarray(values).sum())
        if masked:
            raise InputError(
                "masked entries",
                where=name,
                found=f"{masked} of {values.size} masked",
                expected="no masked entries",
                remedy="drop or fill the masked rows first",
            )
        return np.asarray(values.data)
    try:
        found = np.asarray(values)
    except ValueError as error:
        raise InputError(
            "not an array", where=name, found=str(error), expected="rows of equal length", remedy="pass a NumPy array"
        ) from None
    if found.dtype == object:
        nulls = int(sum(item is None for item in found.ravel()))
        raise InputError(
            "Python objects instead of numbers",
            where=name,
            found=f"dtype object with {nulls} nulls among {found.size} entries",
            expected="a numeric array",
            remedy="drop rows with nulls and convert with .astype('float32')",
        )
    return found


def matrix(values: Any, name: str) -> NDArray[Any]:
    """An (n, K) array of floats with at least two classes."""
    found = array(values, name)
    if found.dtype.kind in "iu":
        found = found.astype(np.float64)
    if found.dtype.name not in _TOLERANCE:
        raise InputError(
            "not an array of floats",
            where=name,
            found=f"dtype {found.dtype}",
            expected="float16, float32, float64 or bfloat16",
            remedy="convert it with .astype('float32')",
        )
    if found.ndim != 2 or found.shape[1] < 2:
        raise InputError(
            "not one row of class scores an example",
            where=name,
            found=f"shape {found.shape}",
            expected="(rows, classes) with at least 2 classes",
            remedy="for one probability p of a positive class pass the two columns 1 − p and p",
        )
    return found


def widened(values: NDArray[Any]) -> NDArray[Any]:
    """Rows as native, contiguous float32 or float64; a copy only where needed, never the caller's array changed."""
    return np.ascontiguousarray(values, np.float64 if values.dtype.itemsize == 8 else np.float32)


def tolerance(dtype: np.dtype[Any], classes: int) -> float:
    """How far a row of probabilities may sum from 1."""
    return _TOLERANCE[dtype.name] * max(1.0, classes / 1000)


def mistaken_logits(values: NDArray[Any], kind: str, name: str) -> None:
    """Warn where logits look like probabilities, judged by the first rows."""
    if kind != "logits":
        return
    first = values[:100].astype(np.float64)
    if (first >= 0).all() and (first <= 1).all() and np.allclose(first.sum(axis=1), 1, atol=1e-2):
        warn(f"{name}: these logits look like probabilities; a second softmax would flatten every confidence")


def doubtful_rows(top: NDArray[Any], check: NDArray[Any], kind: str, allowed: float, renormalize: bool) -> NDArray[Any]:
    """Rows that need a closer look by `rows`: `check` is a rough sum of the entries (of logprobs: of the probabilities)."""
    if kind == "logits":
        return np.asarray(~np.isfinite(check))
    largest = allowed if kind == "logprobs" else 1 + allowed
    fine = (top <= largest) & (check > 0) & np.isfinite(check) & ((top > 0) | (kind == "logprobs"))
    if not renormalize:
        fine &= np.abs(check - 1) <= allowed / 2
    return np.asarray(~fine)


def rows(
    values: NDArray[Any], which: NDArray[np.intp], kind: str, allowed: float, half: bool, name: str, renormalize: bool
) -> NDArray[Any]:
    """The doubtful rows, if nothing is wrong with them after all; otherwise the error that says what is."""
    values = values + values.dtype.type(0)  # −0.0 becomes 0.0
    infinite = np.isnan(values) | (values == np.inf) | ((values == -np.inf) & (kind != "logprobs"))
    if infinite.any():
        remedy = "find out which model wrote these rows and predict them again"
        if half and kind == "logits":
            remedy = "save logits as float32: float16 ends at 65,504"
        raise _bad_rows(
            "NaN or infinite entries",
            name,
            which[infinite.any(axis=1)],
            found=f"{int(infinite.sum())} such entries",
            expected="finite numbers",
            remedy=remedy,
        )
    if kind == "logits":
        return values
    wide = values.astype(np.float64)
    _range(wide, which, kind, np.inf if renormalize else allowed, name)
    sums = (wide if kind == "probabilities" else np.exp(wide)).sum(axis=1)
    off = sums <= LEAST_SUM if renormalize else np.abs(sums - 1) > allowed
    if off.any():
        worst = int(np.argmax(np.abs(sums - 1)))
        raise _bad_rows(
            "rows do not sum to 1" if kind == "probabilities" else "the probabilities of rows do not sum to 1",
            name,
            which[off],
            found=f"sums off by up to {abs(sums[worst] - 1):.3g} (row {which[worst]}: {sums[worst]:.8g})",
            expected="more than 0, to be scaled to 1" if renormalize else f"1 within {allowed:.1g}",
            remedy="pass all classes, or let the rows be scaled: renormalize=True (--renormalize)",
        )
    return values


def _range(values: NDArray[np.float64], which: NDArray[np.intp], kind: str, allowed: float, name: str) -> None:
    """Probabilities lie in [0, 1] and log-probabilities below 0; what does not, is something else."""
    if kind == "probabilities":
        near = (values >= 0).all(axis=1) & (values.sum(axis=1) <= 2)  # probabilities, whose sum is what is wrong
        outside = ((values < 0) | (values > 1 + allowed)).any(axis=1) & ~near
        logs = (values <= 0).all() and np.allclose(np.exp(values).sum(axis=1), 1, atol=1e-2)
        expected = "entries within [0, 1]"
    else:
        outside, logs, expected = (values > allowed).any(axis=1), False, "log-probabilities, none above 0"
    if outside.any():
        wrong = values[outside]
        guess, word = ("logprobs", "log-probabilities") if logs else ("logits", "logits")
        remedy = f"if all rows are {word}, pass kind='{guess}' (--kind {guess}); if only some are odd, mend those"
        if kind == "probabilities" and (wrong >= 0).all():
            remedy = f"scale counts or weights to sum to 1 with renormalize=True (--renormalize); {remedy}"
        raise _bad_rows(
            f"these look like {word}",
            name,
            which[outside],
            found=f"entries from {wrong.min():.6g} to {wrong.max():.6g}",
            expected=expected,
            remedy=remedy,
        )


def _bad_rows(what: str, name: str, which: NDArray[np.intp], *, found: str, expected: str, remedy: str) -> InputError:
    found = f"{found} in {len(which)} row{'s' if len(which) > 1 else ''}"
    return InputError(what, where=name, found=found, expected=expected, remedy=remedy, rows=which[:5].tolist())


def no_rows(name: str) -> InputError:
    return InputError(
        "no unlabeled rows",
        where=name,
        found="0 rows",
        expected="at least 1 row to weigh",
        remedy="pass the rows that the teacher labeled",
    )


def labels(
    values: Any, classes: int | None, name: str, names: Sequence[str] | None = None, soft: bool = False
) -> NDArray[np.int64]:
    """True classes (m,) as whole numbers 0 … K − 1, from numbers, class names or (if `soft`) distributions."""
    found = array(values, name)
    if found.ndim == 2:
        return _soft_labels(found, classes, name, soft)
    if found.ndim != 1:
        raise InputError(
            "labels are not a vector",
            where=name,
            found=f"shape {found.shape}",
            expected="(rows,)",
            remedy="pass one class number for every row",
        )
    if found.dtype.kind in "US":
        return _named_labels(found.astype(str), name, names)
    if found.dtype.kind == "f" and np.isfinite(found).all() and (found == np.rint(found)).all():
        found = np.clip(found.astype(np.float64), -(2**53), 2**53).astype(np.int64)
    if found.dtype.kind not in "iu":
        raise InputError(
            "labels are not whole numbers",
            where=name,
            found=f"dtype {found.dtype}, beginning {found[:5].tolist()}",
            expected="class numbers" + (f" 0 … {classes - 1}" if classes else ""),
            remedy="map the labels to class numbers, or pass strings with their class list",
        )
    outside = (found < 0) | (found >= (np.inf if classes is None else classes))
    if outside.any():
        kinds, counts = np.unique(found[outside], return_counts=True)
        shown = ", ".join(f"{kind} ({count}×)" for kind, count in zip(kinds[:5], counts[:5], strict=True))
        from_one = found.min() == 1 and found.max() == classes
        raise InputError(
            "labels out of range",
            where=name,
            found=f"{int(outside.sum())} of {len(found)}: {shown}",
            expected="none below 0"
            if classes is None
            else f"0 … {classes - 1}, since the predictions have {classes} classes",
            remedy="subtract 1: these labels count from 1"
            if from_one
            else "drop rows without a label (−1 and −100 often stand for that)",
        )
    return np.asarray(found, np.int64)


def _soft_labels(values: NDArray[Any], classes: int | None, name: str, soft: bool) -> NDArray[np.int64]:
    if not soft or values.dtype.kind not in "biuf":
        raise InputError(
            "labels are a matrix",
            where=name,
            found=f"shape {values.shape}, dtype {values.dtype}",
            expected="one class number a row",
            remedy="if the rows are one-hot or distributions, say so: soft_labels=True (--soft-labels)",
        )
    if values.shape[1] != classes:
        raise InputError(
            "labels and predictions differ in classes",
            where=name,
            found=f"{values.shape[1]} columns of labels",
            expected=f"{classes}, as in the predictions",
            remedy="give a column of labels to every class",
        )
    if not np.isfinite(values).all():
        raise InputError(
            "NaN or infinite labels",
            where=name,
            found=f"{int((~np.isfinite(values)).sum())} such entries",
            expected="finite numbers",
            remedy="mend or drop these rows",
        )
    unclear = np.flatnonzero((values == values.max(axis=1, keepdims=True)).sum(axis=1) > 1)
    if len(unclear):
        raise _bad_rows(
            "soft labels without a single largest class",
            name,
            unclear,
            found="a maximum that is shared",
            expected="one largest class a row",
            remedy="decide these rows or drop them",
        )
    return np.asarray(values.argmax(axis=1), np.int64)


def _named_labels(values: NDArray[np.str_], name: str, names: Sequence[str] | None) -> NDArray[np.int64]:
    if names is None:
        raise InputError(
            "labels are strings",
            where=name,
            found=", ".join(map(repr, np.unique(values)[:5].tolist())),
            expected="class numbers, or strings together with the class list",
            remedy="pass classes=[…] (--classes a,b,c) in the order of the prediction columns",
        )
    number = {text: i for i, text in enumerate(names)}
    unknown = np.flatnonzero([text not in number for text in values])
    if len(unknown):
        raise InputError(
            "labels that are not in the class list",
            where=name,
            found=f"{len(unknown)} rows, beginning with row {unknown[0]}: {str(values[unknown[0]])!r}",
            expected="one of " + ", ".join(map(repr, list(names)[:10])),
            remedy="correct the label or the class list",
        )
    return np.array([number[text] for text in values], np.int64)


def class_names(names: Sequence[str] | None, classes: int) -> None:
    if names is None:
        return
    if len(set(names)) != len(names) or len(names) != classes:
        raise InputError(
            "the class list does not fit the predictions",
            where="classes",
            found=f"{len(names)} names, {len(set(names))} of them distinct",
            expected=f"{classes} distinct names, one for each prediction column",
            remedy="list every class once, in the order of the prediction columns",
        )


def same_classes(sizes: dict[str, int]) -> int:
    """The common number of classes of several arrays."""
    (first, k), *others = sizes.items()
    for name, size in others:
        if size != k:
            raise InputError(
                "arrays differ in their number of classes",
                where=f"{first} and {name}",
                found=f"{k} and {size}",
                expected="the same classes in the same order everywhere",
                remedy="predict with both models over one class list",
            )
    return k


def same_length(lengths: dict[str, int]) -> int:
    """The common number of rows of several arrays."""
    (first, n), *others = lengths.items()
    for name, length in others:
        if length != n:
            raise InputError(
                "arrays differ in their number of rows",
                where=f"{first} and {name}",
                found=f"{n} and {length} rows",
                expected="one row for each example in all of them",
                remedy="join them by id before passing them",
            )
    return n


def scores(values: Any, name: str) -> NDArray[np.float64]:
    """One finite number a row."""
    found = array(values, name)
    if found.ndim != 1 or found.dtype.kind not in "fiu":
        raise InputError(
            "not one number a row",
            where=name,
            found=f"shape {found.shape}, dtype {found.dtype}",
            expected="(rows,) numbers",
            remedy="a confidence function maps (rows, classes) to (rows,)",
        )
    bad = np.flatnonzero(~(np.abs(found.astype(np.float64)) <= 1e150))
    if len(bad):
        raise _bad_rows(
            "NaN, infinite or huge scores",
            name,
            bad,
            found="such scores",
            expected="finite numbers up to 1e150",
            remedy="mend the scores",
        )
    return found.astype(np.float64)
