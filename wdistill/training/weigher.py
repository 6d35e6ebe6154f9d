"""One estimation of the weights inside a run: the student predicts, the rule weighs, and a record is kept."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from wdistill.core.errors import ConfigError
from wdistill.runs.checkpoints import CheckpointStore
from wdistill.runs.outcome import Refresh
from wdistill.training.data import Split
from wdistill.training.labels import read_table, table_bytes
from wdistill.training.predict import predict
from wdistill.training.stage import Callbacks, Estimate, StoppedError
from wdistill.weights import saved
from wdistill.weights.diagnostics import Histogram
from wdistill.weights.evidence import Evidence
from wdistill.weights.rule import Fitted, Rule, Weighed

Known = dict[tuple[str, int], NDArray[np.float32]]  # logits by the name and the number of rows of a split
Predictions = tuple[NDArray[np.float32], NDArray[np.float32]]  # logits of validation (m, K) and unlabeled rows (n, K)


@dataclass(frozen=True, eq=False)
class Weigher:
    """All inputs of an arm's rule besides the student. Logits have temperature 1 and are divided by the recipe's here."""

    rule: Rule[...]
    validation: Split  # the rows that weights are estimated from, with labels
    unlabeled: Split  # its labels are the truth, where known; only the oracle and the record use it
    validation_teacher: NDArray[np.float32]  # (m, K) logits
    teacher: NDArray[np.float32]  # (n, K) logits
    labeled_teacher: NDArray[np.float32] | None  # (l, K) logits
    temperature: float
    precision: str
    first: int  # index of the first unlabeled row among the examples
    rows: int  # number of all examples; the others have weight 1
    callbacks: Callbacks
    targets: NDArray[np.float32] | None = None  # (n, K), where they are not the teacher's own; kept beside the weights
    known: Known | None = None  # of the pretrained student, where arms share them: as far as they were computed
    out_of_fold: Predictions | None = None  # before the first epoch, where the student was pretrained on the validation rows

    def evidence(self, student: nn.Module) -> Evidence:
        """The evidence for a rule, with the predictions of the pretrained student."""
        return self._evidence(*self._predictions(student, 0))

    def estimate(self, student: nn.Module, after: int) -> Estimate:
        """Weights from the current student, after `after` epochs of the second stage."""
        started = time.perf_counter()
        predictions = self._predictions(student, after)
        read = time.perf_counter()
        evidence = self._evidence(*predictions)
        fitted = self.rule.fit(evidence)
        weighed = fitted.weigh_rows(evidence.rows)
        estimated = time.perf_counter()
        file = f"weights/{after:05d}.parquet"
        refresh = self._record(weighed, after, file, read - started, estimated - read)
        return Estimate(self._spread(weighed.weights.astype(np.float32)), refresh, self._files(file, weighed, fitted))

    def restore(self, checkpoints: CheckpointStore, refresh: Refresh) -> Tensor:
        return self._spread(read_table(checkpoints.read(refresh.file), ["weight"])["weight"])

    def _predictions(self, student: nn.Module, after: int) -> Predictions:
        """Logits of validation and unlabeled rows after `after` epochs of the second stage."""
        if self.out_of_fold is not None and after == 0:
            return self.out_of_fold
        known = self.known if self.known is not None and after == 0 else {}
        for split in (self.validation, self.unlabeled):
            if _key(split) not in known:
                known[_key(split)] = predict(student, split.inputs, self.precision, on_batch=self._on_batch)
        return known[_key(self.validation)].copy(), known[_key(self.unlabeled)].copy()

    def _on_batch(self, rows: int) -> None:
        if self.callbacks.stopping():
            raise StoppedError("stopped while the student predicted the unlabeled rows")

    def _evidence(self, validation_student: NDArray[Any], student: NDArray[Any]) -> Evidence:
        def tempered(logits: NDArray[Any]) -> NDArray[Any]:
            return logits if self.temperature == 1 else logits / np.float32(self.temperature)

        assert self.validation.labels is not None
        return Evidence(
            self.validation.labels.numpy(),
            tempered(self.validation_teacher),
            tempered(validation_student),
            tempered(self.teacher),
            tempered(student),
            None if self.labeled_teacher is None else tempered(self.labeled_teacher),
            None if self.unlabeled.labels is None else self.unlabeled.labels.numpy(),
            kind="logits",
        )

    def _spread(self, weights: NDArray[np.float32]) -> Tensor:
        """Weights of all examples, from those of the unlabeled rows."""
        spread = torch.ones(self.rows)
        spread[self.first : self.first + len(weights)] = torch.from_numpy(np.array(weights))
        return spread

    def _record(self, weighed: Weighed, after: int, file: str, forward: float, estimate: float) -> Refresh:
        weights, right, wrong = weighed.weights, None, None
        if self.unlabeled.labels is not None:
            correct = self.teacher.argmax(axis=1) == self.unlabeled.labels.numpy()
            right, wrong = Histogram().plus(weights[correct]), Histogram().plus(weights[~correct])
        return Refresh(
            after,
            Histogram().plus(weights),
            right,
            wrong,
            weighed.clipped,
            weighed.floored,
            float(weighed.largest_distortion),
            forward,
            estimate,
            file,
        )

    def _files(self, file: str, weighed: Weighed, fitted: Fitted) -> dict[str, bytes]:
        columns = {"weight": weighed.weights, "error": weighed.error, "distortion": weighed.distortion}
        columns |= {f"weight_{name}": values for name, values in weighed.factors.items()}
        small = {name: None if values is None else values.astype(np.float32) for name, values in columns.items()}
        files = {file: table_bytes({"id": self.unlabeled.ids, **small, "targets": self.targets})}
        with suppress(ConfigError):  # a control, a user's own rule or confidence function: its state is not kept
            files[file.replace(".parquet", ".npz")] = saved.to_bytes(fitted)
        return files


def _key(split: Split) -> tuple[str, int]:
    return split.name, len(split)
