"""`wdistill weigh --method best`: the table job that writes corrected targets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from wdistill.core import checks
from wdistill.methods.best import Correction, correct_targets
from wdistill.methods.context import one_hot
from wdistill.methods.guards import check_gold
from wdistill.methods.targets import Targets
from wdistill.tables.experts import ExpertTables, open_experts, predict_sample
from wdistill.tables.formats.table import Chunk, Table
from wdistill.tables.join import Numbers
from wdistill.tables.options import Options, Paths
from wdistill.tables.rows import OutputBatch, UnlabeledTables
from wdistill.weights.confidence import Floats


@dataclass(frozen=True, eq=False)
class CorrectJob:
    """The job that writes targets: the experts, and what the gold rows made of their predictions."""

    experts: ExpertTables
    fitted: Targets
    metadata: Mapping[str, Any]  # where the targets come from, and what they gain

    @property
    def source(self) -> UnlabeledTables:
        return self.experts.source

    @property
    def state(self) -> bytes:
        return json.dumps([self.metadata["targets_from"], self.fitted.record]).encode()

    def schema(self, ids: pa.DataType) -> pa.Schema:
        return pa.schema([("id", ids), ("weight", pa.float32()), ("targets", pa.list_(pa.float32(), self.source.classes))])

    def numbers(self, table: Table, chunk: Chunk) -> Numbers:
        """The predictions of a table's experts, one column for every expert and class."""
        columns = self.source.columns_in(table)
        predictions = {self.experts.expert(column): self.experts.predict(table, chunk, column) for column in columns}
        return {f"{name}.{c}": values[:, c] for name, values in predictions.items() for c in range(values.shape[1])}

    def process(self, kept: np.ndarray, numbers: Numbers) -> OutputBatch:
        targets, changed = self.targets(numbers)
        return OutputBatch(kept, (pa.array(np.ones(len(kept), np.float32)), lists(targets)), {"changed": int(changed.sum())})

    def targets(self, numbers: Numbers) -> tuple[Floats, NDArray[np.bool_]]:
        """Targets (n, K) from the predictions of all experts, and which rows (n,) get another class than the teacher's."""
        names, classes = map(self.experts.expert, self.source.columns), range(self.source.classes)
        predictions = {name: np.stack([numbers[f"{name}.{c}"] for c in classes], axis=1) for name in names}
        targets = self.fitted(predictions)
        changed = targets.argmax(axis=1) != predictions["teacher"].argmax(axis=1)
        if self.source.options.targets == "hard":
            targets = one_hot(targets.argmax(axis=1), targets.shape[1])
        return targets, np.asarray(changed)

    def appended(self) -> None:
        """Nothing: the gold rows are in a table of their own."""


def prepare_best(paths: Paths, options: Options) -> CorrectJob:
    """Open the tables, let the experts predict gold and a sample of the unlabeled rows, and fit the targets."""
    experts = open_experts(paths, options)
    sample = predict_sample(experts)
    for finding in (*sample.concerns, *check_gold(sample.context)):
        checks.warn(finding.text)
    correction = correct_targets(sample.context)
    return CorrectJob(experts, correction.targets.of, _described(correction, len(sample.ids)))


def _described(correction: Correction, sampled: int) -> dict[str, Any]:
    """What the record says about targets whose gain was estimated on so many unlabeled rows."""
    targets, gain = correction.targets, correction.gain
    return {
        "method": "best",
        "why": correction.why,
        "targets_from": targets.source,
        "fitted": targets.of.record,
        "prospect": {"sampled": sampled, **gain.numbers},
    }


def lists(rows: Floats) -> pa.Array:
    """Rows (n, K) as an arrow array of lists."""
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(rows, np.float32).ravel()), rows.shape[1])
