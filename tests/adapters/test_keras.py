"""Keras: targets and weights reach the loss as they are in the table, change while it trains, and traps are errors."""

from __future__ import annotations

import os

os.environ.setdefault("KERAS_BACKEND", "torch")

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray

from wdistill import Evidence, debiased
from wdistill.adapters.table import TargetTable, read_targets
from wdistill.core.errors import ConfigError, InputError
from wdistill.training.losses import weighted_loss
from wdistill.weights.equations import probabilities

keras = pytest.importorskip("keras")
from wdistill.adapters.keras import RefreshWeights, WeightedBatches, fit_arguments  # noqa: E402

# Keras' own variables and torch's NumPy conversion
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning")

torch.set_num_threads(1)
N, WIDTH, K = 60, 5, 3
Loss = keras.losses.CategoricalCrossentropy


def made(seed: int = 0) -> tuple[NDArray[np.float32], TargetTable]:
    """Inputs in an order of their own, and a table in another."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(N, WIDTH)).astype(np.float32)
    table = TargetTable(np.arange(N), random.dirichlet(np.ones(K), N), random.uniform(0.1, 1, N))
    return x, table


def network(loss: Any = None, softmax: bool = False, optimizer: Any = "sgd") -> Any:
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(8, activation="relu"), keras.layers.Dense(K, activation="softmax" if softmax else None)]
    model = keras.Sequential([keras.Input((WIDTH,)), *layers])
    model.compile(optimizer, loss=loss or Loss(from_logits=not softmax))
    return model


def gradient(model: Any, x: Any, y: Any, weight: Any) -> tuple[float, list[Any]]:
    """The loss of a batch as `fit` computes it, and its gradient."""
    model.zero_grad()
    loss = model.compute_loss(x, y, model(x, training=True), sample_weight=weight, training=True)
    loss.backward()
    return float(loss.detach()), [variable.value.grad.clone() for variable in model.trainable_variables]


def reference(model: Any, table: TargetTable, x: Any, softmax: bool) -> tuple[float, list[Any]]:
    """The same with the core's loss."""
    model.zero_grad()
    output = model(x)
    logits = output.log() if softmax else output
    loss = weighted_loss(logits, torch.tensor(table.targets).float(), torch.tensor(table.weight).float())
    loss.backward()
    return float(loss.detach()), [variable.value.grad.clone() for variable in model.trainable_variables]


def test_targets_and_weights_are_those_of_the_table_bit_for_bit() -> None:
    x, table = made()
    ids = np.random.default_rng(1).permutation(N)
    arguments = fit_arguments(network(), x[ids], ids, table)
    assert np.array_equal(arguments["y"], table.targets[ids]) and np.array_equal(
        arguments["sample_weight"], table.weight[ids]
    )
    assert arguments["x"][3] is not None and np.array_equal(arguments["x"], x[ids])
    seen = list(WeightedBatches(network(), x[ids], ids, table, batch_size=7))
    rows = np.concatenate([batch[0] for batch in seen])
    places = np.array([int(np.flatnonzero((x == row).all(1))[0]) for row in rows])
    assert sorted(places) == list(range(N)) and list(places) != list(ids)
    assert np.array_equal(np.concatenate([batch[1] for batch in seen]), table.targets[places])
    assert np.array_equal(np.concatenate([batch[2] for batch in seen]), table.weight[places])


@pytest.mark.parametrize("softmax", [False, True])
def test_loss_and_gradient_of_a_batch_are_the_references(softmax: bool) -> None:
    x, table = made()
    model = network(softmax=softmax)
    arguments = fit_arguments(model, x[:16], np.arange(16), table)
    found, gradients = gradient(model, x[:16], arguments["y"], arguments["sample_weight"])
    wanted, others = reference(model, table.select(np.arange(16)), x[:16], softmax)
    assert found == pytest.approx(wanted, abs=1e-6)
    assert all(torch.allclose(*pair, rtol=0, atol=1e-6) for pair in zip(gradients, others, strict=True))


def test_the_reduction_that_divides_by_the_sum_of_weights_is_wrong_and_refused() -> None:
    x, table = made()
    naive = network(Loss(from_logits=True, reduction="mean_with_sample_weight"))
    found, gradients = gradient(naive, x, table.targets, table.weight)
    wanted, others = reference(naive, table, x, softmax=False)
    assert abs(found - wanted) > 0.1  # the naive code trains on
    assert max(float((a - b).abs().max()) for a, b in zip(gradients, others, strict=True)) > 0.01
    with pytest.raises(ConfigError, match="leave out its reduction"):
        fit_arguments(naive, x, table.ids, table)
    with pytest.raises(ConfigError, match="another loss"):
        WeightedBatches(naive, x, table.ids, table)
    with pytest.raises(ConfigError, match="leave out its reduction"):
        fit_arguments(network(Loss(from_logits=True, reduction="sum")), x, table.ids, table)


