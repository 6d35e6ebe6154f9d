"""Models of the rows themselves, trained on gold in five folds: experts beside the teacher, from texts or inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from wdistill.answers.input_columns import InputColumns, deviations, texts_of
from wdistill.answers.pool import AnswerPool, GoldRows
from wdistill.methods.crossfit import fit_fold_forests, folds_of
from wdistill.text.directions import DIRECTIONS, SAMPLE, directions
from wdistill.text.features import TextFeatures, fit_features
from wdistill.text.linear import fit_fold_linear
from wdistill.weights.confidence import Floats

STUDENT, TREES = "student", "trees"  # a linear model, whose confidence the paper's weights look at too; a forest

Values = Mapping[str, pa.Array]  # texts or inputs, by column


@dataclass(frozen=True, eq=False)
class RowExperts:
    """Experts by name: what they say of the gold rows, out of fold, and of any others."""

    gold: Mapping[str, Floats]  # (m, K)
    predict: Callable[[Values, str], dict[str, Floats]]  # of some rows, (n, K) each; the place is for messages
    rows: Callable[[Values, str], Any]  # sparse features of some rows, as the linear model reads them
    features: TextFeatures | None = None  # of texts


def fit_experts(pool: AnswerPool, gold: GoldRows) -> RowExperts | None:
    """Experts of texts or inputs; None where neither was named."""
    if pool.options.text:
        return _of_texts(pool, gold, pool.options.text)
    return _of_inputs(pool, gold) if pool.options.inputs else None


def _of_texts(pool: AnswerPool, gold: GoldRows, column: str) -> RowExperts:
    drawn: list[str | None] = []

    def texts() -> Iterator[list[str | None]]:
        for _, values, _ in pool.value_batches("reading texts"):
            batch = list(texts_of(values[column]))
            drawn.extend(batch[: max(0, SAMPLE - len(drawn))])
            yield batch

    features = fit_features(texts())
    rows, classes = features.transform(texts_of(gold.values[column])), len(pool.classes)
    folds = folds_of(gold.labels, groups=gold.design.groups)
    linear = fit_fold_linear(None, (rows, gold.labels), folds, classes)
    main = directions(features.transform(drawn), DIRECTIONS)
    forest = fit_fold_forests((main(rows[:0]), gold.labels[:0]), (main(rows), gold.labels), folds, classes)

    def predict(values: Values, where: str) -> dict[str, Floats]:
        sparse = features.transform(texts_of(values[column]))
        return {STUDENT: linear(sparse), TREES: forest(main(sparse))}

    own = {STUDENT: linear(rows, slice(None)), TREES: forest(main(rows), slice(None))}
    return RowExperts(own, predict, lambda values, where: features.transform(texts_of(values[column])), features)


def _of_inputs(pool: AnswerPool, gold: GoldRows) -> RowExperts:
    from scipy.sparse import csr_array

    columns = InputColumns.of(gold.values, "gold rows")
    inputs, classes = columns(gold.values, "gold rows"), len(pool.classes)
    folds = folds_of(gold.labels, groups=gold.design.groups)
    mean, scale = inputs.mean(axis=0), deviations(inputs)

    def sparse(matrix: np.ndarray) -> Any:
        return csr_array((matrix - mean) / scale)

    linear = fit_fold_linear(None, (sparse(inputs), gold.labels), folds, classes)
    forest = fit_fold_forests((inputs[:0], gold.labels[:0]), (inputs, gold.labels), folds, classes)

    def predict(values: Values, where: str) -> dict[str, Floats]:
        matrix = columns(values, where)
        return {STUDENT: linear(sparse(matrix)), TREES: forest(matrix)}

    own = {STUDENT: linear(sparse(inputs), slice(None)), TREES: forest(inputs, slice(None))}
    return RowExperts(own, predict, lambda values, where: sparse(columns(values, where)))
