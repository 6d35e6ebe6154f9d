"""One trial: fresh gold, pool and test rows of a file of answers, and a linear text student for every arm.

All students begin at zero and see the same batches of pool and gold rows; an arm that does not use a row gives it weight 0.
The truth of the pool is for `oracle` and `truth` alone. The paper's weights need a student that has not seen gold: here the
one that was trained on the LLM's answers. Targets come from `wdistill.correct`, as a user gets them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from wdistill.answers.api import Corrected, correct
from wdistill.core.errors import WdistillWarning
from wdistill.methods.context import one_hot
from wdistill.runs.recipe import Recipe
from wdistill.text.features import TextFeatures, fit_features
from wdistill.text.integers import text_rows
from wdistill.text.linear import fit_linear
from wdistill.training.inputs import InMemory
from wdistill.training.loop import run_stage
from wdistill.training.models.text import TEXT_RECIPE, TextBag, text_bag
from wdistill.training.predict import predict
from wdistill.training.stage import Examples, Stage
from wdistill.weights.confidence import Floats
from wdistill.weights.debiased import debiased
from wdistill.weights.evidence import Evidence

Ints = NDArray[np.int64]
BASE = "unweighted + gold"
LENGTH = 128  # columns of a text's row: tweets are short


@dataclass(frozen=True, eq=False)
class Answers:
    """Texts, what the LLM answered, and the truth; classes by number."""

    texts: tuple[str, ...]
    answers: Ints  # (n,)
    truth: Ints  # (n,)
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True, eq=False)
class Parts:
    """The rows of one trial: gold, pool and test, by number."""

    gold: Ints
    pool: Ints
    test: Ints


def split(rows: int, gold: int, test: int, seed: int) -> Parts:
    """Test rows first, so that they are the same for all numbers of gold rows of a seed."""
    order = np.random.default_rng(seed).permutation(rows)
    return Parts(order[test : test + gold], order[test + gold :], order[:test])


def trial(data: Answers, gold: int, test: int, seed: int) -> dict[str, Any]:
    """Test accuracies in percent by arm, those of the targets, and why `best` chose its targets."""
    parts = split(len(data), gold, test, seed)
    student = Student(data, parts, seed)
    supervisions, corrected = arms(data, parts, student, seed)
    accuracies = {name: student.accuracy(*supervision) for name, supervision in supervisions.items()}
    accuracies["labels alone, penalty by cross-validation"] = regression(data, parts, student.features)
    teacher = data.answers[parts.pool] == data.truth[parts.pool]
    best = supervisions["best"][0][: len(parts.pool)].argmax(axis=1) == data.truth[parts.pool]
    return {
        "gold": gold,
        "trial": seed,
        "rows": {"pool": len(parts.pool), "test": test},
        "accuracies": accuracies,
        "targets": {"teacher": _percent(teacher), "best": _percent(best)},
        "why": corrected.why,
    }


class Student:
    """Trains a linear text student on pool and gold rows, for targets and weights of all of them."""

    def __init__(self, data: Answers, parts: Parts, seed: int) -> None:
        self.classes, self.seed = len(data.classes), seed
        self.rows = np.concatenate([parts.pool, parts.gold])
        self.features: TextFeatures = fit_features([[data.texts[i] for i in self.rows]])
        self.inputs, self.test = (
            torch.from_numpy(text_rows([data.texts[i] for i in rows], self.features, LENGTH))
            for rows in (self.rows, parts.test)
        )
        self.truth = data.truth[parts.test]

    def trained(self, targets: Floats, weights: Floats) -> TextBag:
        """A student of these targets (n, K) and weights (n,); gold rows are the last."""
        bag, recipe = text_bag(self.features, self.classes), Recipe(**TEXT_RECIPE, seed=self.seed, device="cpu")  # type: ignore[arg-type]
        soft, scale = torch.from_numpy(targets).float(), torch.from_numpy(weights).float()
        examples = Examples(InMemory(self.inputs), soft, scale, self.rows)
        with TemporaryDirectory() as folder:
            run_stage(Stage("student", Path(folder), examples, recipe.epochs, order="arm"), bag, recipe, {})
        return bag

    def accuracy(self, targets: Floats, weights: Floats) -> float:
        """On the test rows, in percent."""
        return _percent(self.predicted(self.trained(targets, weights), self.test).argmax(axis=1) == self.truth)

    def predicted(self, bag: TextBag, inputs: torch.Tensor) -> Floats:
        return np.asarray(predict(bag, InMemory(inputs), "float32"), np.float64)


def regression(data: Answers, parts: Parts, features: TextFeatures) -> float:
    """The test accuracy in percent of a model of the gold rows alone that is meant for few rows."""
    gold, test = (features.transform([data.texts[i] for i in rows]) for rows in (parts.gold, parts.test))
    model = fit_linear(gold, one_hot(data.truth[parts.gold], len(data.classes)))
    return _percent(model(test).argmax(axis=1) == data.truth[parts.test])


def arms(data: Answers, parts: Parts, student: Student, seed: int) -> tuple[dict[str, tuple[Floats, Floats]], Corrected]:
    """Targets and weights of pool and gold rows for every arm, and how the targets of `best` came about."""
    n, m, k = len(parts.pool), len(parts.gold), len(data.classes)
    teacher, gold = one_hot(data.answers[parts.pool], k), one_hot(data.truth[parts.gold], k)
    corrected = _quietly(correct, *_tables(data, parts), text="text", classes=data.classes)
    recalibrated = _quietly(correct, *_tables(data, parts), classes=data.classes)
    own = np.concatenate([teacher, gold])
    weights = _paper(data, parts, student, own)

    def weighed(pool: Floats) -> tuple[Floats, Floats]:
        return own, np.concatenate([pool, np.ones(m)])

    right = (data.answers[parts.pool] == data.truth[parts.pool]).astype(float)
    return {
        BASE: weighed(np.ones(n)),
        "labels alone": weighed(np.zeros(n)),
        "recalibrated + gold": (_targets(recalibrated, student.rows), np.ones(n + m)),
        "paper + gold": weighed(weights),
        "best": (_targets(corrected, student.rows), np.ones(n + m)),
        "shuffled + gold": weighed(np.random.default_rng(seed).permutation(weights)),
        "oracle + gold": weighed(right),
        "truth": (one_hot(data.truth[student.rows], k), np.ones(n + m)),
    }, corrected


def _paper(data: Answers, parts: Parts, student: Student, targets: Floats) -> Floats:
    """The paper's weights of the pool, with a student that was trained on the LLM's answers alone."""
    n, m, k = len(parts.pool), len(parts.gold), len(data.classes)
    logits = student.predicted(student.trained(targets, np.repeat([1.0, 0.0], [n, m])), student.inputs)
    soft = np.exp(logits - logits.max(axis=1, keepdims=True))
    soft /= soft.sum(axis=1, keepdims=True)
    gold_teacher, teacher = one_hot(data.answers[parts.gold], k), one_hot(data.answers[parts.pool], k)
    evidence = Evidence(data.truth[parts.gold], gold_teacher, soft[n:], teacher, soft[:n])
    return np.asarray(_quietly(debiased, evidence, targets="hard"))


def _tables(data: Answers, parts: Parts) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Answers of pool and gold rows, and gold labels, as a user holds them."""
    rows = np.concatenate([parts.pool, parts.gold])
    answers = {"id": [str(i) for i in rows], "text": [data.texts[i] for i in rows]}
    answers["label"] = [data.classes[i] for i in data.answers[rows]]
    return answers, {"id": [str(i) for i in parts.gold], "label": [data.classes[i] for i in data.truth[parts.gold]]}


def _targets(corrected: Corrected, rows: Sequence[int] | Ints) -> Floats:
    """Targets (n, K) in the order of these rows; gold rows have their true label."""
    by_id = dict(zip(corrected.table["id"].to_pylist(), corrected.table["targets"].to_pylist(), strict=True))
    return np.array([by_id[str(i)] for i in rows], np.float64)


def _quietly(function: Any, *given: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WdistillWarning)  # of gold rows: the lines hold what came of them
        return function(*given, **options)


def _percent(right: NDArray[np.bool_]) -> float:
    return float(100 * right.mean())