@pytest.mark.parametrize(("softmax", "from_logits"), [(True, True), (False, False)])
def test_logits_taken_for_probabilities_or_the_reverse_are_wrong_and_refused(softmax: bool, from_logits: bool) -> None:
    x, table = made()
    naive = network(Loss(from_logits=from_logits), softmax)
    found, _ = gradient(naive, x, table.targets, table.weight)
    assert not abs(found - reference(naive, table, x, softmax)[0]) < 0.01
    with pytest.raises(ConfigError, match=f"from_logits={not softmax}"):
        fit_arguments(naive, x, table.ids, table)


class Distiller(keras.Model):
    """The loss of Keras' example of knowledge distillation: it takes sample_weight and does not look at it."""

    def __init__(self, student: Any) -> None:
        super().__init__()
        self.student, self.kl = student, keras.losses.KLDivergence()

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        return self.kl(y, keras.ops.softmax(y_pred, axis=1))

    def call(self, x: Any) -> Any:
        return self.student(x)


def test_the_distiller_of_keras_own_example_ignores_weights_and_is_refused() -> None:
    x, table = made()
    distiller = Distiller(network())
    distiller.compile("sgd")
    losses = [gradient(distiller, x, table.targets, weight)[0] for weight in (table.weight, 0 * table.weight)]
    assert losses[0] == losses[1]  # rows of weight 0 are learned from
    with pytest.raises(ConfigError, match=r"(?s)change it by 0, .*sample_weight"):
        fit_arguments(distiller, x, table.ids, table)


@pytest.mark.parametrize("loss", ["binary_crossentropy", "sparse_categorical_crossentropy", "mse"])
def test_losses_of_other_targets_are_refused(loss: str) -> None:
    x, table = made()
    with pytest.raises(ConfigError, match=r"CategoricalCrossentropy\(from_logits=False\)"):
        fit_arguments(network(loss, softmax=True), x, table.ids, table)


def test_regularization_does_not_matter_and_names_of_losses_do_as_well() -> None:
    x, table = made()
    model = keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(K, "softmax", kernel_regularizer="l2")])
    model.compile("sgd", "categorical_crossentropy", metrics=["accuracy"])
    fit_arguments(model, x, table.ids, table)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "float64"])
@pytest.mark.parametrize("activation", [None, "softmax"])
def test_other_precisions_are_taken(dtype: str, activation: str | None) -> None:
    x, table = made()
    model = keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(K, activation, dtype=dtype)])
    model.compile("sgd", Loss(from_logits=activation is None))
    fit_arguments(model, x, table.ids, table)


def test_inputs_by_name_are_taken() -> None:
    x, table = made()
    left, right = keras.Input((2,), name="left"), keras.Input((3,), name="right")
    both = keras.layers.Dense(K)(keras.layers.Concatenate()([left, right]))
    model = keras.Model({"left": left, "right": right}, both)
    model.compile("sgd", Loss(from_logits=True))
    batches = WeightedBatches(model, {"left": x[:, :2], "right": x[:, 2:]}, table.ids, table, batch_size=40)
    assert [len(batch[0]["right"]) for batch in batches] == [40, 20]
    model.fit(batches, verbose=0)


@pytest.mark.parametrize("columns", [[0, 1, 2, 3, 4], list("abcde")])
def test_of_a_frame_the_values_are_taken(columns: list[Any]) -> None:
    x, table = made()
    frame = pd.DataFrame(x, columns=columns)
    model = network()
    assert np.array_equal(fit_arguments(model, frame, table.ids, table)["x"], x)
    batches = WeightedBatches(model, frame, table.ids, table, batch_size=16, seed=1)
    wanted = WeightedBatches(model, x, table.ids, table, batch_size=16, seed=1)
    for found, batch in zip(list(batches), list(wanted), strict=True):
        assert all(map(np.array_equal, found, batch))


def test_predictions_become_the_teacher_of_a_refresh_as_the_documentation_has_it() -> None:
    x, table = made()
    ids, labels, inputs, teacher = gold_of()
    said = read_targets({"id": teacher.ids, "targets": teacher.targets})
    assert np.array_equal(said.ids, teacher.ids) and np.array_equal(said.targets, teacher.targets)
    model = network()
    batches = WeightedBatches(model, x, table.ids, table)
    model.fit(batches, epochs=2, verbose=0, callbacks=[RefreshWeights(batches, debiased, said, (ids, labels, inputs))])
    assert not np.array_equal(batches.weight, table.weight)


