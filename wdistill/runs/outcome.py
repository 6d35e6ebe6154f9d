"""The results of a run as frozen records: read back from its folder, printed as a table, drawn as a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from wdistill.runs.judgement import Judgement
from wdistill.weights.diagnostics import Histogram
from wdistill.weights.rule import Fitted


@dataclass(frozen=True)
class Epoch:
    """One epoch of one training; one line of metrics.jsonl."""

    epoch: int  # counted from 1
    loss: float  # mean over the examples of weight × loss
    rate: float  # learning rate at its end
    validation: float | None  # accuracy on the validation rows, within [0, 1]
    test: float | None  # accuracy on the test rows, where there are any
    examples: int  # trained on in this epoch
    seconds: float  # of training alone; accuracies are measured apart
    score: float | None = None  # the recipe's metric on the validation rows, negative where less is better; None: accuracy

    @property
    def rank(self) -> float | None:
        """What epochs are compared by: more is better; None where it was not measured."""
        return self.validation if self.score is None else self.score

    @property
    def record(self) -> dict[str, Any]:
        """As JSON holds it; a score only where there is one."""
        return {name: value for name, value in asdict(self).items() if name != "score" or value is not None}


@dataclass(frozen=True)
class Refresh:
    """One estimation of the weights of the unlabeled rows."""

    after: int  # epochs of the second stage before it
    weights: Histogram  # of all unlabeled rows
    right: Histogram | None  # of those that the teacher labeled correctly, where the truth is known
    wrong: Histogram | None  # of those it labeled wrongly
    clipped: int  # rows whose unclipped weight would be above 1
    floored: int  # validation rows whose loss on the truth was floored
    largest_distortion: float  # of any validation row
    forward_seconds: float  # the student reads validation and unlabeled rows
    estimate_seconds: float  # the rule turns predictions into weights
    file: str  # with the weights, inside the folder of their arm


def refresh_of(record: Mapping[str, Any]) -> Refresh:
    """The inverse of `asdict`."""

    def histogram(counted: Mapping[str, Any] | None) -> Histogram | None:
        return None if counted is None else Histogram(**{**counted, "counts": tuple(counted["counts"])})

    return Refresh(**{**record, **{name: histogram(record[name]) for name in ("weights", "right", "wrong")}})


@dataclass(frozen=True)
class Training:
    """One model that was trained: the teacher, the pretrained student, or one arm."""

    name: str  # "teacher", "student", or the arm's
    epochs: tuple[Epoch, ...]
    refreshes: tuple[Refresh, ...] = ()  # of an arm
    fitted: tuple[Fitted, ...] = ()  # the rule's state at its first and its last refresh, where it can be stored
    seconds: Mapping[str, float] = field(default_factory=dict)  # by kind of work: train, evaluate, forward, estimate, store
    rule: str = ""  # of an arm: the name of its rule, where it is known
    settings: Mapping[str, Any] = field(default_factory=dict)  # of an arm: those that are not the recipe's
    why: str = ""  # of an arm whose method chose its targets: the reasons
    gold: bool = False  # of an arm: trained on the validation rows that its validation accuracy is measured on

    @property
    def max_on_test(self) -> float | None:
        """The maximum test accuracy over the trajectory: selected on the test rows, as in the paper."""
        return max((epoch.test for epoch in self.epochs if epoch.test is not None), default=None)

    @property
    def final(self) -> float | None:
        """The test accuracy after the last epoch."""
        return self.epochs[-1].test if self.epochs else None

    @property
    def chosen(self) -> Epoch | None:
        """The epoch, the first of several, that was best on the validation rows: by accuracy, or by the recipe's metric."""
        measured = [epoch for epoch in self.epochs if epoch.rank is not None]
        return max(measured, key=lambda epoch: (epoch.rank or 0.0, -epoch.epoch), default=None)


@dataclass(frozen=True)
class Outcome:
    """One run: one split of the data, one teacher, one pretrained student, and one training for every arm."""

    folder: Path
    state: str  # "finished", "running" or "interrupted"
    recipe: Mapping[str, Any]
    environment: Mapping[str, Any]  # versions, hardware, commit; plain text and numbers
    rows: Mapping[str, int]  # rows of labeled, validation, unlabeled and test
    classes: int
    teacher: Training | None  # None where the teacher came as a table
    student: Training  # on the labeled rows alone; no epochs where it came trained
    accuracies: Mapping[str, Mapping[str, float]]  # of "teacher" and "student" on validation, unlabeled, test, where known
    arms: Mapping[str, Training]  # in the order given
    seconds: Mapping[str, float]  # by stage: teacher, student, labels, and every arm
    warnings: tuple[str, ...] = ()
    judgement: Judgement = field(default_factory=Judgement)  # of the final students, once all are trained
