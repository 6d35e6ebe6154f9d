"""For users of snorkel: the posteriors of a label model as a teacher, that has no answer where nobody has voted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from wdistill.adapters.target_table import check_targets
from wdistill.core import checks
from wdistill.core.errors import bad_input, wrong_shape

ABSTAIN = -1  # in snorkel's matrices of votes


def teacher_from_label_model(label_model: Any, votes: Any, ids: Any) -> pa.Table:
    """id and teacher, as `wdistill.correct` reads them, from a label model and its votes L (n, m) with −1 for none.

    A label model gives a row without any vote its prior, or all classes alike, as if that were an answer. Here it has none:
    `wdistill.correct` counts it as a refusal, and leaves it out, or keeps it as refusals="uniform" says. How many there are
    is a warning. Votes that depend on each other make posteriors too sure of themselves; gold rows correct that.
    """
    cast = checks.array(votes, "votes")
    rows = np.asarray(ids)
    if cast.ndim != 2 or cast.dtype.kind not in "iu":
        found, expected = f"shape {cast.shape}, dtype {cast.dtype}", "(rows, labeling functions) whole numbers"
        raise wrong_shape("this is no matrix of votes", "votes", found, expected, "pass what the applier returned")
    checks.same_length({"votes": len(cast), "ids": len(rows)})
    classes = int(label_model.cardinality)
    unknown = np.flatnonzero(((cast < ABSTAIN) | (cast >= classes)).any(axis=1))
    if len(unknown):
        found, expected = f"votes from {cast.min()} to {cast.max()}", f"−1 for none, else 0 … {classes - 1}"
        raise bad_input("votes for unknown classes", "votes", found, expected, "count classes from 0", unknown)
    voted = (cast != ABSTAIN).any(axis=1)
    if not voted.any():
        found, expected = f"{len(cast):,} rows, all without a vote", "labeling functions that vote"
        raise bad_input("there is not one vote", "votes", found, expected, "mend the labeling functions")
    posteriors, _ = check_targets(label_model.predict_proba(cast))
    if not voted.all():
        checks.warn(f"{int((~voted).sum()):,} of {len(voted):,} rows have no vote of any labeling function, so no answer")
    answers = [row if has else None for row, has in zip(posteriors, voted, strict=True)]
    return pa.table({"id": rows, "teacher": pa.array(answers, pa.list_(pa.float64()))})