def test_smoothed_targets_are_other_targets() -> None:
    x, table = made()
    with pytest.raises(ConfigError, match="another loss"):
        fit_arguments(network(Loss(from_logits=True, label_smoothing=0.1)), x, table.ids, table)


def test_what_does_not_fit_is_said() -> None:
    x, table = made()
    with pytest.raises(InputError, match="rows without targets"):
        fit_arguments(network(), x, table.ids + 1, table)
    with pytest.raises(InputError, match="60 and 59 rows"):
        fit_arguments(network(), x, table.ids[:-1], table)
    single = keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(1, activation="sigmoid")])
    with pytest.raises(ConfigError, match=r"model\.compile"):
        fit_arguments(single, x, table.ids, table)
    single.compile("sgd", "binary_crossentropy")
    with pytest.raises(InputError, match=r"Dense\(3\)"):
        fit_arguments(single, x, table.ids, table)
    with pytest.raises(ConfigError, match="read_targets"):
        fit_arguments(network(), x, table.ids, "targets.parquet")
    with pytest.raises(ConfigError, match="lists of numbers"):
        fit_arguments(network(), x.tolist(), table.ids, table)
    with pytest.raises(ConfigError, match="batch_size"):
        WeightedBatches(network(), x, table.ids, table, batch_size=0)


# weights that change ---------------------------------------------------------------------------------------------------


class Recorded(keras.Sequential):
    """Keeps the weights that every step was given."""

    def train_step(self, data: Any) -> Any:
        self.seen = [*getattr(self, "seen", []), data[2].detach().cpu().numpy()]
        return super().train_step(data)


def recorded() -> Any:
    keras.utils.set_random_seed(0)
    model = Recorded([keras.Input((WIDTH,)), keras.layers.Dense(K)])
    model.compile("sgd", Loss(from_logits=True))
    return model


def halving(weight: NDArray[np.float64]) -> Any:
    def halve(epoch: int, logs: Any) -> None:
        weight[:] *= 0.5

    return keras.callbacks.LambdaCallback(on_epoch_end=halve)


def test_keras_may_copy_an_array_of_weights_but_batches_see_other_weights() -> None:
    """Whether it copies depends on the backend, on the type of numbers and on such options as validation_split."""
    x, table = made()
    naive, arguments = recorded(), fit_arguments(recorded(), x, table.ids, table)
    halve = halving(arguments["sample_weight"])
    naive.fit(**arguments, epochs=2, batch_size=N, validation_split=0.1, verbose=0, callbacks=[halve])
    assert np.array_equal(np.sort(naive.seen[0]), np.sort(naive.seen[1]))  # the second epoch: as if nothing had changed
    model = recorded()
    batches = WeightedBatches(model, x, table.ids, table, batch_size=N)
    model.fit(batches, epochs=3, verbose=0, callbacks=[halving(batches.weight)])
    sums = [each.sum() for each in model.seen]
    assert sums == pytest.approx([sums[0], sums[0] / 2, sums[0] / 4]) and sums[0] == pytest.approx(table.weight.sum())


def test_epochs_differ_in_order_and_a_seed_repeats_them() -> None:
    x, table = made()
    orders = []
    for _ in range(2):
        model = recorded()
        batches = WeightedBatches(model, x, table.ids, table, batch_size=16, seed=3)
        model.fit(batches, epochs=2, verbose=0, shuffle=False)
        orders.append([np.concatenate(model.seen[:4]), np.concatenate(model.seen[4:])])
    assert all(map(np.array_equal, *orders)) and not np.array_equal(orders[0][0], orders[0][1])
    assert np.array_equal(np.sort(orders[0][0]), np.sort(orders[0][1]))


def gold_of(seed: int = 5, m: int = 30) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float32], TargetTable]:
    """Ids, labels and inputs of gold rows, and the teacher's predictions of these and of the pool."""
    random = np.random.default_rng(seed)
    ids = np.arange(1000, 1000 + m)
    predictions = random.dirichlet(np.full(K, 0.3), N + m)
    labels = random.integers(0, K, m)
    return (
        ids,
        labels,
        random.normal(size=(m, WIDTH)).astype(np.float32),
        TargetTable(np.concatenate([ids, np.arange(N)]), predictions, np.ones(N + m)),
    )


