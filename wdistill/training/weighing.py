"""One estimation of the weights inside a run: the student reads, the rule weighs, the record says what it saw."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from wdistill import states
from wdistill.arms import AnyRule, explain
from wdistill.errors import ConfigError
from wdistill.evidence import Evidence
from wdistill.inspection import Histogram
from wdistill.ledger import Ledger
from wdistill.outcome import Refresh
from wdistill.rules import Fitted, Weighed
from wdistill.training.data import Split
from wdistill.training.labels import read_table, table_bytes
from wdistill.training.predicting import predict
from wdistill.training.stage import Estimate, StoppedError, Watch


@dataclass(frozen=True, eq=False)
class Weigher:
    """All that an arm's rule may see besides the student. Logits come at temperature 1 and are divided here."""

    rule: AnyRule
    validation: Split  # the rows that weigh, with labels
    unlabeled: Split  # its labels are the truth, where known; only the oracle and the record look at it
    validation_teacher: NDArray[np.float32]  # (m, K) logits
    teacher: NDArray[np.float32]  # (n, K) logits
    labeled_teacher: NDArray[np.float32] | None  # (l, K) logits
    temperature: float
    precision: str
    first: int  # where the unlabeled rows begin among the examples
    rows: int  # examples altogether; all others have weight 1
    watch: Watch
    targets: NDArray[np.float32] | None = None  # (n, K), where they are not the teacher's own; kept beside the weights

    def evidence(self, student: nn.Module) -> Evidence:
        """What a rule sees of the student as it is now."""
        validation_student = predict(student, self.validation.inputs, self.precision, between=self._between)
        return self._evidence(
            validation_student, predict(student, self.unlabeled.inputs, self.precision, between=self._between)
        )

    def estimate(self, student: nn.Module, after: int) -> Estimate:
        """Weights for the student as it is now, having been trained for `after` epochs of the second stage."""
        started = time.perf_counter()
        validation_student = predict(student, self.validation.inputs, self.precision, between=self._between)
        unlabeled_student = predict(student, self.unlabeled.inputs, self.precision, between=self._between)
        read = time.perf_counter()
        evidence = self._evidence(validation_student, unlabeled_student)
        weighed, fitted = explain(self.rule, evidence)
        estimated = time.perf_counter()
        file = f"weights/{after:05d}.parquet"
        refresh = self._record(weighed, after, file, read - started, estimated - read)
        return Estimate(self._spread(weighed.weights.astype(np.float32)), refresh, self._files(file, weighed, fitted))

    def restore(self, ledger: Ledger, refresh: Refresh) -> Tensor:
        return self._spread(read_table(ledger.read(refresh.file), ["weight"])["weight"])

    def _between(self, rows: int) -> None:
        if self.watch.stopping():
            raise StoppedError("stopped while the student read the unlabeled rows")

    def _evidence(self, validation_student: NDArray[Any], student: NDArray[Any]) -> Evidence:
        def cooled(logits: NDArray[Any]) -> NDArray[Any]:
            return logits if self.temperature == 1 else logits / np.float32(self.temperature)

        assert self.validation.labels is not None
        return Evidence(
            self.validation.labels.numpy(),
            cooled(self.validation_teacher),
            cooled(validation_student),
            cooled(self.teacher),
            cooled(student),
            None if self.labeled_teacher is None else cooled(self.labeled_teacher),
            None if self.unlabeled.labels is None else self.unlabeled.labels.numpy(),
            kind="logits",
        )

    def _spread(self, weights: NDArray[np.float32]) -> Tensor:
        """Weights of the unlabeled rows among those of all examples."""
        spread = torch.ones(self.rows)
        spread[self.first : self.first + len(weights)] = torch.from_numpy(np.array(weights))
        return spread

    def _record(self, weighed: Weighed, after: int, file: str, forward: float, estimate: float) -> Refresh:
        weights, right, wrong = weighed.weights, None, None
        if self.unlabeled.labels is not None:
            known = self.teacher.argmax(axis=1) == self.unlabeled.labels.numpy()
            right, wrong = Histogram().plus(weights[known]), Histogram().plus(weights[~known])
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

    def _files(self, file: str, weighed: Weighed, fitted: Fitted | None) -> dict[str, bytes]:
        columns = {"weight": weighed.weights, "error": weighed.error, "distortion": weighed.distortion}
        columns |= {f"weight_{name}": values for name, values in weighed.factors.items()}
        small = {name: None if values is None else values.astype(np.float32) for name, values in columns.items()}
        files = {file: table_bytes({"id": self.unlabeled.ids, **small, "targets": self.targets})}
        if fitted is not None:
            with suppress(ConfigError):  # a rule of the user's, or a confidence without a name: its state stays unknown
                files[file.replace(".parquet", ".npz")] = states.to_bytes(fitted)
        return files
