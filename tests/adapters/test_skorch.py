"""skorch: the classifier's loss is the weighted mean over the rows of a batch, and its weights follow the student."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

skorch = pytest.importorskip("skorch")
from sklearn.base import clone  # noqa: E402
from skorch.helper import predefined_split  # noqa: E402

from tests.adapters.digits import K, digits, targets_file  # noqa: E402
from wdistill import debiased  # noqa: E402
from wdistill.adapters.refresh import Gold, Pool, Refresh, weights_of  # noqa: E402
from wdistill.adapters.skorch import RefreshWeights, WeightedClassifier  # noqa: E402
from wdistill.adapters.table import TargetTable, read_targets  # noqa: E402
from wdistill.adapters.torch import WithTargets  # noqa: E402
from wdistill.core.errors import ConfigError  # noqa: E402

torch.set_num_threads(1)
ROWS, WIDTH, CLASSES, RATE = 16, 5, 3, 1.0


def table_of() -> TargetTable:
    random = np.random.default_rng(0)
    return TargetTable(np.arange(ROWS), random.dirichlet(np.ones(CLASSES), ROWS), random.uniform(0, 1, ROWS))


def inputs(rows: int = ROWS) -> torch.Tensor:
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(1))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU(), nn.Linear(8, CLASSES))


class Named(nn.Module):
    """The same network, which takes its inputs by name."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def forward(self, x: torch.Tensor) -> Any:
        return self.net(x)


def classifier(module: Any = None, **settings: Any) -> WeightedClassifier:
    plain = {"optimizer": torch.optim.SGD, "lr": RATE, "max_epochs": 1, "batch_size": ROWS, "verbose": 0}
    return WeightedClassifier(network() if module is None else module, **{**plain, **settings})


def step() -> tuple[float, torch.Tensor]:
    """Loss and parameters of one step of plain gradient descent on the mean of weight × soft cross-entropy."""
    net, table = network(), table_of()
    log = torch.log_softmax(net(inputs()).double(), 1)
    loss = (-(torch.tensor(table.targets) * log).sum(1) * torch.tensor(table.weight)).mean()
    loss.backward()
    torch.optim.SGD(net.parameters(), RATE).step()
    return float(loss.detach()), nn.utils.parameters_to_vector(net.parameters()).detach()


@pytest.mark.parametrize("kind", ["rows", "names"])
def test_a_step_is_that_of_a_plain_loop_whatever_the_order_of_the_rows(kind: str) -> None:
    order = np.random.default_rng(1).permutation(ROWS)
    x = inputs()[order.tolist()]
    rows: Any = x if kind == "rows" else [{"x": row} for row in x]
    net = classifier(Named() if kind == "names" else None).fit(WithTargets(rows, table_of(), order))
    loss, wanted = step()
    assert net.history[-1, "train_loss"] == pytest.approx(loss, abs=1e-6)
    assert torch.allclose(nn.utils.parameters_to_vector(net.module_.parameters()).detach(), wanted, rtol=0, atol=1e-6)
    assert net.classes_.tolist() == [0, 1, 2] and net.predict(inputs()).shape == (ROWS,)
    np.testing.assert_allclose(net.predict_proba(inputs()).sum(1), 1, atol=1e-6)
    assert not hasattr(clone(net), "module_")


def test_without_the_adapter_the_loss_would_not_see_the_weights() -> None:
    """The naive fit: targets as y. skorch has no place for weights, and takes their plain mean."""
    table = table_of()
    targets = torch.tensor(table.targets).float()
    settings = {"lr": RATE, "max_epochs": 1, "batch_size": ROWS, "verbose": 0, "train_split": None}
    naive = skorch.NeuralNet(network(), criterion=nn.CrossEntropyLoss, **settings).fit(inputs(), targets)
    assert abs(naive.history[-1, "train_loss"] - step()[0]) > 0.1
    classes = (
        skorch.NeuralNetClassifier(network(), criterion=nn.CrossEntropyLoss, **settings).fit(inputs(), targets).classes_
    )
    assert len(classes) == ROWS * CLASSES, "every probability is taken for a class"


