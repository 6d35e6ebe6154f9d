"""Lightning: one step's loss is the weighted mean over its rows, in batches and processes of any size; weights follow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, TensorDataset

lightning = pytest.importorskip("lightning.pytorch")
from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402

from tests.adapters.digits import K, digits, targets_file  # noqa: E402
from tests.adapters.lightning_steps import (  # noqa: E402
    CLASSES,
    RATE,
    ROWS,
    ByPosition,
    Naive,
    Plain,
    Student,
    after,
    data_of,
    inputs,
    table_of,
    trainer,
)
from wdistill import debiased  # noqa: E402
from wdistill.adapters.lightning import RefreshWeights, WeightedStep  # noqa: E402
from wdistill.adapters.refresh import Gold, Pool, Refresh, predict, weights_of  # noqa: E402
from wdistill.adapters.table import TargetTable, read_targets  # noqa: E402
from wdistill.adapters.torch import WithTargets  # noqa: E402
from wdistill.core.errors import CheckpointError, ConfigError, InputError  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.* is deprecated:FutureWarning"),  # of torch, in Lightning
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),  # on machines with more cores
]
torch.set_num_threads(1)


def plain_step(steps: list[slice]) -> NDArray[np.float32]:
    """Plain gradient descent: each step on the mean over its rows of weight × soft cross-entropy."""
    module, table = Plain(), table_of()
    optimizer = torch.optim.SGD(module.parameters(), RATE)
    for rows in steps:
        optimizer.zero_grad()
        log = torch.log_softmax(module(inputs()[rows]).double(), 1)
        targets, weight = torch.tensor(table.targets[rows]), torch.tensor(table.weight[rows])
        (-(targets * log).sum(1) * weight).mean().backward()
        optimizer.step()
    return np.concatenate([value.detach().numpy().ravel() for value in module.parameters()])


EVERY = [slice(0, ROWS)]


@pytest.mark.parametrize(
    ("batch", "accumulation", "steps"),
    [
        (16, 1, EVERY),
        (4, 4, EVERY),
        (5, 4, EVERY),  # 5, 5, 5 and 1 row
        (3, 4, [slice(0, 12), slice(12, 16)]),  # four batches, then two: of 3 and 1 row
        (6, 1, [slice(0, 6), slice(6, 12), slice(12, 16)]),
    ],
)
def test_a_step_is_that_of_a_plain_loop(batch: int, accumulation: int, steps: list[slice]) -> None:
    found = after(Student(), DataLoader(data_of(), batch), accumulate_grad_batches=accumulation)
    np.testing.assert_allclose(found, plain_step(steps), rtol=0, atol=1e-6)


@pytest.mark.parametrize("batch", [5, 8], ids=["the last is short", "two of four are not there"])
def test_the_mean_of_each_batch_would_be_another_step(batch: int) -> None:
    naive = after(Naive(), DataLoader(data_of(), batch), accumulate_grad_batches=4)
    assert np.abs(naive - plain_step(EVERY)).max() > 1e-2


def test_the_loss_that_is_logged_is_the_mean_over_rows() -> None:
    """Of the batches before any step; 5, 5, 5 and 1 rows are 16."""
    module, runner = Student(), trainer(accumulate_grad_batches=4)
    log = torch.log_softmax(module(inputs()).double(), 1)
    wanted = (-(torch.tensor(table_of().targets) * log).sum(1) * torch.tensor(table_of().weight)).mean().item()
    runner.fit(module, DataLoader(data_of(), 5))
    assert float(runner.callback_metrics["train_loss"]) == pytest.approx(wanted, abs=1e-6)


def test_a_training_step_that_takes_the_place_of_ours_is_refused() -> None:
    """The naive student keeps the step that it had, and the weights change nothing."""

    def step(self: Any, batch: Any, batch_idx: int) -> torch.Tensor:
        x, targets, _ = batch
        return torch.nn.functional.cross_entropy(self(x), targets)

    naive = type("Naive", (Plain,), {"training_step": step})
    unweighted = after(naive(), DataLoader(data_of(), 16))
    assert np.abs(unweighted - plain_step(EVERY)).max() > 1e-2
    with pytest.raises(ConfigError, match=r"class Naive\(WeightedStep, LightningModule\)"):
        type("Naive", (WeightedStep, Plain), {"training_step": step})
    with pytest.raises(ConfigError, match="in this order"):
        type("Reversed", (Plain, WeightedStep), {})

    class Counting(Student):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return super().training_step(batch, batch_idx)

    assert np.array_equal(after(Counting(), DataLoader(data_of(), 16)), after(Student(), DataLoader(data_of(), 16)))


def test_two_processes_take_the_step_of_one_with_batches_of_any_size(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run = [*command, "-m", "tests.adapters.lightning_steps", str(tmp_path)]
    done = subprocess.run(run, cwd=Path(__file__).parents[2], capture_output=True, encoding="utf-8", timeout=400)
    assert done.returncode == 0, done.stderr
    found = {name: np.load(tmp_path / f"{name}.npy") for name in ("equal", "position", "uneven", "naive")}
    np.testing.assert_allclose(found["equal"], plain_step(EVERY), rtol=0, atol=1e-6)
    np.testing.assert_allclose(found["uneven"], plain_step(EVERY), rtol=0, atol=1e-6)
    assert np.abs(found["naive"] - plain_step(EVERY)).max() > 1e-3
    in_one = after(ByPosition(), DataLoader(TensorDataset(inputs()), ROWS))
    np.testing.assert_allclose(in_one, plain_step(EVERY), rtol=0, atol=1e-6)
    assert np.abs(found["position"] - plain_step(EVERY)).max() > 1e-3  # the sampler was replaced


def test_batches_that_cannot_be_counted_ahead_are_refused_where_they_accumulate() -> None:
    class Growing(BatchSampler):
        def __iter__(self) -> Any:
            return iter([[0], [1, 2, 3]])

    odd = DataLoader(data_of(), batch_sampler=Growing(SequentialSampler(range(16)), 4, False))
    with pytest.raises(ConfigError, match="batches of different sizes are accumulated"):
        after(Student(), odd, accumulate_grad_batches=2)
    with pytest.raises(ConfigError, match="batches that cannot be counted ahead"):
        after(Student(), Loaders(), accumulate_grad_batches=2)


class Loaders:
    """Batches of a user's own."""

    def __len__(self) -> int:
        return 4

    def __iter__(self) -> Any:
        return iter(DataLoader(data_of(), 4))


