"""For users of cleanlab: its `pred_probs` as a teacher, and what gold rows say of labels as label quality scores by id.

The targets of a table are `pred_probs` that gold rows have corrected, and cleanlab's own functions take them as they are:
find_label_issues(labels, table.select(ids).targets). As in cleanlab, a score of 1 is a good label and 0 a bad one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from wdistill.adapters.extras import brought_by
from wdistill.answers.frames import as_files
from wdistill.core import checks
from wdistill.core.errors import bad_input, bad_value
from wdistill.tables.formats.table import open_tables

with brought_by("cleanlab", __name__):
    import pandas as pd
    from cleanlab.rank import get_label_quality_scores

    from wdistill.adapters.target_table import TargetTable, check_table

QUALITY = "label_quality"  # the column, as CleanLearning names it


def teacher_from_pred_probs(ids: Any, pred_probs: Any) -> pa.Table:
    """Predictions (n, K), as cleanlab takes them, in the form that `wdistill.correct` and `weigh` read: id and teacher.

    They must be out of sample, as cleanlab says too: of a model that was trained neither on the row nor on gold. Tell
    `correct` the names of the classes.
    """
    table = TargetTable(np.asarray(ids), pred_probs, np.ones(len(pred_probs)))
    return pa.table({"id": table.ids, "teacher": list(table.targets)})


def label_issues(table: TargetTable, ids: Any, labels: Any, **options: Any) -> pd.DataFrame:
    """Which of the given labels (n,) of the rows with these ids (n,) are doubtful, as CleanLearning returns it, by id.

    `label_quality` is cleanlab's score of the label, from the corrected targets; the probability that it is right, unless
    `options` of get_label_quality_scores say otherwise. An issue is a label that is not the likeliest class.
    """
    table = check_table(table).select(ids)
    given = checks.labels(labels, table.targets.shape[1], "labels", table.classes)
    checks.same_length({"ids": len(table), "labels": len(given)})
    quality = get_label_quality_scores(given, table.targets, **options)
    columns = {
        "is_label_issue": given != table.labels,
        QUALITY: quality,
        "given_label": given,
        "predicted_label": table.labels,
    }
    return pd.DataFrame(columns, index=pd.Index(table.ids, name="id"))


def teacher_quality(weights: Any) -> pd.Series:
    """Quality of the teacher's own labels by id, 1 − error, from a file or a frame that `wdistill weigh` wrote.

    cleanlab itself cannot say: by the teacher's own probabilities, the teacher's own label is always the likeliest.
    """
    with as_files(weights=weights) as path:
        (table,) = open_tables([str(path("weights"))], option="weights")
        if not table.has("error"):
            found, remedy = (
                f"columns {', '.join(table.columns)}",
                "weigh with a rule that estimates errors, such as debiased",
            )
            raise bad_value("no estimate of errors", "weights", found, "a column 'error', as of `wdistill weigh`", remedy)
        chunks = list(table.chunks([], ["error"]))
    ids = pa.concat_arrays([chunk.ids for chunk in chunks]).to_numpy(zero_copy_only=False)
    error = checks.scores(np.concatenate([chunk.columns["error"] for chunk in chunks]), "error")
    outside = np.flatnonzero((error < 0) | (error > 1))
    if len(outside):
        found = f"{len(outside):,} errors outside [0, 1]"
        raise bad_input("these are no probabilities", "error", found, "probabilities of being wrong", "weigh again", outside)
    return pd.Series(1.0 - error, index=pd.Index(ids, name="id"), name=QUALITY)
