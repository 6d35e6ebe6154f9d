"""Plain PyTorch: targets and weights reach a loop as the table has them, whoever loads the rows, and weights follow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler, Subset, TensorDataset

from tests.adapters.digits import K, digits, targets_file
from wdistill import Evidence, debiased
from wdistill.adapters.refresh import Gold, Pool, Refresh, predict, weights_of
from wdistill.adapters.table import TargetTable, read_targets
from wdistill.adapters.torch import WithTargets, apart
from wdistill.core.errors import ConfigError, InputError
from wdistill.training.losses import weighted_loss
from wdistill.weights.equations import probabilities

N, WIDTH, CLASSES = 60, 5, 3


def table_of(rows: int = N, seed: int = 0) -> TargetTable:
    random = np.random.default_rng(seed)
    targets = random.dirichlet(np.ones(CLASSES), rows)
    return TargetTable(np.array([f"r{i}" for i in range(rows)]), targets, random.uniform(0, 1, rows))


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, CLASSES))


def inputs(rows: int, seed: int = 1) -> Tensor:
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(seed))


def teacher_of(rows: int, seed: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).dirichlet(np.ones(CLASSES), rows)


@pytest.fixture
def gold() -> Gold:
    return Gold(inputs(40, 2), np.random.default_rng(3).integers(0, CLASSES, 40), teacher_of(40, 4))


@pytest.fixture
def pool() -> Pool:
    return Pool(inputs(N), teacher_of(N, 5))


# joined by id ----------------------------------------------------------------------------------------------------------


@given(st.permutations(range(12)), st.sampled_from(["inputs", "pair", "names"]))
@settings(max_examples=25)
def test_every_item_has_the_targets_and_the_weight_of_its_id(order: list[int], kind: str) -> None:
    table, x = table_of(12), inputs(12)
    items = {
        "inputs": [x[i] for i in order],
        "pair": [(x[i], 7) for i in order],
        "names": [{"id": f"r{i}", "x": x[i]} for i in order],
    }[kind]
    data = WithTargets(items, table, [f"r{i}" for i in order])
    assert len(data) == 12
    for row, i in enumerate(order):
        item = data[row]
        given_x, targets, weight = (item["x"], item["targets"], item["weight"]) if kind == "names" else item
        assert torch.equal(given_x, x[i])
        assert np.array_equal(targets, table.targets[i].astype(np.float32)) and weight == np.float32(table.weight[i])
        assert kind != "names" or set(item) == {"x", "targets", "weight"}
    batch = next(iter(DataLoader(data, 12)))
    given_x, targets, weight = apart(batch)
    assert torch.equal(given_x["x"] if kind == "names" else given_x, x[list(order)])
    assert np.array_equal(targets.numpy(), table.targets[list(order)].astype(np.float32))
    assert weight.dtype == targets.dtype == torch.float32


def test_a_part_of_the_rows_and_a_row_twice_keep_their_targets() -> None:
    table = table_of()
    ids = ["r7", "r3", "r7"]
    data = WithTargets(inputs(3), table, ids)
    batch = next(iter(DataLoader(Subset(data, [2, 1]), 2)))
    assert np.array_equal(batch[1].numpy(), table.targets[[7, 3]].astype(np.float32))
    assert torch.equal(data[-1][1], data[0][1])


def test_targets_in_row_order_would_be_those_of_other_rows_and_a_sampler_does_not_matter() -> None:
    """The naive join: zip the table with the loader. It is wrong as soon as anything shuffles."""
    table, x = table_of(), inputs(N)
    torch.manual_seed(0)
    naive = torch.cat([batch for (batch,) in DataLoader(TensorDataset(x), 16, shuffle=True)])
    assert not torch.equal(naive, x), "the targets of row 0 would go to another row"
    data = WithTargets(TensorDataset(x), table, table.ids)
    for loader in (DataLoader(data, 16, shuffle=True), DataLoader(data, 16, sampler=RandomSampler(data, True))):
        for given_x, targets, weight in loader:
            rows = [int((x == row).all(1).nonzero()) for row in given_x]
            assert np.array_equal(targets.numpy(), table.targets[rows].astype(np.float32))
            assert np.array_equal(weight.numpy(), table.weight[rows].astype(np.float32))


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_that_persist_see_new_weights(context: str) -> None:
    table = table_of(8)
    data = WithTargets(inputs(8), table, table.ids)
    loader = DataLoader(data, 4, num_workers=1, persistent_workers=True, multiprocessing_context=context)
    before = torch.cat([weight for _, _, weight in loader])
    data.set_weights(np.linspace(0, 1, 8))
    after = torch.cat([weight for _, _, weight in loader])
    assert np.array_equal(before.numpy(), table.weight.astype(np.float32))
    assert np.array_equal(after.numpy(), np.linspace(0, 1, 8).astype(np.float32))


def test_a_copied_column_of_weights_would_stay_as_it_was_in_workers() -> None:
    """The naive refresh: an attribute of the Dataset. A worker that persists has its own."""

    class Naive(TensorDataset):
        weight: Any = np.zeros(4)

        def __getitem__(self, row: int) -> Any:
            return self.weight[row]

    data = Naive(inputs(4))
    loader = DataLoader(data, 4, num_workers=1, persistent_workers=True, multiprocessing_context="fork")
    next(iter(loader))
    data.weight = np.ones(4)
    assert next(iter(loader)).tolist() == [0.0] * 4


def test_new_weights_go_to_the_rows_of_their_ids_alone() -> None:
    table = table_of()
    data = WithTargets(inputs(N), table, table.ids)
    data.set_weights([0.25, 0.5], ["r9", "r2"])
    wanted = table.weight.astype(np.float32)
    wanted[[9, 2]] = 0.25, 0.5
    assert np.array_equal(data.weight.numpy(), wanted)


def test_what_would_be_silently_wrong_is_refused() -> None:
    table = table_of()
    with pytest.raises(InputError, match="rows without targets"):
        WithTargets(inputs(2), table, ["r1", "elsewhere"])
    with pytest.raises(InputError, match="differ in their number of rows"):
        WithTargets(inputs(3), table, ["r1", "r2"])
    with pytest.raises(ConfigError, match="not a map-style Dataset"):
        WithTargets(iter(inputs(3)), table, ["r1", "r2", "r3"])
    with pytest.raises(InputError, match="two answers to what to teach"):
        WithTargets([{"x": 1, "weight": 2}], table, ["r1"])[0]
    with pytest.raises(InputError, match="an item of another kind"):
        WithTargets([(1, 2, 3)], table, ["r1"])[0]
    for rows in (
        [[0.1, 0.2], [0.3, 0.4]],
        [[0.1], [0.3]],
        [(0.1, 0.2), (0.3, 0.4)],
        np.eye(2).tolist(),
        [(np.float32(1), 2)] * 2,
    ):
        with pytest.raises(InputError, match="pass the rows as one array"):
            WithTargets(rows, table, ["r1", "r2"])[0]
        whole = WithTargets(np.asarray(rows), table, ["r1", "r2"])
        assert np.array_equal(whole[1][0], rows[1])
    square = pd.DataFrame(np.eye(2))  # as many columns as rows: square[0] would be a column
    for frame in (square, square[0], pa.table({"a": [1, 2]})):
        with pytest.raises(ConfigError, match="a frame, not rows"):
            WithTargets(frame, table, ["r1", "r2"])
    data = WithTargets(inputs(N), table, table.ids)
    for wrong in (np.full(N, np.nan), np.full(N, -0.1), np.ones(N - 1)):
        with pytest.raises(InputError):
            data.set_weights(wrong)
    with pytest.raises(ConfigError, match="read_targets"):
        WithTargets(inputs(2), "targets.parquet", ["r1", "r2"])
    for batch in ((inputs(2), torch.zeros(2)), {"x": inputs(2), "targets": torch.zeros(2, 3)}):
        with pytest.raises(InputError, match="a batch without targets and weights"):
            apart(batch)


# weights from a network ------------------------------------------------------------------------------------------------


def by_hand(net: nn.Module, gold: Gold, pool: Pool) -> NDArray[np.float64]:
    """The core, on the predictions of the network in eval mode."""
    net.eval()
    with torch.no_grad():
        student = [probabilities(net(x).float().numpy(), "logits") for x in (gold.inputs, pool.inputs)]
    net.train()
    return debiased(Evidence(gold.labels, gold.teacher, student[0], pool.teacher, student[1]))


def test_weights_are_those_of_the_core_bit_for_bit(gold: Gold, pool: Pool) -> None:
    net = network()
    weights = weights_of(debiased, net, gold, pool)
    assert weights.dtype == np.float64 and np.array_equal(weights, by_hand(net, gold, pool))
    assert (weights < 1).any(), "a test with something to tell"
    assert np.array_equal(weights_of(lambda e: np.full(len(e.teacher), 0.5), net, gold, pool), np.full(N, 0.5))


def forms_of(x: Tensor) -> Iterator[Any]:
    yield x.numpy()
    yield x.double()
    yield x.clone().requires_grad_()
    yield TensorDataset(x)
    yield TensorDataset(x, torch.zeros(len(x)))
    yield DataLoader(TensorDataset(x), 128)
    yield DataLoader(TensorDataset(x, torch.zeros(len(x))), 128, num_workers=1)
    table = TargetTable(np.arange(len(x)), np.full((len(x), 2), 0.5), np.ones(len(x)))
    yield WithTargets(TensorDataset(x), table, table.ids)


def test_inputs_may_be_anything_that_keeps_the_order(gold: Gold, pool: Pool) -> None:
    net = network()
    wanted = weights_of(debiased, net, gold, pool)
    for number, form in enumerate(forms_of(pool.inputs)):
        found = weights_of(debiased, net, gold, Pool(form, torch.tensor(pool.teacher, requires_grad=True)))
        assert np.array_equal(found, wanted), number


def test_inputs_by_name_are_arguments_by_name() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(WIDTH, CLASSES)

        def forward(self, x: Tensor, shift: Tensor) -> dict[str, Tensor]:
            return {"logits": self.layer(x) + shift}

    net, x, shift = Named(), inputs(9), inputs(9)[:, :1]
    wanted = probabilities((net.layer(x) + shift).detach().numpy(), "logits")
    rows = [{"x": a, "shift": b.tolist(), "label": 1, "id": "a"} for a, b in zip(x, shift, strict=True)]
    for form in ({"x": x, "shift": shift, "labels": torch.zeros(9)}, DataLoader(rows, 9, collate_fn=joined)):
        assert np.array_equal(predict(net, form), wanted)


def joined(rows: list[dict[str, Any]]) -> dict[str, Tensor]:
    return {name: torch.stack([torch.as_tensor(row[name]) for row in rows]) for name in ("x", "shift")}


def test_the_network_is_left_as_it_was(gold: Gold, pool: Pool) -> None:
    """`net.train()` afterwards would thaw a frozen batch norm, and reading in train mode would move its statistics."""
    net = network()
    net[1].eval()
    state = {name: value.clone() for name, value in net.state_dict().items()}
    weights_of(debiased, net, gold, pool)
    assert net.training and not net[1].training and net[3].training
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in state.items())
    assert all(parameter.grad is None for parameter in net.parameters())
    with pytest.raises(RuntimeError):
        predict(net, inputs(3)[:, :2])
    assert net.training and not net[1].training
    net.eval()
    assert net.train()[1].training, "the naive way back thaws it"


def test_in_train_mode_the_predictions_would_be_others(pool: Pool) -> None:
    """The naive reading: dropout and batch statistics make other predictions."""
    net = network()
    naive = probabilities(net(pool.inputs).detach().numpy(), "logits")
    assert not np.allclose(naive, predict(net, pool.inputs), atol=1e-3)


def test_gold_labels_of_a_refresh_may_be_names_as_a_frame_has_them(gold: Gold, pool: Pool) -> None:
    names, net = np.array(["no", "so", "yes"]), network()
    table = TargetTable(table_of().ids, table_of().targets, table_of().weight, tuple(names))
    said, numbered = (WithTargets(inputs(N), table, table.ids) for _ in range(2))
    frames = pd.DataFrame(gold.inputs.numpy()), pd.Series(names[gold.labels]), pd.DataFrame(gold.teacher)
    Refresh(said, debiased, Gold(*frames), pool)(net)
    Refresh(numbered, debiased, gold, pool)(net)
    assert torch.equal(said.weight, numbered.weight) and (said.weight < 1).any()
    with pytest.raises(InputError, match=r"gold\.labels: labels that are not in the class list"):
        Refresh(said, debiased, Gold(gold.inputs, np.full(40, "maybe"), gold.teacher), pool)


def test_a_network_in_bfloat16_reads_too(gold: Gold, pool: Pool) -> None:
    net = network().to(torch.bfloat16)
    soft = Gold(gold.inputs, torch.tensor(gold.labels), torch.tensor(gold.teacher))
    weights = weights_of(debiased, net, soft, pool)
    with torch.no_grad():
        logits = [net.eval()(x.bfloat16()).float().numpy() for x in (gold.inputs, pool.inputs)]
    student = [probabilities(each, "logits") for each in logits]
    wanted = debiased(Evidence(gold.labels, gold.teacher, student[0], pool.teacher, student[1]))
    assert np.array_equal(weights, wanted)


def test_a_loader_that_shuffles_is_refused_since_its_weights_would_be_those_of_other_rows(gold: Gold, pool: Pool) -> None:
    net, rows = network(), TensorDataset(pool.inputs)
    torch.manual_seed(0)
    shuffled = torch.cat([batch for (batch,) in DataLoader(rows, 16, shuffle=True)])
    naive = weights_of(debiased, net, gold, Pool(shuffled, pool.teacher))
    assert not np.array_equal(naive, weights_of(debiased, net, gold, pool))
    for loader in (DataLoader(rows, 16, shuffle=True), DataLoader(rows, batch_sampler=[[1, 0], [2]])):
        with pytest.raises(ConfigError, match="whose weights are these"):
            weights_of(debiased, net, gold, Pool(loader, pool.teacher))
    with pytest.raises(InputError, match="differ in their number of rows"):
        weights_of(debiased, net, gold, Pool(DataLoader(rows, 16, drop_last=True), pool.teacher))


def test_a_refresh_weighs_the_pool_and_leaves_gold(gold: Gold, pool: Pool) -> None:
    net, table = network(), table_of(N + 5)
    data = WithTargets(inputs(N + 5), table, table.ids)
    Refresh(data, debiased, gold, pool, table.ids[:N])(net)
    assert np.array_equal(data.weight[:N].numpy(), by_hand(net, gold, pool).astype(np.float32))
    assert np.array_equal(data.weight[N:].numpy(), table.weight[N:].astype(np.float32))
    with pytest.raises(InputError, match="differ in their number of rows") as error:
        Refresh(data, debiased, gold, pool)
    assert "ids=" in error.value.remedy and "60 and 65 rows" in error.value.found
    with pytest.raises(InputError, match="60 and 59 rows"):
        Refresh(data, debiased, gold, pool, table.ids[: N - 1])


# the loop of the documentation ---------------------------------------------------------------------------------------


def test_the_loss_is_the_mean_of_weight_times_cross_entropy_and_its_gradient_likewise() -> None:
    """By hand in float64; divided by the sum of weights, as the naive code does, it would be another."""
    table, net = table_of(), network().eval()
    given_x, targets, weight = next(iter(DataLoader(WithTargets(inputs(N), table, table.ids), 32)))
    loss = weighted_loss(net(given_x), targets, weight)
    found = torch.autograd.grad(loss, list(net.parameters()))
    wide = network().eval().double()
    log = torch.log_softmax(wide(given_x.double()), 1)
    rows = -(torch.tensor(table.targets[:32]) * log).sum(1) * torch.tensor(table.weight[:32])
    wanted = torch.autograd.grad(rows.sum() / 32, list(wide.parameters()), retain_graph=True)
    loss, rows = loss.detach(), rows.detach()
    assert abs(float(loss) - float(rows.sum() / 32)) < 1e-6
    assert all(torch.allclose(a.double(), b, rtol=0, atol=1e-6) for a, b in zip(found, wanted, strict=True))
    with pytest.raises(InputError, match=r"(?s)the student has other classes.*\(32, 2\).*\(32, 3\)"):
        weighted_loss(net(given_x)[:, :2], targets, weight)
    naive = rows.sum() / table.weight[:32].sum()
    assert abs(float(naive) - float(loss)) > 0.1


LOOP = """
import torch
from torch.utils.data import DataLoader
from wdistill import debiased
from wdistill.adapters.refresh import Gold, Pool, Refresh
from wdistill.adapters.table import read_targets
from wdistill.adapters.torch import WithTargets
from wdistill.training.losses import weighted_loss