@pytest.mark.parametrize("softmax", [False, True])
def test_refreshed_weights_are_the_rules_bit_for_bit_and_gold_rows_keep_theirs(softmax: bool) -> None:
    x, table = made()
    ids, labels, inputs, teacher = gold_of()
    both = TargetTable(
        np.concatenate([table.ids, ids]), np.concatenate([table.targets, np.eye(K)[labels]]), np.ones(N + len(ids))
    )
    model, before = network(softmax=softmax, optimizer=keras.optimizers.SGD(0.1)), []
    batches = WeightedBatches(model, np.concatenate([x, inputs]), both.ids, both, batch_size=16)
    refresh = RefreshWeights(batches, debiased, teacher, (ids, labels, inputs), every=2)

    def look(epoch: int, logs: Any) -> None:  # before the callback: what the student says at the end of the epoch
        outputs = [model.predict(rows, batch_size=16, verbose=0) for rows in (inputs, x)]
        said = outputs if softmax else [probabilities(each.astype(np.float64), "logits") for each in outputs]
        evidence = Evidence(labels, teacher.select(ids).targets, said[0], teacher.select(table.ids).targets, said[1])
        before.append((batches.weight.copy(), debiased(evidence)))

    model.fit(batches, epochs=5, verbose=0, callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=look), refresh])
    known = [weight for weight, _ in before]
    assert (known[0] == 1).all() and (known[1] == 1).all()
    assert np.array_equal(known[2][:N], before[1][1]) and np.array_equal(known[4][:N], before[3][1])
    assert (known[2][:N] < 1).any() and not np.array_equal(known[2], known[4])
    assert all((weight[N:] == 1).all() for weight in known)
    assert np.array_equal(batches.weight, known[4])  # not after the last epoch


def test_a_refresh_without_rows_to_weigh_is_refused() -> None:
    x, table = made()
    ids, labels, inputs, teacher = gold_of()
    batches = WeightedBatches(network(), x, table.ids, table)
    with pytest.raises(InputError, match="nothing to weigh again"):
        RefreshWeights(batches, debiased, teacher.select(ids), (ids, labels, inputs))
    with pytest.raises(ConfigError, match="every"):
        RefreshWeights(batches, debiased, teacher, (ids, labels, inputs), every=0)
    with pytest.raises(InputError, match="30 and 29 rows"):
        RefreshWeights(batches, debiased, teacher, (ids, labels[1:], inputs))


def test_gold_labels_may_be_names_as_a_frame_has_them() -> None:
    x, table = made()
    ids, labels, inputs, teacher = gold_of()
    names = np.array(["no", "so", "yes"])
    named = TargetTable(table.ids, table.targets, table.weight, tuple(names))
    batches = WeightedBatches(network(), x, table.ids, named)
    refresh = RefreshWeights(batches, debiased, teacher, (ids, pd.Series(names[labels]), pd.DataFrame(inputs)))
    assert np.array_equal(refresh.gold_labels, labels) and np.array_equal(refresh.gold_inputs, inputs)
    with pytest.raises(InputError, match="not in the class list"):
        RefreshWeights(batches, debiased, teacher, (ids, np.full(len(ids), "maybe"), inputs))


# end to end ------------------------------------------------------------------------------------------------------------


def digits() -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = (x[order] / 16).astype(np.float32), y[order]
    return {"gold": (x[:60], y[:60]), "pool": (x[60:1200], y[60:1200]), "test": (x[1200:], y[1200:])}


def student() -> Any:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(10)])
    model.compile(keras.optimizers.Adam(0.01), Loss(from_logits=True))
    return model


def test_three_lines_from_parquet_to_a_student_that_beats_labels_alone(tmp_path: Path) -> None:
    data = digits()
    (gold_x, gold_y), (pool_x, pool_y), (test_x, test_y) = data["gold"], data["pool"], data["test"]
    random = np.random.default_rng(2)
    noisy = np.where(random.random(len(pool_y)) < 0.25, random.integers(0, 10, len(pool_y)), pool_y)
    targets = 0.8 * np.eye(10)[noisy] + 0.02
    weight = np.where(noisy == pool_y, 1.0, 0.3)
    ids = [f"p{i}" for i in range(len(pool_x))]
    file = pa.table({"id": ids, "targets": pa.array(list(targets)), "weight": weight})
    pq.write_table(file.take(random.permutation(len(ids))), tmp_path / "targets.parquet")
    gold = {"id": [f"g{i}" for i in range(len(gold_x))], "label": gold_y.tolist()}
    x = np.concatenate([gold_x, pool_x])

    def accuracy(fit: Callable[[Any], None]) -> float:
        model = student()
        fit(model)
        return float((model.predict(test_x, verbose=0).argmax(1) == test_y).mean())

    def distilled(model: Any) -> None:
        table = read_targets(tmp_path / "targets.parquet", gold=gold)
        model.fit(**fit_arguments(model, x, [*gold["id"], *ids], table), epochs=15, verbose=0)

    labels_alone = accuracy(lambda model: model.fit(gold_x, np.eye(10)[gold_y], epochs=200, verbose=0))
    assert accuracy(distilled) > labels_alone + 0.05
