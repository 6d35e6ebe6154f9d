"""Models of the rows themselves, trained on gold in five folds: experts beside the teacher, from texts or inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from wdistill.answers.input_columns import InputColumns, deviations, texts_of
from wdistill.answers.pool import AnswerPool, GoldRows
from wdistill.methods.crossfit import FoldForests, fit_fold_forests, folds_of
from wdistill.text.directions import DIRECTIONS, SAMPLE, Directions, directions
from wdistill.text.features import TextFeatures, fit_features
from wdistill.text.linear import FoldLinear, fit_fold_linear
from wdistill.weights.confidence import Floats

STUDENT, TREES = "student", "trees"  # a linear model, whose confidence the paper's weights look at too; a forest

Values = Mapping[str, pa.Array]  # texts or inputs, by column


class RowModels(Protocol):
    """Models of the rows, fitted to the gold rows; they can be sent to another process."""

    def rows(self, values: Values, where: str) -> Any: ...  # sparse features, as the linear model reads them

    def predict(
        self, values: Values, where: str
    ) -> dict[str, Floats]: ...  # (n, K) of each expert; the place is for messages

    @property
    def state(self) -> bytes: ...  # what tells them from others


@dataclass(frozen=True, eq=False)
class RowExperts:
    """Experts by name: what they say of the gold rows, out of fold, and the models that predict any others."""

    gold: Mapping[str, Floats]  # (m, K)
    models: RowModels


@dataclass(frozen=True, eq=False)
class TextModels:
    """A linear model of words and pairs of words, and a forest on their main directions."""

    column: str
    features: TextFeatures
    main: Directions
    linear: FoldLinear
    forest: FoldForests

    def rows(self, values: Values, where: str) -> Any:
        return self.features.transform(texts_of(values[self.column]))

    def predict(self, values: Values, where: str) -> dict[str, Floats]:
        sparse = self.rows(values, where)
        return {STUDENT: self.linear(sparse), TREES: self.forest(self.main(sparse))}

    @property
    def state(self) -> bytes:
        return _bytes_of(
            *self.features.to_arrays().values(), self.main.columns, self.main.vectors, *_coefficients(self.linear)
        )


@dataclass(frozen=True, eq=False)
class InputModels:
    """A linear model of standardized columns, and a forest."""

    columns: InputColumns
    mean: NDArray[np.float32]  # (d,)
    scale: NDArray[np.float32]  # (d,)
    linear: FoldLinear
    forest: FoldForests

    def rows(self, values: Values, where: str) -> Any:
        return _standardized(self.columns(values, where), self.mean, self.scale)

    def predict(self, values: Values, where: str) -> dict[str, Floats]:
        inputs = self.columns(values, where)
        return {STUDENT: self.linear(_standardized(inputs, self.mean, self.scale)), TREES: self.forest(inputs)}

    @property
    def state(self) -> bytes:
        return _bytes_of(self.mean, self.scale, *_coefficients(self.linear))


def _coefficients(linear: FoldLinear) -> list[NDArray[Any]]:
    return [values for model in linear.models for values in (model.coefficients, model.biases)]


def _bytes_of(*arrays: NDArray[Any]) -> bytes:
    return b"".join(np.ascontiguousarray(values).tobytes() for values in arrays)


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
    own = {STUDENT: linear(rows, slice(None)), TREES: forest(main(rows), slice(None))}
    return RowExperts(own, TextModels(column, features, main, linear, forest))


def _of_inputs(pool: AnswerPool, gold: GoldRows) -> RowExperts:
    columns = InputColumns.of(gold.values, "gold rows")
    inputs, classes = columns(gold.values, "gold rows"), len(pool.classes)
    folds = folds_of(gold.labels, groups=gold.design.groups)
    mean, scale = inputs.mean(axis=0), deviations(inputs)
    sparse = _standardized(inputs, mean, scale)
    linear = fit_fold_linear(None, (sparse, gold.labels), folds, classes)
    forest = fit_fold_forests((inputs[:0], gold.labels[:0]), (inputs, gold.labels), folds, classes)
    own = {STUDENT: linear(sparse, slice(None)), TREES: forest(inputs, slice(None))}
    return RowExperts(own, InputModels(columns, mean, scale, linear, forest))


def _standardized(inputs: NDArray[np.float32], mean: NDArray[np.float32], scale: NDArray[np.float32]) -> Any:
    from scipy.sparse import csr_array

    return csr_array((inputs - mean) / scale)