def test_the_default_loss_would_take_the_logarithm_of_logits() -> None:
    settings = {"lr": RATE, "max_epochs": 1, "batch_size": ROWS, "verbose": 0, "train_split": None}
    naive = skorch.NeuralNetClassifier(network(), **settings).fit(inputs(), torch.tensor(table_of().labels))
    assert np.isnan(naive.history[-1, "train_loss"])
    assert np.isfinite(classifier().fit(WithTargets(inputs(), table_of(), range(ROWS))).history[-1, "train_loss"])


def test_rows_that_are_held_out_are_judged_by_their_labels() -> None:
    data = WithTargets(inputs(), table_of(), range(ROWS))
    held = TensorDataset(inputs(7), torch.tensor([0, 1, 2, 0, 1, 2, 0]))
    net = classifier(train_split=predefined_split(held)).fit(data)
    with torch.no_grad():
        wanted = nn.functional.cross_entropy(net.module_(inputs(7)), held.tensors[1]).item()
    assert net.history[-1, "valid_loss"] == pytest.approx(wanted, abs=1e-6)
    assert 0 <= net.history[-1, "valid_acc"] <= 1


def test_what_would_be_silently_another_loss_is_refused() -> None:
    with pytest.raises(ConfigError, match="criterion: a loss beside"):
        classifier(criterion=nn.NLLLoss)
    for wrong in ((inputs(), None), (WithTargets(inputs(), table_of(), range(ROWS)), np.zeros(ROWS))):
        with pytest.raises(ConfigError, match="training rows without targets"):
            classifier().fit(*wrong)
    with pytest.raises(ConfigError, match="no schedule"):
        RefreshWeights(None, every=0)  # type: ignore[arg-type]


def test_classes_of_loaded_parameters_are_those_that_are_passed(tmp_path: Path) -> None:
    trained = classifier().fit(WithTargets(inputs(), table_of(), range(ROWS)))
    trained.save_params(f_params=tmp_path / "student.pt")
    net, named = (classifier(**known).initialize() for known in ({}, {"classes": range(CLASSES)}))
    for each in (net, named):
        each.load_params(f_params=tmp_path / "student.pt")
        assert np.array_equal(each.predict(inputs()), trained.predict(inputs()))
    assert np.array_equal(named.classes_, trained.classes_)
    with pytest.raises(AttributeError, match="pass them"):
        net.classes_  # noqa: B018


def test_weights_are_those_of_the_core_after_every_second_epoch() -> None:
    random = np.random.default_rng(5)
    gold = Gold(inputs(40), random.integers(0, CLASSES, 40), random.dirichlet(np.ones(CLASSES), 40))
    data = WithTargets(inputs(), table_of(), range(ROWS))
    refresh = Refresh(data, debiased, gold, Pool(inputs(), table_of().targets))
    net = classifier(callbacks=[RefreshWeights(refresh, every=2)]).fit(data)
    assert np.array_equal(data.weight.numpy(), table_of().weight.astype(np.float32))
    net.partial_fit(data)
    wanted = weights_of(debiased, net.module_, gold, refresh.pool).astype(np.float32)
    assert np.array_equal(data.weight.numpy(), wanted) and (wanted < 1).any()


@pytest.mark.slow
def test_a_student_trains_from_a_file(tmp_path: Path) -> None:
    data = digits()
    rows = np.concatenate([data.gold, data.pool])
    joined = WithTargets(data.images[rows], read_targets(targets_file(tmp_path)), data.ids[rows])
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, K))
    settings = {
        "optimizer": torch.optim.Adam,
        "lr": 0.01,
        "max_epochs": 8,
        "batch_size": 32,
        "iterator_train__shuffle": True,
    }
    net = classifier(module, **settings).fit(joined)
    right = net.score(data.images[data.test], data.labels[data.test])
    assert right > 0.8, f"{right:.1%}"
