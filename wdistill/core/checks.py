"""Checks of input arrays; each fault is one clear error or warning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.core.errors import InputError, WdistillWarning, article, bad_input, empty, not_one_of, printable, wrong_shape

KINDS = ("probabilities", "logits", "logprobs")
LEAST_SUM = 1e-290  # a row of probabilities must sum to more to be scaled to sum to 1
_TOLERANCE = {"float64": 1e-8, "float32": 1e-5, "float16": 5e-3, "bfloat16": 4e-2}
_ROUNDING = {"float64": 2.0**-44, "float32": 3 * 2.0**-23, "float16": 2.0**-10, "bfloat16": 3 * 2.0**-23}


def warn(text: str) -> None:
    """One warning of ours, pointing at the caller of the library."""
    warnings.warn(text, WdistillWarning, stacklevel=3)


@contextmanager
def collect_warnings(collected: type[Warning] = Warning) -> Iterator[list[str]]:
    """Show each warning on standard error, every text once, and collect the texts of one kind."""
    shown, messages = set[str](), list[str]()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = printable(str(message))
        if text not in shown:
            shown.add(text)
            messages.extend([text] if isinstance(message, collected) else [])
            with suppress(OSError):  # the text is collected even if the terminal is gone
                print(f"warning: {text}", file=sys.stderr, flush=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        yield messages


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise where a value is not one of the allowed strings."""
    if value not in allowed:
        raise not_one_of("unknown choice", name, value, allowed, f"leave it out for {allowed[0]!r}")


def kind(value: str) -> None:
    if value not in KINDS:
        raise not_one_of("unknown kind of predictions", "kind", value, KINDS, "say which of the three the arrays hold")


def array(values: Any, name: str) -> NDArray[Any]:
    """Anything array-like as an ndarray; what NumPy would hide (objects, masks, sparse matrices) is an error."""
    if hasattr(values, "toarray"):
        raise bad_input("a sparse matrix", name, type(values).__name__, "a dense array", "pass its .toarray()")
    if hasattr(values, "detach") and hasattr(values, "cpu"):
        return _of_tensor(values, name)
    if isinstance(values, np.ma.MaskedArray):
        masked = int(np.ma.getmaskarray(values).sum())
        if masked:
            found, remedy = f"{masked} of {values.size} masked", "drop or fill the masked rows first"
            raise bad_input("masked entries", name, found, "no masked entries", remedy)
        return np.asarray(values.data)
    try:
        values = np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise bad_input("not an array", name, str(error), "rows of equal length", "pass a NumPy array") from None
    if values.dtype == object:
        nulls = int(sum(item is None for item in values.ravel()))
        found = f"dtype object with {nulls} nulls among {values.size} entries"
        remedy = "drop rows with nulls and convert with .astype('float32')"
        raise bad_input("Python objects instead of numbers", name, found, "a numeric array", remedy)
    return np.asarray(values)


