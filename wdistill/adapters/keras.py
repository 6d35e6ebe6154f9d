"""Keras 3: targets and weights for `model.fit`, batches whose weights can change, and a callback that re-estimates them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.adapters.extras import brought_by
from wdistill.core import checks
from wdistill.core.errors import bad_input, bad_value, wrong_type
from wdistill.weights.confidence import Floats
from wdistill.weights.evidence import Evidence
from wdistill.weights.rule import Rule

with brought_by("keras", __name__):
    import keras

    from wdistill.adapters.keras_loss import check_loss, predictions_of
    from wdistill.adapters.target_table import TargetTable, check_table

ROWS = 8  # that the loss of a model is tried on


def fit_arguments(model: Any, x: Any, ids: Any, table: TargetTable) -> dict[str, Any]:
    """x, y and sample_weight for `model.fit`: the rows of the table with these ids, one for every row of x.

    The loss of the compiled model is tried on a few rows, and refused where it is not the mean of weight × cross-entropy.
    """
    x, own = _arrays(x), check_table(table).select(ids)
    checks.same_length({"x": len(keras.tree.flatten(x)[0]), "ids": len(own)})
    check_loss(model, _rows_of(x, np.arange(min(ROWS, len(own)))), own.targets[:ROWS])
    return {"x": x, "y": own.targets, "sample_weight": own.weight}


class WeightedBatches(keras.utils.PyDataset):
    """Batches for `model.fit` whose weights may change from epoch to epoch; the order is a function of seed and epoch."""

    def __init__(self, model: Any, x: Any, ids: Any, table: TargetTable, batch_size: int = 32, seed: int = 0) -> None:
        super().__init__()
        arguments = fit_arguments(model, x, ids, table)
        self.x, self.targets, self.weight = arguments["x"], arguments["y"], arguments["sample_weight"].copy()
        self.ids, self.classes, self.seed, self.epoch = table.select(ids).ids, table.classes, seed, -1
        self.batch_size = _at_least_one(batch_size, "batch_size")
        self.on_epoch_end()

    def __len__(self) -> int:
        return -(-len(self.ids) // self.batch_size)

    def __getitem__(self, batch: int) -> tuple[Any, Floats, Floats]:
        rows = self._order[batch * self.batch_size : (batch + 1) * self.batch_size]
        return _rows_of(self.x, rows), self.targets[rows], self.weight[rows]

    def on_epoch_end(self) -> None:
        """Another order, for the next epoch."""
        self.epoch += 1
        self._order = np.random.default_rng([self.seed, self.epoch]).permutation(len(self.ids))


class RefreshWeights(keras.callbacks.Callback):
    """After every `every` epochs, a rule weighs the rows again, with the student as it is then.

    `teacher` has the teacher's predictions by id, as targets, of the gold rows and of those to weigh; a row without any,
    and a gold row, keeps its weight. `gold` is (ids, labels, inputs) of the gold rows; labels are class numbers, or names.
    """

    def __init__(
        self, batches: WeightedBatches, rule: Rule[...], teacher: TargetTable, gold: tuple[Any, Any, Any], every: int = 1
    ) -> None:
        super().__init__()
        self.batches, self.rule, self.every = batches, rule, _at_least_one(every, "every")
        gold_ids, labels, gold_inputs = gold
        self.gold, self.gold_inputs = check_table(teacher).select(gold_ids), _arrays(gold_inputs)
        self.gold_labels = checks.labels(labels, teacher.targets.shape[1], "gold", batches.classes)
        checks.same_length({"ids of gold": len(self.gold), "labels": len(self.gold_labels)})
        predicted = {str(key) for key in teacher.ids.tolist()} - {str(key) for key in self.gold.ids.tolist()}
        self.rows = np.flatnonzero([str(key) in predicted for key in batches.ids.tolist()])
        if not len(self.rows):
            found, expected = "no id of a batch's row, but for gold rows", "the teacher's predictions of the rows to weigh"
            raise bad_input("nothing to weigh again", "teacher", found, expected, "pass those of the unlabeled rows")
        self.teacher = teacher.select(batches.ids[self.rows])

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if (epoch + 1) % self.every == 0 and epoch + 1 < self.params["epochs"]:
            self.batches.weight[self.rows] = self.rule(self.evidence())

    def evidence(self) -> Evidence:
        """What the rule sees: predictions of teacher and student on gold rows and on those to weigh."""
        size, inputs = self.batches.batch_size, (self.gold_inputs, _rows_of(self.batches.x, self.rows))
        gold, pool = (predictions_of(self.model.predict(each, batch_size=size, verbose=0)) for each in inputs)
        return Evidence(self.gold_labels, self.gold.targets, gold, self.teacher.targets, pool)


def _arrays(x: Any) -> Any:
    """Inputs with the values of frames, which are indexed by column."""
    arrays = keras.tree.map_structure(lambda values: values.to_numpy() if hasattr(values, "to_numpy") else values, x)
    if not all(hasattr(values, "shape") for values in keras.tree.flatten(arrays)):
        raise wrong_type("lists of numbers", "x", x, "an array, or several by name", "pass np.array(x)")
    return arrays


def _rows_of(x: Any, rows: NDArray[Any]) -> Any:
    """Rows of inputs: an array, or several in a list or by name."""
    return keras.tree.map_structure(lambda values: values[rows], x)


def _at_least_one(value: Any, name: str) -> int:
    if not isinstance(value, int) or value < 1:
        raise bad_value("not a count", name, value, "a whole number of at least 1", "correct it")
    return value
