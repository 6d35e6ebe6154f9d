"""Batches in parts: the gradient of the whole batch, buffers moved once, and the same bits however a run was interrupted.

That the bits are those of any number of processes is tested in tests/scale/test_ranks.py.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.distilling import QUICK, Dropping, go, seeded, student, students, teacher
from tests.staging import MEASURED, RECIPE, N, Stopping, by_student, made, refreshed, stage, whole
from wdistill.core.errors import UnfinishedError, from_words, in_words
from wdistill.training import ranks
from wdistill.training.loop import run_stage
from wdistill.training.losses import weighted_loss
from wdistill.training.optimizer import Optimization
from wdistill.training.parts import PartedBatch, parts_of, sum_in_order
from wdistill.training.ranks import ALONE
from wdistill.training.stage import Callbacks, StoppedError
from wdistill.training.tensors import parameters

HERE = torch.device("cpu")


@given(st.integers(1, 40), st.integers(1, 9))
def test_parts_are_all_rows_in_their_order_and_none_has_a_single_one(rows: int, count: int) -> None:
    parts = parts_of(torch.arange(rows), count)
    assert torch.equal(torch.cat(parts), torch.arange(rows)) and len(parts) <= count
    assert rows == 1 or min(map(len, parts)) >= 2 or len(parts) == 1
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert len(parts) == count or count > rows // 2


def test_vectors_are_added_in_their_order() -> None:
    vectors = [torch.tensor([1e8]), torch.tensor([1.0]), torch.tensor([-1e8])]
    total = sum_in_order((each.clone() for each in vectors), 3, 1, ALONE, HERE)
    assert total.item() == ((vectors[0] + vectors[1]) + vectors[2]).item() == 0.0


def gradients(model: nn.Module, parts: int) -> tuple[float, dict[str, Tensor | None]]:
    """The loss and the gradients of one batch of all rows, in so many parts."""
    inputs, targets = made(hard=False).inputs.values, made(hard=False).targets
    weights = torch.linspace(0.1, 1, N)
    batch = PartedBatch(Optimization(model.train(), nn.Module(), RECIPE, "student"), ALONE, HERE)

    def loss_of(rows: Tensor) -> Tensor:
        return weighted_loss(model(inputs[rows]), targets[rows], weights[rows]) * (len(rows) / N)

    pieces = parts_of(torch.arange(N), parts)
    summed = batch.gradients(len(pieces), [lambda rows=rows: loss_of(rows) for rows in pieces], lambda: False)
    return summed.loss, {name: each.grad for name, each in model.named_parameters()}


@pytest.mark.parametrize("parts", [1, 2, 3, 25])
def test_the_gradient_is_that_of_the_whole_batch(parts: int) -> None:
    loss, found = gradients(seeded(student), parts)
    model = seeded(student)
    inputs, targets = made(hard=False).inputs.values, made(hard=False).targets
    wanted = weighted_loss(model(inputs), targets, torch.linspace(0.1, 1, N))
    wanted.backward()
    assert loss == pytest.approx(wanted.item(), rel=1e-6)
    torch.testing.assert_close(found, {name: each.grad for name, each in model.named_parameters()}, rtol=1e-5, atol=1e-7)


class Unused(nn.Module):
    """A layer that no forward pass reads, and buffers of all sorts."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.read, self.unread = nn.BatchNorm1d(6), nn.Linear(6, 3), nn.Linear(6, 3)
        self.register_buffer("third", torch.full((4,), 1 / 3))
        self.register_buffer("mask", torch.tensor([True, False]))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.read(self.norm(inputs))


def test_buffers_move_once_by_the_mean_of_the_parts_and_unused_parameters_have_no_gradient() -> None:
    model = Unused()
    _, found = gradients(model, 2)
    assert found["unread.weight"] is None and found["read.weight"] is not None
    assert model.norm.num_batches_tracked == 1
    assert (model.third == torch.full((4,), 1 / 3)).all()
    halves = made().inputs.values[: N // 2], made().inputs.values[N // 2 :]
    means = sum(0.9 * torch.zeros(6) + 0.1 * half.mean(0) for half in halves) / 2
    torch.testing.assert_close(model.norm.running_mean, means)


def test_a_stop_at_any_step_changes_no_bit_of_batches_in_parts(tmp_path: Path) -> None:
    def run(folder: Path, watch: Callbacks | None = None) -> None:
        place = stage(folder, 2, made(hard=False), every=1, parts=3, **refreshed(by_student))
        run_stage(place, seeded(Dropping), replace(RECIPE, checkpoint_seconds=1e9), MEASURED, watch)

    counting = Stopping(10**9)
    run(tmp_path / "reference", Callbacks(counting))
    for at in range(0, counting.asked, 4):
        with pytest.raises(StoppedError):
            run(tmp_path / str(at), Callbacks(Stopping(at)))
        run(tmp_path / str(at))
        assert whole(tmp_path / str(at)) == whole(tmp_path / "reference"), at


def test_parts_are_nearly_the_whole_batch_without_batch_norm_and_change_bits(tmp_path: Path) -> None:
    reports = [go(teacher, teacher, replace(QUICK, micro_batches=parts)) for parts in (None, 1, 4)]
    assert students(reports[0]) == students(reports[1]) != students(reports[2])
    one, four = (parameters(report.student) for report in (reports[1], reports[2]))
    torch.testing.assert_close(four, one, rtol=1e-4, atol=1e-5)


def test_errors_travel_in_words() -> None:
    error = from_words(in_words(UnfinishedError("out of memory", where="here", remedy="more")))
    assert isinstance(error, UnfinishedError) and error.where == "here" and error.remedy == "more"
    assert from_words(in_words(ZeroDivisionError("by zero"))).found == "ZeroDivisionError: by zero"


def test_memory_that_runs_out_in_an_exchange_is_told_from_a_process_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "_left", None)
    with pytest.raises(UnfinishedError, match="another process"), ALONE.alive():
        raise RuntimeError("gloo: connection closed by peer")
    with pytest.raises(UnfinishedError, match="memory ran out"), ALONE.alive():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
    with pytest.raises(UnfinishedError, match="memory ran out"), ALONE.alive():
        pytest.fail("a process that left an exchange enters no other")