def _of_tensor(values: Any, name: str) -> NDArray[Any]:
    """A tensor of torch, from whatever device and with or without gradients; bfloat16, which NumPy lacks, as float32."""
    try:
        values = values.detach().cpu()
        return np.asarray((values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy())
    except (TypeError, RuntimeError) as error:
        found = f"{type(values).__name__} of {values.dtype}: {str(error).splitlines()[0]}"
        raise bad_input("not a plain tensor", name, found, "a dense tensor of numbers", "pass a NumPy array") from None


def matrix(values: Any, name: str) -> NDArray[Any]:
    """An (n, K) array of floats with at least two classes."""
    rows = array(values, name)
    if rows.dtype.kind in "iu":
        rows = rows.astype(np.float64)
    if rows.dtype.name not in _TOLERANCE:
        expected, remedy = "float16, float32, float64 or bfloat16", "convert it with .astype('float32')"
        raise bad_input("not an array of floats", name, f"dtype {rows.dtype}", expected, remedy)
    if rows.ndim != 2 or rows.shape[1] < 2:
        expected = "(rows, classes) with at least 2 classes"
        remedy = "for one probability p of a positive class pass the two columns 1 − p and p"
        raise wrong_shape("not one row of class scores an example", name, rows.shape, expected, remedy)
    return rows


def widened(values: NDArray[Any]) -> NDArray[Any]:
    """Rows as native, contiguous float32 or float64; a copy only where needed, never the caller's array changed."""
    return np.ascontiguousarray(values, np.float64 if values.dtype.itemsize == 8 else np.float32)


def tolerance(number: str, classes: int) -> float:
    """How far a row of probabilities of that type of number may sum from 1."""
    return _TOLERANCE[number] * max(1.0, classes / 1000)


def rounding(number: str, kind: str = "probabilities") -> float:
    """By how much two distances between margins of such predictions may differ because of rounding alone.

    A probability in a type of machine epsilon e is off by e/4 at most, a margin by e/2, a difference of margins by e, a
    distance in the plane by √2·e, and two of them differ by less than 3e: so it is for float32. For float64 it is far more,
    256 of its epsilons: room for the arithmetic that made the numbers, and for ours. For float16 it is one epsilon, which
    the worst case exceeds, but no vote or percentage that was tried: three would make many distances equal that are not.
    For bfloat16 even one would, so its numbers count as exact; so do logits and log-probabilities of 16 bits, since the
    margins that they stand for are finer.
    """
    return _ROUNDING["float32" if kind != "probabilities" and number == "float16" else number]


def precision(values: NDArray[Any]) -> str:
    """The type of number whose precision an array has: its own, or a shorter one from which all were widened.

    The bits that the numbers need tell it. Those that need fewer than 8, such as 0, 0.5 and 1, are exact, not widened.
    """
    if values.dtype.name not in ("float32", "float64"):
        return values.dtype.name if values.dtype.name in _ROUNDING else "float64"
    stored = int(np.finfo(values.dtype).nmant)  # bits of the significand but for the first, which is 1
    native = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
    used = int(np.bitwise_or.reduce(native.view(f"u{native.itemsize}"), axis=None, initial=0)) & ((1 << stored) - 1)
    bits = stored + 2 - (used & -used).bit_length() if used else 1
    shorter = {8: "bfloat16", 11: "float16", 24: "float32"}
    own = values.dtype.name
    return own if bits < 8 else next((name for most, name in shorter.items() if bits <= most), own)


def mistaken_logits(values: NDArray[Any], kind: str, name: str) -> None:
    """Warn where logits look like probabilities, judged by the first rows."""
    if kind != "logits":
        return
    first = values[:100].astype(np.float64)
    if (first >= 0).all() and (first <= 1).all() and np.allclose(first.sum(axis=1), 1, atol=1e-2):
        warn(f"{name}: these logits look like probabilities; a second softmax would flatten every confidence")


def doubtful_rows(top: NDArray[Any], check: NDArray[Any], kind: str, allowed: float, renormalize: bool) -> NDArray[Any]:
    """Rows that `rows` must check exactly; `check` is a rough sum of the entries (of logprobs: of the probabilities)."""
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
    """The doubtful rows, checked exactly; raises where something is wrong with them."""
    values = values + values.dtype.type(0)  # −0.0 becomes 0.0
    infinite = np.isnan(values) | (values == np.inf) | ((values == -np.inf) & (kind != "logprobs"))
    if infinite.any():
        remedy = "find out which model wrote these rows and predict them again"
        if half and kind == "logits":
            remedy = "save logits as float32: float16 ends at 65,504"
        found = f"{int(infinite.sum())} such entries"
        raise _bad_rows("NaN or infinite entries", name, found, "finite numbers", remedy, which[infinite.any(axis=1)])
    if kind == "logits":
        return values
    wide = values.astype(np.float64)
    _range(wide, which, kind, np.inf if renormalize else allowed, name)
    sums = (wide if kind == "probabilities" else np.exp(wide)).sum(axis=1)
    off = sums <= LEAST_SUM if renormalize else np.abs(sums - 1) > allowed
    if off.any():
        worst = int(np.argmax(np.abs(sums - 1)))
        what = "rows do not sum to 1" if kind == "probabilities" else "the probabilities of rows do not sum to 1"
        found = f"sums off by up to {abs(sums[worst] - 1):.3g} (row {which[worst]}: {sums[worst]:.8g})"
        expected = "more than 0, to be scaled to 1" if renormalize else f"1 within {allowed:.1g}"
        remedy = "pass all classes, or let the rows be scaled: renormalize=True (--renormalize)"
        raise _bad_rows(what, name, found, expected, remedy, which[off])
    return values


def _range(values: NDArray[np.float64], which: NDArray[np.intp], kind: str, allowed: float, name: str) -> None:
    """Raise where probabilities are outside [0, 1], or log-probabilities above 0."""
    if kind == "probabilities":
        near = (values >= 0).all(axis=1) & (values.sum(axis=1) <= 2)  # probabilities, whose sum is what is wrong
        outside = ((values < 0) | (values > 1 + allowed)).any(axis=1) & ~near
        logs = (values <= 0).all() and np.allclose(np.exp(values).sum(axis=1), 1, atol=1e-2)
        expected = "entries within [0, 1]"
    else:
        outside, logs, expected = (values > allowed).any(axis=1), False, "log-probabilities, none above 0"
    if outside.any():
        wrong = values[outside]
        guess, kind_name = ("logprobs", "log-probabilities") if logs else ("logits", "logits")
        remedy = f"if all rows are {kind_name}, pass kind='{guess}' (--kind {guess}); if only some are odd, mend those"
        if kind == "probabilities" and (wrong >= 0).all():
            remedy = f"scale counts or weights to sum to 1 with renormalize=True (--renormalize); {remedy}"
        found = f"entries from {wrong.min():.6g} to {wrong.max():.6g}"
        raise _bad_rows(f"these look like {kind_name}", name, found, expected, remedy, which[outside])


def _bad_rows(what: str, name: str, found: str, expected: str, remedy: str, which: NDArray[np.intp]) -> InputError:
    count = f"{len(which)} row{'s' if len(which) > 1 else ''}"
    return bad_input(what, name, f"{found} in {count}", expected, remedy, which)


def no_rows(name: str) -> InputError:
    return empty("no unlabeled rows", name, "at least 1 row to weigh", "pass the rows that the teacher labeled")


def labels(
    values: Any, classes: int | None, name: str, names: Sequence[str] | None = None, soft: bool = False
) -> NDArray[np.int64]:
    """True classes (m,) as whole numbers 0 … K − 1, from numbers, class names or (if `soft`) distributions."""
    truth = array(_as_text(values), name)
    if truth.ndim == 2:
        return _soft_labels(truth, classes, name, soft)
    if truth.ndim != 1:
        raise wrong_shape("labels are not a vector", name, truth.shape, "(rows,)", "pass one class number for every row")
    if truth.dtype.kind in "US":
        return _named_labels(truth.astype(str), name, names)
    if truth.dtype.kind == "f" and np.isfinite(truth).all() and (truth == np.rint(truth)).all():
        truth = np.clip(truth.astype(np.float64), -(2**53), 2**53).astype(np.int64)
    if truth.dtype.kind not in "iu":
        found = f"dtype {truth.dtype}, beginning {truth[:5].tolist()}"
        expected = "class numbers" + (f" 0 … {classes - 1}" if classes else "")
        remedy = "map the labels to class numbers, or pass strings with their class list"
        raise bad_input("labels are not whole numbers", name, found, expected, remedy)
    outside = (truth < 0) | (truth >= (np.inf if classes is None else classes))
    if outside.any():
        kinds, counts = np.unique(truth[outside], return_counts=True)
        shown = ", ".join(f"{kind} ({count}×)" for kind, count in zip(kinds[:5], counts[:5], strict=True))
        expected = f"0 … {classes - 1}, since the predictions have {classes} classes" if classes else "none below 0"
        remedy = "drop rows without a label (−1 and −100 often stand for that)"
        if truth.min() == 1 and truth.max() == classes:
            remedy = "subtract 1: these labels count from 1"
        found = f"{int(outside.sum())} of {len(truth)}: {shown}"
        raise bad_input("labels out of range", name, found, expected, remedy)
    return np.asarray(truth, np.int64)


def _as_text(values: Any) -> Any:
    """A vector of strings that NumPy or pandas holds as objects, as an array of text; anything else as it is."""
    if not hasattr(values, "dtype") or hasattr(values, "detach") or isinstance(values, np.ma.MaskedArray):
        return values
    held = np.asarray(values)
    whole = held.dtype == object and held.ndim == 1 and all(isinstance(each, str) for each in held)
    return held.astype(str) if whole and len(held) else values


def _soft_labels(values: NDArray[Any], classes: int | None, name: str, soft: bool) -> NDArray[np.int64]:
    if not soft or values.dtype.kind not in "biuf":
        found = f"shape {values.shape}, dtype {values.dtype}"
        remedy = "if the rows are one-hot or distributions, say so: soft_labels=True (--soft-labels)"
        raise wrong_shape("labels are a matrix", name, found, "one class number a row", remedy)
    if values.shape[1] != classes:
        found, expected = f"{values.shape[1]} columns of labels", f"{classes}, as in the predictions"
        remedy = "give a column of labels to every class"
        raise wrong_shape("labels and predictions differ in classes", name, found, expected, remedy)
    if not np.isfinite(values).all():
        found = f"{int((~np.isfinite(values)).sum())} such entries"
        raise bad_input("NaN or infinite labels", name, found, "finite numbers", "mend or drop these rows")
    unclear = np.flatnonzero((values == values.max(axis=1, keepdims=True)).sum(axis=1) > 1)
    if len(unclear):
        what, expected = "soft labels without a single largest class", "one largest class a row"
        raise _bad_rows(what, name, "a maximum that is shared", expected, "decide these rows or drop them", unclear)
    return np.asarray(values.argmax(axis=1), np.int64)


def _named_labels(values: NDArray[np.str_], name: str, names: Sequence[str] | None) -> NDArray[np.int64]:
    if names is None:
        found = ", ".join(map(repr, np.unique(values)[:5].tolist()))
        expected = "class numbers, or strings together with the class list"
        remedy = "pass classes=[…] (--classes a,b,c) in the order of the prediction columns"
        raise bad_input("labels are strings", name, found, expected, remedy)
    number = {text: i for i, text in enumerate(names)}
    unknown = np.flatnonzero([text not in number for text in values])
    if len(unknown):
        found = f"{len(unknown)} rows, beginning with row {unknown[0]}: {str(values[unknown[0]])!r}"
        expected = "one of " + ", ".join(map(repr, list(names)[:10]))
        remedy = "correct the label or the class list"
        raise bad_input("labels that are not in the class list", name, found, expected, remedy)
    return np.array([number[text] for text in values], np.int64)


def class_names(names: Sequence[str] | None, classes: int) -> None:
    if names is None:
        return
    if isinstance(names, str) or not hasattr(names, "__len__") or not hasattr(names, "__iter__"):
        found, remedy = article(type(names).__name__), "write classes=['cat', 'dog']"
        raise bad_input("not a list of classes", "classes", found, "one name for each prediction column", remedy)
    if len(set(names)) != len(names) or len(names) != classes:
        found = f"{len(names)} names, {len(set(names))} of them distinct"
        expected = f"{classes} distinct names, one for each prediction column"
        remedy = "list every class once, in the order of the prediction columns"
        raise bad_input("the class list does not fit the predictions", "classes", found, expected, remedy)


def same_classes(sizes: dict[str, int]) -> int:
    """The common number of classes of several arrays."""
    (first, k), *others = sizes.items()
    for name, size in others:
        if size != k:
            what, expected = "arrays differ in their number of classes", "the same classes in the same order everywhere"
            remedy = "predict with both models over one class list"
            raise wrong_shape(what, f"{first} and {name}", f"{k} and {size}", expected, remedy)
    return k


def same_length(lengths: dict[str, int]) -> int:
    """The common number of rows of several arrays."""
    (first, n), *others = lengths.items()
    for name, length in others:
        if length != n:
            what, expected = "arrays differ in their number of rows", "one row for each example in all of them"
            remedy = "join them by id before passing them"
            raise wrong_shape(what, f"{first} and {name}", f"{n} and {length} rows", expected, remedy)
    return n


def scores(values: Any, name: str) -> NDArray[np.float64]:
    """One finite number a row."""
    numbers = array(values, name)
    if numbers.ndim != 1 or numbers.dtype.kind not in "fiu":
        found, remedy = (
            f"shape {numbers.shape}, dtype {numbers.dtype}",
            "a confidence function maps (rows, classes) to (rows,)",
        )
        raise wrong_shape("not one number a row", name, found, "(rows,) numbers", remedy)
    bad = np.flatnonzero(~(np.abs(numbers.astype(np.float64)) <= 1e150))
    if len(bad):
        expected = "finite numbers up to 1e150"
        raise _bad_rows("NaN, infinite or huge scores", name, "such scores", expected, "mend the scores", bad)
    return numbers.astype(np.float64)
