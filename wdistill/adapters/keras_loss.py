"""What a model of Keras is trained to minimise: tried on a few rows, and refused where it is not the weighted loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from wdistill.core.errors import bad_value, wrong_shape
from wdistill.weights.confidence import Floats
from wdistill.weights.equations import probabilities


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
