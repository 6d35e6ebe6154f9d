"""Confidence of predictions: margin, entropy and argmax of every row in one pass, checked on the way.

margin  = largest − second largest probability, subtracted in float64           (paper §2.3, "margin-score")
entropy = −Σ_c p_c log p_c, in nats                                             (paper §2.3)

Large arrays use `_confidence`; small ones use NumPy, which needs no compiler. Both give the same bits: sums are taken over
whole multiples of a fixed quantum, so they do not depend on order, on chunks, or on threads.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wdistill.core import checks
from wdistill.core.errors import InputError
from wdistill.core.threads import parallel, threads
from wdistill.weights._elementary import exp32, exp64, log32, log64

Kind = Literal["probabilities", "logits", "logprobs"]
Floats = NDArray[np.float64]
Confidence = Callable[[NDArray[np.floating]], Floats]

SMALL = 1 << 22  # entries up to which plain NumPy is fast enough not to load compiled code
FAULTS = 1000  # faulty rows a block that an error counts
BLOCK = 1 << 22  # entries a block, at most: enough to outweigh the calls around it
ROWS = 1 << 16  # rows a block, at most: their results stay in the cache


@dataclass(frozen=True, eq=False)
class Scan:
    """The results of one pass over an (n, K) array."""

    argmax: NDArray[np.int32]  # (n,) argmax; the lowest class where several share the maximum
    margin: Floats  # (n,)
    entropy: Floats | None  # (n,), where requested
    certainty: Floats | None = None  # (n,) the largest probability, where requested
    correction: float = 0.0  # largest distance of a row's sum from 1, where rows were scaled to sum to 1
    rounding: float = 0.0  # what rounding can do to distances between margins, by the type of the array

    def __len__(self) -> int:
        return len(self.argmax)

    @classmethod
    def joined(cls, scans: Sequence[Scan]) -> Scan:
        """The scan of all rows from those of consecutive parts, each with or without entropies."""
        if len(scans) == 1:
            return scans[0]

        def column(name: str) -> Any:
            values = [getattr(each, name) for each in scans]
            return None if values[0] is None else np.concatenate(values)

        columns = {name: column(name) for name in ("argmax", "margin", "entropy", "certainty")}
        largest = {name: max(getattr(each, name) for each in scans) for name in ("correction", "rounding")}
        return cls(**columns, **largest)


@dataclass(frozen=True, eq=False)
class _Raw:
    """Per row of a block: argmax, two largest values, a rough sum of all, and exact sums in quanta."""

    argmax: NDArray[np.int32]
    top: NDArray[np.floating]
    second: NDArray[np.floating]
    check: NDArray[np.floating]
    total: NDArray[np.int64]  # Σ exp(z − top); logits and log-probabilities only
    spread: NDArray[np.int64]  # Σ −p log p, or Σ exp(z − top)·(top − z)


def margin(values: NDArray[np.floating], kind: Kind = "probabilities") -> Floats:
    """Largest minus second largest probability of every row: (n, K) → (n,)."""
    return scan(values, kind).margin


def entropy(values: NDArray[np.floating], kind: Kind = "probabilities") -> Floats:
    """Entropy of every row in nats: (n, K) → (n,)."""
    entropies = scan(values, kind, entropy=True).entropy
    assert entropies is not None
    return entropies


def scan(
    values: NDArray[np.floating],
    kind: Kind = "probabilities",
    *,
    entropy: bool = False,
    certainty: bool = False,
    renormalize: bool = False,
    tolerance: float | None = None,
    name: str = "predictions",
) -> Scan:
    """Argmax, margin and (if requested) entropy and largest probability of every row (n, K); bad rows are an InputError.

    Probabilities must sum to 1 within `tolerance` (None: what their precision can promise), unless they are renormalized.
    """
    checks.kind(kind)
    values = checks.matrix(values, name)
    checks.mistaken_logits(values, kind, name)
    n, k = values.shape
    allowed = checks.tolerance(values.dtype.name, k) if tolerance is None else tolerance
    half = values.dtype.itemsize == 2
    argmax, top_gap = np.empty(n, np.int32), np.empty(n)
    entropies, certainties = np.empty(n) if entropy else None, np.empty(n) if certainty else None
    compiled = (values.size > SMALL or is_loaded()) and compiles()
    corrections, faulty = [0.0], list[tuple[NDArray[Any], NDArray[np.intp]]]()

    def work(part: slice) -> None:
        rows = checks.widened(values[part])
        if renormalize and kind == "probabilities":
            with np.errstate(invalid="ignore", divide="ignore"):
                unscaled, sums = rows, rows.sum(axis=1, dtype=np.float64)
                rows = unscaled / sums[:, None]
            bad = np.flatnonzero(~((unscaled.min(axis=1) >= 0) & np.isfinite(sums) & (sums > checks.LEAST_SUM)))
            if len(bad):
                faulty.append((unscaled[bad[:FAULTS]], bad[:FAULTS] + part.start))
                return
            corrections.append(float(np.abs(sums - 1).max()))
        raw = _scan_compiled(rows, kind, entropy) if compiled else _scan_numpy(rows, kind, entropy)
        sums = np.exp(np.minimum(raw.top, 1)) * (raw.total * quantum(k)[1]) if kind == "logprobs" else raw.check
        doubtful = checks.doubtful_rows(raw.top, sums, kind, allowed, renormalize and kind == "logprobs")
        if doubtful.any():
            which = np.flatnonzero(doubtful)
            try:
                clean = checks.rows(rows[which], which + part.start, kind, allowed, half, name, renormalize)
            except InputError:
                faulty.append((rows[which[:FAULTS]], which[:FAULTS] + part.start))
                return
            for field, again in zip(vars(raw).values(), vars(_scan_numpy(clean, kind, entropy)).values(), strict=True):
                field[which] = again
        if renormalize and kind == "logprobs":
            corrections.append(float(np.abs(sums - 1).max()))
        argmax[part] = raw.argmax
        top_gap[part] = _margin(raw, kind, k, compiled)
        if entropies is not None:
            entropies[part] = _entropy(raw, kind, k, compiled)
        if certainties is not None:
            certainties[part] = raw.top if kind == "probabilities" else 1.0 / (raw.total * quantum(k)[1])

    with np.errstate(over="ignore"):
        parallel(work, n, max(1, min(BLOCK // k, ROWS, -(-n // (4 * threads())))))
    if faulty and tolerance is None and kind != "logits" and not renormalize:
        carried = checks.tolerance(checks.precision(values), k)
        if carried > allowed:  # numbers that were widened from a shorter type
            return scan(values, kind, entropy=entropy, certainty=certainty, tolerance=carried, name=name)
    if faulty:  # once more with the faulty rows of all blocks, so that the error counts them all
        faulty.sort(key=lambda block: int(block[1][0]))
        bad, which = (np.concatenate(blocks) for blocks in zip(*faulty, strict=True))
        checks.rows(bad, which, kind, allowed, half, name, renormalize)
    return Scan(argmax, top_gap, entropies, certainties, max(corrections), checks.rounding(values.dtype.name, kind))


def is_loaded() -> bool:
    """Whether this process has loaded the compiler, as it does in jobs of many chunks: then even small arrays gain by it."""
    return "wdistill.weights._jit" in sys.modules


def compiles() -> bool:
    """Whether compiled code may be used; loads the compiler."""
    from wdistill.weights._jit import ENABLED

    return ENABLED


def quantum(k: int) -> tuple[np.float64, float]:
    """(magic, unit): x + magic holds 0 <= x <= 1 as a multiple of `unit` in its low bits, and K of them fit an int64."""
    shift = min(50, 62 - max(1, k - 1).bit_length())
    return np.float64(2.0 ** (52 - shift)), 2.0**-shift


def fixed(x: NDArray[np.floating], magic: np.float64) -> NDArray[np.int64]:
    """0 <= x <= 1 as whole numbers of quanta."""
    whole: NDArray[np.int64] = (x.astype(np.float64) + magic).view(np.int64) - magic.view(np.int64)
    return whole


def _margin(raw: _Raw, kind: Kind, k: int, compiled: bool) -> Floats:
    gap: Floats = raw.top.astype(np.float64) - raw.second.astype(np.float64)
    if kind == "probabilities":
        return gap
    return (1.0 - _of_all("exp", -gap, compiled)) / (raw.total * quantum(k)[1])


def _entropy(raw: _Raw, kind: Kind, k: int, compiled: bool) -> Floats:
    spread = np.asarray(raw.spread * quantum(k)[1], np.float64)
    if kind == "probabilities":
        return np.maximum(spread, 0.0)  # a probability just above 1, within tolerance, would bring it below
    total = np.asarray(raw.total * quantum(k)[1], np.float64)
    return np.asarray(_of_all("log", total, compiled) + spread / total)


def _of_all(function: Literal["exp", "log"], numbers: Floats, compiled: bool) -> Floats:
    """exp64 or log64 of numbers (n,), compiled or with NumPy."""
    if not compiled:
        return np.asarray(exp64(numbers) if function == "exp" else log64(numbers))
    from wdistill.weights import _confidence as fast

    results = np.empty(len(numbers) + fast.GROUP)  # lanes are written beyond the end
    (fast.exp_of if function == "exp" else fast.log_of)(numbers, results)
    return results[: len(numbers)]


def _scan_numpy(rows: NDArray[np.floating], kind: Kind, entropy: bool) -> _Raw:
    n, k = rows.shape
    magic, _ = quantum(k)
    every_row = np.arange(n)
    argmax = rows.argmax(axis=1).astype(np.int32)
    top = rows[every_row, argmax]
    others = rows.copy()
    others[every_row, argmax] = -np.inf
    second = others.max(axis=1)
    total, spread = np.zeros(n, np.int64), np.zeros(n, np.int64)
    exp, log = (exp32, log32) if rows.dtype == np.float32 else (exp64, log64)
    with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinity are detected in `check`
        if kind == "probabilities":
            check = np.where(rows >= 0, rows, np.nan).sum(axis=1, dtype=rows.dtype)
            if entropy:
                spread = fixed(-(rows * log(rows)), magic).sum(axis=1)
        else:
            check = rows.sum(axis=1)
            powers = exp(rows - top[:, None])
            total = fixed(powers, magic).sum(axis=1)
            if entropy:
                spread = fixed(powers * np.minimum(top[:, None] - rows, rows.dtype.type(80)), magic).sum(axis=1)
    return _Raw(argmax, top, second, check, total, spread)


def _scan_compiled(rows: NDArray[np.floating], kind: Kind, entropy: bool) -> _Raw:
    from wdistill.weights import _confidence as fast
    from wdistill.weights._simd import BYTES

    n, k = rows.shape
    magic, _ = quantum(k)
    number = rows.dtype.type
    room = n + BYTES
    argmax, (check, top, second) = np.empty(room, np.int32), np.empty((3, room), rows.dtype)
    total, spread = np.zeros((2, room), np.int64)
    if k < fast.WIDE:
        columns, logits = np.zeros(k * fast.GROUP, rows.dtype), kind != "probabilities"
        fast.narrow(
            rows, columns, number(np.nan), number(80), magic, logits, entropy, top, second, argmax, check, total, spread
        )
    elif kind == "probabilities":
        fast.wide_probabilities(rows, number(0), number(np.nan), magic, entropy, top, second, argmax, check, spread)
    else:
        fast.wide_logits(rows, number(-np.inf), number(80), magic, entropy, top, second, argmax, check, total, spread)
    return _Raw(argmax[:n], top[:n], second[:n], check[:n], total[:n], spread[:n])