def test_a_loader_without_targets_is_refused() -> None:
    with pytest.raises(InputError, match="a batch without targets and weights"):
        after(Student(), DataLoader([(x, 1) for x in inputs()], 4))


# weights that follow the student ---------------------------------------------------------------------------------------


def gold_and_pool() -> tuple[Gold, Pool]:
    random = np.random.default_rng(5)
    gold = Gold(inputs(40), random.integers(0, CLASSES, 40), random.dirichlet(np.ones(CLASSES), 40))
    return gold, Pool(inputs(), table_of().targets)


def test_weights_are_those_of_the_core_after_every_second_epoch_and_in_checkpoints(tmp_path: Path) -> None:
    refresh, seen = Refresh(data_of(), debiased, *gold_and_pool()), []

    class Look(lightning.Callback):
        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            new = weights_of(debiased, pl_module, refresh.gold, refresh.pool).astype(np.float32)
            seen.append((refresh.data.weight.numpy().copy(), new))

    module, callbacks = Student(), [RefreshWeights(refresh, every=2), Look()]
    runner = trainer(max_epochs=3, callbacks=callbacks)
    runner.fit(module, DataLoader(refresh.data, 4))
    first = table_of().weight.astype(np.float32)
    assert np.array_equal(seen[0][0], first) and np.array_equal(seen[1][0], first)
    assert np.array_equal(*seen[2]) and not np.array_equal(seen[2][0], first)
    assert module.training

    runner.save_checkpoint(tmp_path / "last.ckpt")
    again = Refresh(data_of(), debiased, *gold_and_pool())
    later = trainer(max_epochs=3, callbacks=[RefreshWeights(again, every=2)])
    later.fit(Student(), DataLoader(again.data, 4), ckpt_path=tmp_path / "last.ckpt", weights_only=True)
    assert torch.equal(again.data.weight, refresh.data.weight)

    class Forgetful(RefreshWeights):
        """The naive callback: nothing of it is in the checkpoint."""

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            pass

    lost = Refresh(data_of(), debiased, *gold_and_pool())
    naive = trainer(max_epochs=3, callbacks=[Forgetful(lost, every=2)])
    with pytest.warns(UserWarning, match="RefreshWeights"):
        naive.fit(Student(), DataLoader(lost.data, 4), ckpt_path=tmp_path / "last.ckpt", weights_only=True)
    assert np.array_equal(lost.data.weight.numpy(), first)
    with pytest.raises(ConfigError, match="no schedule"):
        RefreshWeights(refresh, every=0)


