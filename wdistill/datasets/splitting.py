"""The paper's splits: the first rows are labeled, the others are dealt out at random in every trial."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wdistill.errors import ConfigError


def splits(
    rows: int, labels: int, validation: int, unlabeled: int | None = None, *, trial: int, repeat: int | None = None
) -> dict[str, NDArray[np.int64]]:
    """Row numbers of the labeled, validation and unlabeled rows among the train rows of a data set; no row is in two.

    labeled: the first `labels` rows, the same in all trials; with `repeat`, the first of a permutation of its own.
    validation, unlabeled: the others at random, another deal for every `trial`; unlabeled: all that are left, or so many.
    """
    rest = max(1, rows - labels - validation) if unlabeled is None else unlabeled
    if min(labels, validation, rest) < 1 or labels + validation + rest > rows:
        raise ConfigError(
            "the data set has not so many rows",
            where="labels, validation and unlabeled",
            found=f"{labels} labeled, {validation} validation and {rest} unlabeled rows",
            expected=f"at least 1 of each, and {rows} altogether",
            remedy="ask for fewer of them",
        )
    order = np.arange(rows) if repeat is None else np.random.default_rng([repeat, 1]).permutation(rows)
    others = np.random.default_rng([trial, 0]).permutation(order[labels:])
    dealt = others[validation : validation + rest]
    return {"labeled": order[:labels], "validation": others[:validation], "unlabeled": dealt}
