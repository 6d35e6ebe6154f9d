"""The final students of a run, judged: by the recipe's metric on test rows, and on the pool by corrected targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from wdistill.methods.decision import Decision
from wdistill.methods.statistics import Interval


@dataclass(frozen=True)
class Measured:
    """One metric of one student with its 95 % interval: of the most likely classes, and of the decision."""

    name: str  # of the metric, or of a class
    likely: Interval | None  # of a metric of scores (a ranking, the log loss), its only value; None: no row tells
    decided: Interval | None = None


@dataclass(frozen=True)
class JudgedStudent:
    """The final student of one arm: its decision, and what it reaches."""

    metric: str
    classes: tuple[str, ...]  # (K,) their names
    offsets: tuple[float, ...]  # (K,) added to slope · log-probabilities before a class is decided
    costs: tuple[tuple[float, ...], ...] | None  # (K, K) of deciding j where i is true; None: the most likely class, shifted
    fitted_on: Literal["gold", "pool", ""]  # rows that the decision was sought on; "": the metric needs none
    accepted: bool  # whether it gained, or with costs lost nothing, on rows that it was not fitted to
    measured_on: Literal["test", "gold", ""]  # gold: out of fold
    rows: int  # of these
    overall: tuple[Measured, ...]  # the metric, accuracy, and what belongs to it
    by_class: tuple[Measured, ...]  # of the ten worst classes, and of that of the metric
    slope: float = 1.0  # of the log-probabilities, which are recalibrated where there are costs

    @property
    def decision(self) -> Decision:
        """A class from probabilities."""
        return Decision(np.array(self.offsets), None if self.costs is None else np.array(self.costs), self.slope)


@dataclass(frozen=True)
class PoolGain:
    """What an arm with corrected targets gains over an unweighted one, as these targets judge both on unlabeled rows."""

    arm: str
    base: str
    metric: str
    gain: Interval  # more is better; of metrics without trials, only with what the judged rows leave open
    rows: int


@dataclass(frozen=True)
class Judgement:
    """All of it; empty where nothing was to be judged."""

    students: Mapping[str, JudgedStudent] = field(default_factory=dict)  # by arm, where the metric is not accuracy
    pool: tuple[PoolGain, ...] = ()

    @property
    def record(self) -> dict[str, Any]:
        """As JSON holds it."""
        students = {name: asdict(student) for name, student in self.students.items()}
        return {"students": students, "pool": [asdict(gain) for gain in self.pool]}


def judgement_of(record: Mapping[str, Any]) -> Judgement:
    """The inverse of `record`; of an empty record, an empty judgement."""
    students = {name: _student(student) for name, student in record.get("students", {}).items()}
    return Judgement(
        students, tuple(PoolGain(**{**each, "gain": Interval(**each["gain"])}) for each in record.get("pool", ()))
    )


def _student(record: Mapping[str, Any]) -> JudgedStudent:
    costs = record["costs"]
    return JudgedStudent(
        **{
            **record,
            "classes": tuple(record["classes"]),
            "offsets": tuple(record["offsets"]),
            "costs": None if costs is None else tuple(map(tuple, costs)),
            "overall": tuple(map(_measured, record["overall"])),
            "by_class": tuple(map(_measured, record["by_class"])),
        }
    )


def _measured(record: Mapping[str, Any]) -> Measured:
    likely, decided = (None if record[name] is None else Interval(**record[name]) for name in ("likely", "decided"))
    return Measured(record["name"], likely, decided)