@pytest.mark.filterwarnings("ignore:(?s).*callbacks used to create the checkpoint")
@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("saving", [{}, {"every_n_train_steps": 4}], ids=["by epochs", "by steps"])
def test_a_run_that_is_resumed_after_any_epoch_ends_with_the_bits_of_a_whole_one(
    every: int, saving: dict[str, Any], tmp_path: Path
) -> None:
    def run(*others: Any, **resumed: Any) -> NDArray[np.float32]:
        refresh, module = Refresh(data_of(), debiased, *gold_and_pool()), Student()
        callbacks = [RefreshWeights(refresh, every=every), *others]
        runner = trainer(max_epochs=4, callbacks=callbacks, enable_checkpointing=bool(others))
        runner.fit(module, DataLoader(refresh.data, 4), **resumed)
        return np.concatenate([value.detach().numpy().ravel() for value in module.parameters()])

    whole = run(ModelCheckpoint(tmp_path, save_top_k=-1, filename="{step}", **saving))
    for step in (4, 8, 12):
        assert np.array_equal(run(ckpt_path=tmp_path / f"step={step}.ckpt", weights_only=True), whole), step


def refresh_of(ids: Any) -> Refresh:
    """The rows of `table_of`, with these ids, in a table of their order."""
    table = table_of()
    gold, pool = gold_and_pool()
    data = WithTargets(inputs(), TargetTable(np.array(ids), table.targets, table.weight), ids)
    return Refresh(data, debiased, gold, pool)


def test_weights_of_a_table_in_another_order_are_refused(tmp_path: Path) -> None:
    """By position, as a naive callback sets them, every row has the weight of another one."""
    ids = [*"abcdefghijklmnop"]
    saved, other = refresh_of(ids), refresh_of(ids[::-1])
    callback = RefreshWeights(saved)
    runner = trainer(max_epochs=2, callbacks=[callback])
    runner.fit(Student(), DataLoader(saved.data, 4))
    runner.save_checkpoint(tmp_path / "last.ckpt")
    first = other.data.weight.clone()

    def resume(callback: RefreshWeights) -> None:
        loader = DataLoader(callback.refresh.data, 4)
        trainer(max_epochs=2, callbacks=[callback]).fit(
            Student(), loader, ckpt_path=tmp_path / "last.ckpt", weights_only=True
        )

    with pytest.raises(CheckpointError, match=r"(?s)weights of other rows.*the 16 ids of this one"):
        resume(RefreshWeights(other))
    assert torch.equal(other.data.weight, first) and saved.data.weight[0] != saved.data.weight[15]

    class ByPlace(RefreshWeights):
        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            self.refresh.data.weight.copy_(state_dict["weight"])

    ByPlace.__qualname__ = "RefreshWeights"  # the name in the checkpoint
    resume(ByPlace(other))
    place = other.data.table.rows(["a"])
    assert other.data.weight[place] == saved.data.weight[15] != saved.data.weight[saved.data.table.rows(["a"])]

    again = refresh_of(ids)
    resume(RefreshWeights(again))
    assert torch.equal(again.data.weight, saved.data.weight)


def test_a_state_that_does_not_say_whose_weights_it_has_is_refused() -> None:
    refresh = refresh_of(range(ROWS))
    callback, first = RefreshWeights(refresh), refresh.data.weight.clone()
    state = callback.state_dict()
    state["weight"] = torch.rand(ROWS)
    strange = [
        {},
        {"weight": state["weight"], "epoch": 1},  # as older versions wrote it
        {**state, "ids": None},
        {**state, "ids": state["ids"][:3]},
        {**state, "weight": torch.rand(ROWS + 1)},
        {**state, "weight": torch.rand(ROWS, 1)},
    ]
    for each in strange:
        with pytest.raises(CheckpointError, match="state of RefreshWeights: weights of other rows"):
            callback.load_state_dict(each)
        assert torch.equal(refresh.data.weight, first)
    callback.load_state_dict(state)
    assert torch.equal(refresh.data.weight, state["weight"])


class Digit(WeightedStep, lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = [nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, K)]
        self.net = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> Any:
        return self.net(x)

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), 0.01)


@pytest.mark.slow
def test_a_student_trains_from_a_file_with_weights_that_follow_it(tmp_path: Path) -> None:
    data, module = digits(), Digit()
    rows = np.concatenate([data.gold, data.pool])
    joined = WithTargets(data.images[rows], read_targets(targets_file(tmp_path)), data.ids[rows])
    gold = Gold(data.images[data.gold], data.labels[data.gold], data.teacher[data.gold])
    refresh = Refresh(joined, debiased, gold, Pool(data.images[data.pool], data.teacher[data.pool]), data.ids[data.pool])
    runner = trainer(max_epochs=8, callbacks=[RefreshWeights(refresh)], accumulate_grad_batches=2)
    runner.fit(module, DataLoader(joined, 16, shuffle=True))
    right = np.mean(predict(module, data.images[data.test]).argmax(1) == data.labels[data.test])
    assert right > 0.8, f"{right:.1%}"
    assert (joined.weight < 1).any()
