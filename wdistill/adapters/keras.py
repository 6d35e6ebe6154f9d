"""Keras 3: targets and weights for `model.fit`, batches whose weights can change, and a callback that re-estimates them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from wdistill.adapters.target_table import TargetTable
from wdistill.core import checks
from wdistill.core.errors import bad_input, bad_value, wrong_shape
from wdistill.weights.confidence import Floats
from wdistill.weights.equations import probabilities
from wdistill.weights.evidence import Evidence
from wdistill.weights.rule import Rule

ROWS = 8  # that the loss of a model is tried on


def fit_arguments(model: Any, x: Any, ids: Any, table: TargetTable) -> dict[str, Any]:
    """x, y and sample_weight for `model.fit`: the rows of the table with these ids, one for every row of x.

    The loss of the compiled model is tried on a few rows, and refused where it is not the mean of weight × cross-entropy.
    """
    x, own = _arrays(x), table.select(ids)
    checks.same_length({"x": len(keras.tree.flatten(x)[0]), "ids": len(own)})
    check_loss(model, _rows_of(x, np.arange(min(ROWS, len(own)))), own.targets[:ROWS])
    return {"x": x, "y": own.targets, "sample_weight": own.weight}


class WeightedBatches(keras.utils.PyDataset):
    """Batches for `model.fit` whose weights may change from epoch to epoch; the order is a function of seed and epoch."""

    def __init__(self, model: Any, x: Any, ids: Any, table: TargetTable, batch_size: int = 32, seed: int = 0) -> None:
        super().__init__()
        arguments = fit_arguments(model, x, ids, table)
        self.x, self.targets, self.weight = arguments["x"], arguments["y"], arguments["sample_weight"].copy()
        self.ids, self.seed, self.epoch = table.select(ids).ids, seed, -1
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
    and a gold row, keeps its weight. `gold` is (ids, labels, inputs) of the gold rows.
    """

    def __init__(
        self, batches: WeightedBatches, rule: Rule[...], teacher: TargetTable, gold: tuple[Any, Any, Any], every: int = 1
    ) -> None:
        super().__init__()
        self.batches, self.rule, self.every = batches, rule, _at_least_one(every, "every")
        gold_ids, self.gold_labels, self.gold_inputs = gold
        self.gold = teacher.select(gold_ids)
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


def predictions_of(output: Any) -> NDArray[np.floating]:
    """Probabilities (b, K) of what a model returns, be it probabilities or logits."""
    values = np.asarray(output)
    return values if _are_probabilities(values) else probabilities(values.astype(np.float64), "logits")


def check_loss(model: Any, x: Any, targets: Floats) -> None:
    """Raise where the model's loss is not the mean of weight × cross-entropy, whatever the cause: it is tried on rows.

    Two sets of weights give two losses. Terms without weights, such as regularization, cancel in their difference.
    """
    if not getattr(model, "compiled", False):
        raise bad_value("the model has no loss", "model", "not compiled", "a compiled model", "call model.compile first")
    output = model(x, training=False)
    values = None if isinstance(output, list | tuple | Mapping) else keras.ops.convert_to_numpy(output).astype(np.float64)
    if values is None or values.shape != targets.shape:
        found = "several outputs" if values is None else f"outputs {values.shape}"
        remedy = f"end the model in Dense({targets.shape[1]}), also where there are two classes"
        raise wrong_shape("outputs do not fit the targets", "model", found, f"one output {targets.shape}", remedy)
    scaled = np.log(np.clip(values, 1e-7, 1)) if _are_probabilities(values) else values  # as Keras clips
    row_losses = -(targets * log_softmax(scaled, axis=1)).sum(axis=1)
    first, second = np.linspace(0.2, 1, len(targets)), np.linspace(0.5, 0, len(targets))
    wanted = float(np.mean((first - second) * row_losses))
    try:
        losses = [model.compute_loss(x, targets, output, sample_weight=weight) for weight in (first, second)]
        changed = float(np.subtract(*(keras.ops.convert_to_numpy(loss) for loss in losses)))
    except ValueError:  # of a loss for other targets
        changed = float("nan")
    if not abs(changed - wanted) <= 1e-3 * float(np.mean(row_losses)):
        found = f"other weights change it by {changed:.4g}, not by {wanted:.4g}"
        expected = "the mean over rows of weight × cross-entropy with the targets, never divided by the sum of weights"
        raise bad_value("another loss than the weighted one", "model", found, expected, _remedy(model, values))


def _remedy(model: Any, output: NDArray[Any]) -> str:
    """What to change: the reduction, from_logits, or a loss of the user's own."""
    if type(model).compute_loss is not keras.Model.compute_loss:
        return "let its compute_loss hand sample_weight to the loss, which that of Keras' example, Distiller, does not"
    which = "from_logits=False" if _are_probabilities(output) else "from_logits=True"
    return f"compile with keras.losses.CategoricalCrossentropy({which}), as the model's outputs are; leave out its reduction"


def _are_probabilities(values: NDArray[Any]) -> bool:
    return bool((values >= 0).all() and np.allclose(values.sum(axis=1), 1, atol=0.01))


def _arrays(x: Any) -> Any:
    """Inputs with the values of frames, which are indexed by column."""
    return keras.tree.map_structure(lambda values: values.to_numpy() if hasattr(values, "to_numpy") else values, x)


def _rows_of(x: Any, rows: NDArray[Any]) -> Any:
    """Rows of inputs: an array, or several in a list or by name."""
    return keras.tree.map_structure(lambda values: values[rows], x)


def _at_least_one(value: Any, name: str) -> int:
    if not isinstance(value, int) or value < 1:
        raise bad_value("not a count", name, value, "a whole number of at least 1", "correct it")
    return value
