"""The final students of a run, judged once all arms are trained: their decisions, their metric, and the pool's word.

A decision is sought on rows that tell how the student will do: on gold rows, where it was not trained on them; else it
knows them by heart, and the unlabeled rows take their place, with the corrected targets as their truth. Only the numbers
are kept, in the state of the run.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from wdistill.methods.best import correct_targets
from wdistill.methods.context import MethodArm, one_hot
from wdistill.methods.crossfit import Ints, folds_of
from wdistill.methods.decision import Decision, choose_decision
from wdistill.methods.gold_design import GoldDesign
from wdistill.methods.metric import PLAIN, Metric
from wdistill.methods.pilots import UNFORESEEN_AFTER, PilotPredictions, forecast
from wdistill.methods.reached import companions, reached, reached_by_class
from wdistill.runs.arms import folder_of
from wdistill.runs.checkpoints import CheckpointStore
from wdistill.runs.judgement import JudgedStudent, Judgement, Measured, PoolGain
from wdistill.training import tensors
from wdistill.training.arm import read_context, rows_that_weigh
from wdistill.training.data import Split, take_rows
from wdistill.training.jobs import arm_job
from wdistill.training.placed import placed
from wdistill.training.predict import predict
from wdistill.training.stage import Callbacks, StoppedError
from wdistill.weights.confidence import Floats
from wdistill.weights.equations import probabilities

if TYPE_CHECKING:
    from wdistill.training.prepare import Prepared
    from wdistill.training.run import Run

MOST_ROWS, MOST_CELLS, FEWEST_ROWS = 20_000, 2_000_000, 1_000  # of the pool that judge: rows, rows × classes, rows at least


def judge_students(run: Run, prepared: Prepared, callbacks: Callbacks) -> None:
    """Judge the students of all arms, once; nothing is done where the metric is accuracy and no arm corrects targets."""
    pairs = compared_arms(run)
    if "judged" in run.store.state or (prepared.metric is None and not pairs):
        return
    with run.timed("judging"):
        judges = _Judges(run, prepared, callbacks)
        students = {} if prepared.metric is None else {arm: judges.student(arm, prepared.metric) for arm in run.arms}
        gains = [judges.gain(*pair, PLAIN["accuracy"], {}) for pair in pairs]
        if prepared.metric is not None:
            decisions = {arm: student.decision for arm, student in students.items()}
            gains += [judges.gain(*pair, prepared.metric, decisions) for pair in pairs]
        run.remember(judged=Judgement(students, tuple(gains)).record)


def compared_arms(run: Run) -> list[tuple[str, str]]:
    """Arms whose targets are corrected, each with an unweighted arm, if there is one: best one that has gold rows too."""
    plain = [name for name, arm in run.arms.items() if arm.rule.name == "unweighted"]
    with_gold = [name for name in plain if run.arms[name].recipe(run.recipe).validation_in_training == "yes"]
    base = next(iter([*with_gold, *plain]), None)
    return [] if base is None else [(name, base) for name, arm in run.arms.items() if arm.auxiliary]


def pool_rows(n: int, classes: int, seed: int) -> Ints:
    """Those of n unlabeled rows that judge, in order: all, or as many of them, drawn at random, as take seconds."""
    count = min(n, MOST_ROWS, max(FEWEST_ROWS, MOST_CELLS // classes))
    return np.sort(np.random.default_rng(seed).permutation(n)[:count])


@dataclass(frozen=True, eq=False)
class _Judges:
    """Gold rows, test rows and the pool, and what the students predict for them."""

    run: Run
    prepared: Prepared
    callbacks: Callbacks

    @property
    def seed(self) -> int:
        return self.run.recipe.seed % 2**32

    @cached_property
    def rows(self) -> Ints:
        """Of the pool."""
        return pool_rows(len(self.prepared.splits["unlabeled"]), self.prepared.classes, self.seed)

    @cached_property
    def pool(self) -> Split:
        return take_rows(self.prepared.splits["unlabeled"], self.rows)

    @cached_property
    def targets(self) -> Floats:
        """Corrected targets of these rows (n, K), as `best` makes them, from all experts that the run has."""
        arm = next((name for name, arm in self.run.arms.items() if arm.auxiliary), next(iter(self.run.arms)))
        context = read_context(arm_job(self.run, self.prepared, arm), self.callbacks)
        targets = correct_targets(context).targets.of
        return targets({name: values[self.rows] for name, values in context.unlabeled.items()})

    def predict(self, arm: str, split: Split) -> Floats:
        """Probabilities (n, K) of an arm's final student."""
        model = copy.deepcopy(self.prepared.student)
        content = CheckpointStore(self.run.folder / "arms" / folder_of(arm)).read("parameters.safetensors")
        tensors.load_parameters(model, tensors.from_bytes(content, arm), arm)

        def on_batch(rows: int) -> None:
            if self.callbacks.stopping():
                raise StoppedError("stopped while the students were judged")

        with placed(model, self.run.device, self.run.recipe.sharded) as student:
            logits = predict(student, split.inputs, self.run.recipe.precision, on_batch=on_batch)
        return np.asarray(probabilities(logits, "logits"), np.float64)

    def unseen_gold(self, arm: str) -> Split | None:
        """The gold rows that an arm was not trained on; None where it was trained on all."""
        if CheckpointStore(self.run.folder / "arms" / folder_of(arm)).state["gold"]:
            return None
        gold, own = self.prepared.splits["validation"], self.run.arms[arm]
        weighing = rows_that_weigh(len(gold), own.recipe(self.run.recipe))
        return gold if isinstance(own.rule, MethodArm) or len(weighing) == len(gold) else take_rows(gold, weighing)

    def student(self, arm: str, metric: Metric) -> JudgedStudent:
        """The decision of an arm's student, and what it reaches on test rows, or out of fold on gold rows."""
        gold, test, names = self.unseen_gold(arm), self.prepared.splits.get("test"), self.prepared.class_names
        decision, accepted, judged = Decision(np.zeros(len(names))), False, None
        needed = metric.of_counts is not None or metric.costs is not None
        if gold is not None:
            predictions, labels = self.predict(arm, gold), _labels(gold)
            folds = folds_of(labels, seed=self.seed, same=gold.same, groups=gold.design.groups)
            choice = choose_decision(metric, predictions, labels, folds, gold.design.weights, gold.design.groups)
            decision, accepted = choice.decision, choice.accepted
            out_of_fold = metric.decide(choice.out_of_fold) if accepted else decision(predictions)
            judged = _Judged("gold", predictions, labels, out_of_fold, gold.design)
        elif needed:
            folds = folds_of(np.zeros(len(self.rows), np.int64), seed=self.seed)
            choice = choose_decision(metric, self.predict(arm, self.pool), self.targets, folds)
            decision, accepted = choice.decision, choice.accepted
        if test is not None:
            predictions = self.predict(arm, test)
            judged = _Judged("test", predictions, _labels(test), decision(predictions), test.design)
        return JudgedStudent(
            metric=metric.name,
            classes=names,
            offsets=tuple(decision.offsets.tolist()),
            costs=None if decision.costs is None else tuple(map(tuple, decision.costs.tolist())),
            fitted_on="" if not needed else "pool" if gold is None else "gold",
            accepted=accepted,
            measured_on="" if judged is None else judged.on,
            rows=0 if judged is None else len(judged.labels),
            overall=() if judged is None else judged.overall(metric, names),
            by_class=() if judged is None else judged.by_class(metric, names),
            slope=decision.slope,
        )

    def gain(self, arm: str, base: str, metric: Metric, decisions: Mapping[str, Decision]) -> PoolGain:
        """What an arm's student gains over that of another, as the corrected targets judge both."""
        plain, corrected = (self.predict(name, self.pool) for name in (base, arm))
        if decisions and metric.costs is not None:  # a cost decides by itself, which need not be as the student decides
            plain, corrected = (one_hot(decisions[n](p), p.shape[1]) for n, p in ((base, plain), (arm, corrected)))
        elif decisions and not metric.ranking:
            plain, corrected = decisions[base].shifted(plain), decisions[arm].shifted(corrected)
        gain = forecast(PilotPredictions(self.targets, plain, corrected), metric, UNFORESEEN_AFTER)
        return PoolGain(arm, base, metric.name, gain, len(self.rows))


@dataclass(frozen=True, eq=False)
class _Judged:
    """Rows that a student is judged on."""

    on: Literal["test", "gold"]
    predictions: Floats  # (n, K)
    labels: Ints  # (n,)
    decided: Ints  # (n,)
    design: GoldDesign  # how they were drawn

    def overall(self, metric: Metric, names: Sequence[str]) -> tuple[Measured, ...]:
        """By the metric and its companions."""
        rows = (self.predictions, self.labels, self.decided, self.design)
        return tuple(Measured(*reached(each, *rows)) for each in companions(metric, names))

    def by_class(self, metric: Metric, names: Sequence[str]) -> tuple[Measured, ...]:
        found = reached_by_class(metric, self.predictions, self.labels, self.decided, self.design, names)
        return tuple(Measured(*each) for each in found)


def _labels(split: Split) -> Ints:
    assert split.labels is not None
    return np.asarray(split.labels.numpy(), np.int64)
