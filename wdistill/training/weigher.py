"""One estimation of the weights inside a run: the student predicts, the rule weighs, and a record is kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
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
from wdistill.training.logits import Logits, is_held, most_likely, parts, whole
from wdistill.training.predict import predict
from wdistill.training.stage import Callbacks, Estimate, StoppedError
from wdistill.weights import saved
from wdistill.weights.confidence import Scan, entropy, scan
from wdistill.weights.diagnostics import Histogram
from wdistill.weights.evidence import Evidence
from wdistill.weights.rule import Fitted, Rule, Weighed
from wdistill.weights.rules import confidences_of

Predictions = tuple[Logits, Logits]  # of validation (m, K) and unlabeled rows (n, K)


@dataclass(frozen=True)
class Known:
    """What the pretrained student was found to predict, for arms that share it."""

    logits: dict[tuple[str, int], NDArray[np.float32]] = field(default_factory=dict)  # by name and rows of a split
    scans: dict[tuple[float, bool], Scan] = field(default_factory=dict)  # of unlabeled rows, by temperature and entropies


@dataclass(eq=False)
class Predicted:
    """Logits (n, K) that a model predicts when they are read, and the seconds that this took."""

    predict: Callable[[slice], NDArray[np.float32]]
    shape: tuple[int, int]
    seconds: float = 0.0

    def __getitem__(self, rows: slice, /) -> NDArray[np.float32]:
        started = time.perf_counter()
        predicted = self.predict(slice(*rows.indices(self.shape[0])))
        self.seconds += time.perf_counter() - started
        return predicted


@dataclass(frozen=True, eq=False)
class Weigher:
    """All inputs of an arm's rule besides the student. Logits have temperature 1 and are divided by the recipe's here."""

    rule: Rule[...]
    validation: Split  # the rows that weights are estimated from, with labels
    unlabeled: Split  # its labels are the truth, where known; only the oracle and the record use it
    validation_teacher: NDArray[np.float32]  # (m, K) logits
    teacher: Logits  # (n, K)
    labeled_teacher: Logits | None  # (l, K)
    temperature: float
    precision: str
    first: int  # index of the first unlabeled row among the examples
    rows: int  # number of all examples; the others have weight 1
    callbacks: Callbacks
    targets: NDArray[np.float32] | None = None  # (n, K), where they are not the teacher's own; kept beside the weights
    known: Known | None = None  # of the pretrained student, where arms share them: as far as they were computed
    out_of_fold: Predictions | None = None  # before the first epoch, where the student was pretrained on the validation rows

    def evidence(self, student: nn.Module) -> Evidence:
        """The evidence for a method, with all predictions of the pretrained student."""
        return self._with_predictions(*self._predictions(student, 0))

    def estimate(self, student: nn.Module, after: int) -> Estimate:
        """Weights from the current student, after `after` epochs of the second stage."""
        started = time.perf_counter()
        validation, unlabeled = self._predictions(student, after)
        forward = time.perf_counter() - started
        confidences = confidences_of(self.rule) if self.rule.needs else set()
        if confidences is None:
            evidence = self._with_predictions(validation, unlabeled)
        else:
            evidence = self._with_scans(validation, unlabeled, after, entropy in confidences)
        fitted = self.rule.fit(evidence)
        weighed = fitted.weigh_rows(evidence.rows)
        forward += unlabeled.seconds if isinstance(unlabeled, Predicted) else 0.0
        file = f"weights/{after:05d}.parquet"
        refresh = self._record(weighed, after, file, forward, time.perf_counter() - started - forward)
        return Estimate(self._spread(weighed.weights.astype(np.float32)), refresh, self._files(file, weighed, fitted))

    def restore(self, checkpoints: CheckpointStore, refresh: Refresh) -> Tensor:
        return self._spread(read_table(checkpoints.read(refresh.file), ["weight"])["weight"])

    def _predictions(self, student: nn.Module, after: int) -> Predictions:
        """Logits of validation and unlabeled rows after `after` epochs of the second stage."""
        if self.out_of_fold is not None and after == 0:
            return self.out_of_fold
        known = self.known.logits if self.known is not None and after == 0 else {}

        def held(split: Split) -> NDArray[np.float32]:
            at = split.name, len(split)
            if at not in known:
                known[at] = predict(student, split.inputs, self.precision, on_batch=self._on_batch)
            return known[at]

        def read(part: slice) -> NDArray[np.float32]:
            if is_held(*shape):
                return held(self.unlabeled)[part].copy()
            return predict(student, self.unlabeled.inputs, self.precision, part, self._on_batch)

        shape = len(self.unlabeled), self.validation_teacher.shape[1]
        return held(self.validation), Predicted(read, shape)

    def _on_batch(self, rows: int) -> None:
        if self.callbacks.stopping():
            raise StoppedError("stopped while the student predicted the unlabeled rows")

    def _with_predictions(self, validation: Logits, unlabeled: Logits) -> Evidence:
        """The evidence with all predictions, as methods and rules of the user's need it."""
        labeled = None if self.labeled_teacher is None else self._tempered(whole(self.labeled_teacher))
        return self._evidence(validation, self._tempered(whole(self.teacher)), self._tempered(whole(unlabeled)), labeled)

    def _with_scans(self, validation: Logits, unlabeled: Logits, after: int, entropies: bool) -> Evidence:
        """The evidence with scans in place of predictions, of which no more is in memory than a part."""
        student, known = None, self.known.scans if self.known is not None and after == 0 else {}
        if "student" in self.rule.needs:
            at = self.temperature, entropies
            if at not in known:
                known[at] = self._scan(unlabeled, entropies, "student")
            student = known[at]
        teacher, labeled = self._teacher_scans if entropies else (self._teacher_scan, None)
        return self._evidence(validation, teacher, student, labeled)

    def _evidence(
        self,
        validation: Logits,
        teacher: NDArray[Any] | Scan,
        student: NDArray[Any] | Scan | None,
        labeled: NDArray[Any] | Scan | None,
    ) -> Evidence:
        assert self.validation.labels is not None
        return Evidence(
            self.validation.labels.numpy(),
            self._tempered(self.validation_teacher),
            self._tempered(np.array(validation[:])),
            teacher,
            student,
            labeled,
            None if self.unlabeled.labels is None else self.unlabeled.labels.numpy(),
            kind="logits",
        )

    @cached_property
    def _teacher_scan(self) -> Scan:
        """Of the unlabeled rows."""
        return self._scan(self.teacher, False, "teacher")

    @cached_property
    def _teacher_scans(self) -> tuple[Scan, Scan | None]:
        """Of unlabeled and labeled rows, with entropies."""
        labeled = None if self.labeled_teacher is None else self._scan(self.labeled_teacher, True, "labeled_teacher")
        return self._scan(self.teacher, True, "teacher"), labeled

    def _scan(self, logits: Logits, entropies: bool, name: str) -> Scan:
        """One pass over logits, part by part."""
        read = (self._tempered(logits[part]) for part in parts(*logits.shape))
        return Scan.joined([scan(values, "logits", entropy=entropies, name=name) for values in read])

    def _tempered(self, logits: NDArray[Any]) -> NDArray[Any]:
        return logits if self.temperature == 1 else logits / np.float32(self.temperature)

    @cached_property
    def _right(self) -> NDArray[np.bool_] | None:
        """Where the teacher is right (n,), as far as the truth is known."""
        return None if self.unlabeled.labels is None else most_likely(self.teacher) == self.unlabeled.labels.numpy()

    def _spread(self, weights: NDArray[np.float32]) -> Tensor:
        """Weights of all examples, from those of the unlabeled rows."""
        spread = torch.ones(self.rows)
        spread[self.first : self.first + len(weights)] = torch.from_numpy(np.array(weights))
        return spread

    def _record(self, weighed: Weighed, after: int, file: str, forward: float, estimate: float) -> Refresh:
        weights, right, wrong = weighed.weights, None, None
        if self._right is not None:
            right, wrong = Histogram().plus(weights[self._right]), Histogram().plus(weights[~self._right])
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
