"""For whoever trains with skorch: a NeuralNetClassifier whose training rows have targets and weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from wdistill.adapters.extras import brought_by
from wdistill.core.errors import bad_value, wrong_type

with brought_by("skorch", __name__):
    from skorch import NeuralNetClassifier
    from skorch.callbacks import Callback
    from torch import Tensor, nn
    from torch.utils.data import Dataset

    from wdistill.adapters.refresh import Refresh
    from wdistill.adapters.target_table import TARGETS, WEIGHT
    from wdistill.adapters.torch import WithTargets, inputs_of
    from wdistill.training.batch import logits_of
    from wdistill.training.losses import weighted_loss


class WeightedClassifier(NeuralNetClassifier):
    """`fit(data)` on a `WithTargets`: the mean over rows of weight × soft cross-entropy. The module returns logits.

    `predict_proba` and `predict` are those of skorch: probabilities, and class numbers. No rows are held out of training
    unless `train_split` says so: pass skorch's predefined_split of gold rows with labels.
    """

    def __init__(
        self, module: Any, *args: Any, criterion: Any = nn.CrossEntropyLoss, train_split: Any = None, **kwargs: Any
    ) -> None:
        if criterion is not nn.CrossEntropyLoss:
            expected, remedy = "the cross-entropy with the targets", "leave it out; the module returns logits"
            raise bad_value("a loss beside that of the targets", "criterion", criterion, expected, remedy)
        super().__init__(module, *args, criterion=criterion, train_split=train_split, **kwargs)

    def fit(self, X: WithTargets, y: None = None, **fit_params: Any) -> WeightedClassifier:  # noqa: N803
        return super().fit(_pairs(X, y), None, **fit_params)  # type: ignore[no-any-return]

    def partial_fit(self, X: Any, y: None = None, classes: Any = None, **fit_params: Any) -> WeightedClassifier:  # noqa: N803
        data = X if isinstance(X, Pairs) else _pairs(X, y)
        return super().partial_fit(data, None, classes, **fit_params)  # type: ignore[no-any-return]

    @property
    def classes_(self) -> Any:
        """The class numbers, which no labels tell: one for each column of the targets."""
        if self.classes is None and not hasattr(self, "n_classes_"):
            raise AttributeError("classes_: not known before fit; after load_params, pass them: classes=range(K)")
        return np.asarray(self.classes) if self.classes is not None else np.arange(self.n_classes_)

    def check_data(self, X: Any, y: Any) -> None:  # noqa: N803
        if isinstance(X, Pairs):
            self.n_classes_ = X.data.targets.shape[1]

    def get_loss(self, y_pred: Any, y_true: Any, X: Any = None, training: bool = False) -> Any:  # noqa: N803
        if isinstance(y_true, Tensor):  # labels of rows that were held out
            return super().get_loss(y_pred, y_true, X=X, training=training)
        targets, weight = (values.to(self.device) for values in y_true)
        return weighted_loss(logits_of(y_pred), targets, weight)


class RefreshWeights(Callback):
    """Weights that are estimated again from the student, after every so many epochs."""

    def __init__(self, refresh: Refresh, every: int = 1) -> None:
        if every < 1:
            raise bad_value("no schedule", "every", every, "a number of epochs, 1 or more", "leave it out for 1")
        self.refresh, self.every = refresh, every

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        if len(net.history) % self.every == 0:
            self.refresh(net.module_)


class Pairs(Dataset[Any]):
    """Items as skorch wants them: inputs, and a pair of targets and weight in the place of a label."""

    def __init__(self, data: WithTargets) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, row: int) -> Any:
        item = self.data[row]
        inputs = inputs_of(item)
        return inputs, (item[TARGETS], item[WEIGHT]) if isinstance(item, Mapping) else item[1:]


def _pairs(data: Any, labels: Any) -> Pairs:
    if labels is not None or not isinstance(data, WithTargets):
        expected, remedy = "a WithTargets, which has targets and weights", "fit(WithTargets(dataset, table, ids))"
        raise wrong_type("training rows without targets", "fit", labels if labels is not None else data, expected, remedy)
    return Pairs(data)