table = read_targets("targets.parquet")
data = WithTargets(images, table, ids)  # any map-style Dataset, and the ids of its rows
refresh = Refresh(data, debiased, gold, pool, pool_ids)  # optional: weights follow the student
optimizer = torch.optim.Adam(net.parameters(), 0.01)
for epoch in range(10):
    for x, targets, weight in DataLoader(data, 32, shuffle=True):
        optimizer.zero_grad()
        weighted_loss(net(x), targets, weight).backward()
        optimizer.step()
    refresh(net)
"""


def test_the_docs_show_this_loop() -> None:
    page = Path(__file__).parents[2] / "docs" / "adapters.md"
    assert LOOP.strip() in page.read_text()


def student() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, K)]
    return nn.Sequential(*layers)


def right(net: nn.Module) -> float:
    data = digits()
    return float(np.mean(predict(net, data.images[data.test]).argmax(1) == data.labels[data.test]))


@pytest.mark.slow
def test_the_loop_of_the_docs_trains_a_student_from_a_file_with_weights_that_follow_it(tmp_path: Path) -> None:
    data, path = digits(), targets_file(tmp_path)
    rows = np.concatenate([data.gold, data.pool])
    names = {
        "net": student(),
        "images": data.images[rows],
        "ids": data.ids[rows],
        "PATH": str(path),
        "gold": Gold(data.images[data.gold], data.labels[data.gold], data.teacher[data.gold]),
        "pool": Pool(data.images[data.pool], data.teacher[data.pool]),
        "pool_ids": data.ids[data.pool],
    }
    torch.manual_seed(0)
    exec(LOOP.replace('"targets.parquet"', "PATH"), names)
    assert right(names["net"]) > 0.8
    weights = names["data"].weight.numpy()
    in_table = read_targets(path).weight
    assert (weights != in_table.astype(np.float32)).any(), "weights were refreshed"
    assert (weights[names["table"].rows(data.ids[data.gold])] == 1).all(), "but not those of gold rows"
