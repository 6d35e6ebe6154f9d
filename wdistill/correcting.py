"""`wdistill weigh --method best`: corrected targets for tables, chunk by chunk, as the job of weigh writes weights."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from wdistill import checks
from wdistill.confidence import Floats
from wdistill.evidence import Evidence
from wdistill.experts import Panel, consult, panel
from wdistill.joining import Numbers
from wdistill.methods.choosing import Choice, choose
from wdistill.methods.guards import guarded
from wdistill.methods.lessons import one_hot
from wdistill.options import BestOptions
from wdistill.readers import Chunk, Table
from wdistill.task import Made, align_table, chunk_rows, joined, others_of


@dataclass(frozen=True, eq=False)
class Correction:
    """The experts and the choice: the work that makes targets."""

    panel: Panel
    choice: Choice
    sampled: int  # unlabeled rows that the prospect was counted on

    @property
    def tables(self) -> tuple[Table, ...]:
        return self.panel.tables

    @property
    def options(self) -> BestOptions:
        return self.panel.options

    @property
    def evidence(self) -> Evidence:
        return self.panel.evidence

    @property
    def corrections(self) -> dict[str, float]:
        return self.panel.corrections

    @property
    def sides(self) -> dict[str, Table]:
        return self.panel.sides

    @property
    def state(self) -> bytes:
        found, posterior = self.choice.prospect, self.choice.prospect.posterior
        return json.dumps([found.taken, posterior.slopes, posterior.biases.tolist(), posterior.known.tolist()]).encode()

    @property
    def told(self) -> dict[str, Any]:
        found, posterior = self.choice.prospect, self.choice.prospect.posterior
        return {
            "method": "best",
            "why": self.choice.why,
            "slopes": dict(posterior.slopes),
            "biases": posterior.biases.tolist(),
            "classes_without_gold": np.flatnonzero(~posterior.known).tolist(),
            "prospect": {"sampled": self.sampled, "supported": found.supported, "taken": found.taken, **found.numbers},
        }

    def schema(self, ids: pa.DataType) -> pa.Schema:
        return pa.schema([("id", ids), ("weight", pa.float32()), ("targets", pa.list_(pa.float32(), self.panel.classes))])

    def align(self, table: Table, target: Path) -> None:
        numbers = ((chunk.ids, self._numbers(table, chunk)) for chunk in self._chunks(table, 0))
        align_table(self.tables[0], table, target, numbers, self.options.allow_subset)

    def made(self, folder: Path, start: int, position: int) -> Iterator[tuple[Chunk, Made]]:
        base, others = self.tables[0], others_of(self)
        for chunk in self._chunks(base, start):
            kept, numbers = joined(folder, others, position, len(chunk.ids))
            numbers |= {name: values[kept] for name, values in self._numbers(base, chunk).items()}
            yield chunk, self._made(kept, numbers) if len(kept) else Made(kept, (), {})
            position += len(chunk.ids)

    def _chunks(self, table: Table, start: int) -> Iterator[Chunk]:
        return table.chunks(self._own(table), start=start, rows=chunk_rows(self.panel.classes))

    def _own(self, table: Table) -> list[str]:
        return [side for side, where in self.sides.items() if where is table]

    def _numbers(self, table: Table, chunk: Chunk) -> Numbers:
        """What the experts behind a table say about a chunk of it, one column for every expert and class."""
        said = {self.panel.name(side): self.panel.said(table, chunk, side) for side in self._own(table)}
        return {f"{name}.{c}": values[:, c] for name, values in said.items() for c in range(values.shape[1])}

    def _made(self, kept: np.ndarray, numbers: Numbers) -> Made:
        classes = range(self.panel.classes)
        said = {
            name: np.stack([numbers[f"{name}.{c}"] for c in classes], axis=1) for name in map(self.panel.name, self.sides)
        }
        targets = self.choice.targets(said)
        changed = int(np.sum(targets.argmax(axis=1) != said["teacher"].argmax(axis=1)))
        return Made(kept, (pa.array(np.ones(len(kept), np.float32)), _lists(self._taught(targets))), {"changed": changed})

    def _taught(self, targets: Floats) -> Floats:
        return one_hot(targets.argmax(axis=1), targets.shape[1]) if self.options.targets == "hard" else targets


def prepare_best(
    validation: Sequence[str], unlabeled: Sequence[str], labeled: Sequence[str], options: BestOptions
) -> Correction:
    """Open the tables, ask the experts about gold and a sample of the unlabeled rows, and choose."""
    found = panel(validation, unlabeled, labeled, options)
    consulted = consult(found)
    for finding in (*consulted.findings, *guarded(consulted.case)):
        checks.warn(finding.text)
    return Correction(found, choose(consulted.case), len(consulted.ids))


def _lists(rows: Floats) -> pa.Array:
    """Rows (n, K) as an arrow array of lists."""
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.astype(np.float32).ravel()), rows.shape[1])
