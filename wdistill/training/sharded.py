"""One student on several processes, each of which holds a share of its parameters, gradients and optimizer state (FSDP2).

A layer's parameters are gathered when it is about to compute, and dropped after it: no process ever holds all of them on
its device. The leader makes the model whole, in main memory, and again at the end, to write its parameters; in between
checkpoints are written and read shard by shard, and so another number of processes can resume. Every process computes its
parts of a batch, as in parts.py, but PyTorch adds the gradients, in an order of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save as save_state
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from wdistill.core import store
from wdistill.core.errors import UnfinishedError, WdistillError, bad_value, from_words, in_words
from wdistill.runs.checkpoints import Unnamed
from wdistill.training import tensors
from wdistill.training.batch import Batch
from wdistill.training.inputs import first_row
from wdistill.training.optimizer import Optimization
from wdistill.training.packing import packed, unpacked
from wdistill.training.parted import Follower, PartedEpochs
from wdistill.training.parts import Summed
from wdistill.training.placed import blocks_of
from wdistill.training.predict import device_for, is_out_of_memory
from wdistill.training.ranks import Ranks, ranks
from wdistill.training.shard_files import ShardReader, ShardWriter


@dataclass(frozen=True, eq=False)
class Skeleton:
    """A model without its parameters: all that the other processes need to hold their shards of it."""

    model: nn.Module  # on torch's meta device
    buffers: Mapping[str, Tensor]


@contextmanager
def in_shards(model: nn.Module, device: torch.device) -> Iterator[nn.Module]:
    """While the block runs: a model in shards on the devices of all processes; the leader has it whole."""
    team = ranks()
    skeleton = Skeleton(_without_parameters(model), dict(model.named_buffers()))
    team.tell("shard", packed(skeleton, type(model).__name__), device.type)
    yield _assembled(lambda: skeleton, device, team, model.state_dict())
    team.tell("release")


def shards_of(content: bytes, kind: str, team: Ranks) -> nn.Module:
    """A follower's shards of a model, as the leader sent word of it."""
    return _assembled(lambda: unpacked(content), device_for(kind), team, {})


def _without_parameters(model: nn.Module) -> nn.Module:
    known: dict[int, Any] = {id(each): each.to("meta") for each in model.buffers()}
    for each in model.parameters():
        known[id(each)] = nn.Parameter(each.detach().to("meta"), each.requires_grad)
    return copy.deepcopy(model, known)


def _assembled(
    read: Callable[[], Skeleton], device: torch.device, team: Ranks, parameters: Mapping[str, Tensor]
) -> nn.Module:
    """Every process' shards of a model, of which the leader has all parameters; an error is one of all processes."""
    failed: Exception | None = None
    with team.alive():
        mesh = init_device_mesh(device.type, (team.size,))
    try:
        skeleton = read()
        model = skeleton.model
        for layer in (*blocks_of(model), model):
            shards = fully_shard(layer, mesh=mesh, reshard_after_forward=True)
            shards.set_gradient_divide_factor(1.0)
            shards.set_force_sum_reduction_for_comms(True)  # every part's loss is its share of the batch's mean
    except Exception as error:
        failed = bad_value(
            "the student cannot be sharded",
            "student",
            f"{type(error).__name__}: {error}",
            "a module that torch.distributed.fsdp.fully_shard takes",
            "change it, or leave sharded out",
        )
    for said in filter(None, team.agree(failed and in_words(failed))):
        raise from_words(said)
    model.to_empty(device=device)
    with team.alive():
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        set_model_state_dict(model, dict(parameters), options=options)
    for name, buffer in model.named_buffers():
        buffer.copy_(skeleton.buffers[name])
    return model


class ShardedBatch:
    """The gradients of batches that are cut into parts, each process' shard of them where its optimizer looks for it."""

    def __init__(self, optimization: Optimization, team: Ranks, device: torch.device) -> None:
        self.optimization, self.team, self.device = optimization, team, device
        self.buffers = [buffer for buffer in optimization.model.buffers() if buffer.dtype != torch.bool]

    def numbers(self, parts: int) -> range:
        """Of the parts that this process computes. All compute as many: beyond the last, one that counts for nothing."""
        return range(self.team.rank, -(-parts // self.team.size) * self.team.size, self.team.size)

    def gradients(self, parts: int, losses: Iterable[Callable[[], Tensor]], stopping: Callable[[], bool]) -> Summed:
        """From the losses of this process' parts, each its share of the batch's mean."""
        before = [buffer.clone() for buffer in self.buffers]
        moved, total = [torch.zeros_like(each, dtype=torch.float64) for each in before], 0.0
        self.optimization.zero()
        for number, loss in zip(self.numbers(parts), losses, strict=True):
            self._put(before)
            try:
                value = loss() * float(number < parts)
                self.optimization.backward(value)
            except _ToldError as told:
                raise told.error from None
            except Exception as error:  # the others wait in the middle of their pass
                raise self.team.leave(self._in_pass(error)) from error
            if number < parts:
                total += float(value.detach())
                for sums, buffer, start in zip(moved, self.buffers, before, strict=True):
                    sums += buffer.double() - start.double()
        last = torch.tensor([total, float(stopping())], dtype=torch.float64, device=self.device)
        sums = torch.cat([*(each.reshape(-1) for each in moved), last])
        with self.team.alive():
            dist.all_reduce(sums)
        places = torch.split(sums, [*(each.numel() for each in moved), 2])
        ends = [start.double() + each.view_as(start) / parts for start, each in zip(before, places, strict=False)]
        kinds = zip(ends, before, strict=True)
        self._put([end if start.is_floating_point() else end.round() for end, start in kinds])
        return Summed(float(places[-1][0]), bool(places[-1][1] > 0))

    def _in_pass(self, error: Exception) -> Exception:
        """What an error means: after out of memory the run can resume."""
        if not is_out_of_memory(error):
            return error
        where, found, expected = f"the {self.optimization.name}", "a part of a batch", "a part that fits"
        remedy = "free memory or start more processes, and run again to resume; or a new run with a smaller batch_size"
        return UnfinishedError("out of memory", where=where, found=found, expected=expected, remedy=remedy)

    def _put(self, values: Sequence[Tensor]) -> None:
        for buffer, value in zip(self.buffers, values, strict=True):
            buffer.copy_(value)


class _ToldError(Exception):
    """An error that all processes know of already."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class ShardedEpochs(PartedEpochs):
    """The epochs of one training, in which all processes step by their shards."""

    def lead(self, model: nn.Module) -> None:
        """Make the followers ready; they have their shards of the model."""
        self.ranks.tell("train-shards", packed((self._for_others(), self.recipe), self.stage.name))
        for error in filter(None, self.ranks.agree(None)):
            raise from_words(error)

    def _batch_of(self, optimization: Optimization) -> ShardedBatch:
        return ShardedBatch(optimization, self.ranks, self.device)

    def _batches(self, mine: Sequence[Tensor]) -> Iterator[Batch]:
        """All processes read before any computes: an error while one reads is one of all."""
        batches = super()._batches(mine)
        for _ in mine:
            failed, batch = None, None
            try:
                batch = next(batches)
            except Exception as error:
                failed = error
            for said in filter(None, self.ranks.agree(failed and in_words(failed))):
                raise _ToldError(failed or from_words(said))
            assert batch is not None
            yield batch


class ShardedFollower(Follower):
    """A follower's part of a training whose model is in shards."""

    def __init__(self, content: bytes, model: nn.Module, team: Ranks) -> None:
        stage, recipe = unpacked(content)
        first_row(stage.examples.inputs)  # it can be read here, too
        self.resources, self.ranks = ExitStack(), team
        self.optimization = Optimization(model, nn.Module(), recipe, stage.name)
        self.epochs: PartedEpochs = ShardedEpochs(stage, recipe, self.optimization, team)
        self.shards = Shards(self.optimization)

    def keep(self, step: str, *values: Any) -> None:
        """What the leader says is to be done with the shards; it knows of errors."""
        shards = self.shards
        steps: dict[str, Callable[..., Any]] = {
            "choose": shards.choose,
            "save": shards.save,
            "load": shards.load,
            "whole": shards.whole,
        }
        with suppress(WdistillError):
            steps[step](*values)


class Shards:
    """What is kept of one training: every process has its shards of it. A step is one of all, and the leader says which."""

    def __init__(self, optimization: Optimization) -> None:
        self.optimization, self.team = optimization, ranks()
        self.chosen: dict[str, Tensor] = {}

    def choose(self) -> None:
        """Remember the parameters as they are now."""
        self._say("choose")
        self.chosen = {name: value.detach().clone() for name, value in self._parameters().items()}

    def save(self, name: str, folder: Path) -> dict[str, Unnamed]:
        """Write all that a checkpoint keeps, each process a file of its own, under temporary names."""
        self._say("save", name, folder)
        writer, failed, written = ShardWriter(), None, None
        file = f"{name}.{self.team.rank + 1}-of-{self.team.size}.safetensors"
        self._check_finite()
        with _told(self.team):
            save_state(self._content(), storage_writer=writer, process_group=self.team.group, no_dist=self.team.size == 1)
        try:
            temporary = store.temporary_name(folder / file)
            with store.synced(temporary) as output:
                output.write(writer.content)
            written = temporary, (len(writer.content), store.digest(writer.content))
        except Exception as error:
            failed = error
        said = self.team.agree((file, written, failed and in_words(failed)))
        if failed is not None:
            raise failed
        for _, _, words in said:
            if words:
                raise from_words(words)
        return {shard: each for shard, each, _ in said}

    def load(self, paths: Sequence[Path]) -> None:
        """Go back to what as many processes, or more or fewer, have saved."""
        self._say("load", paths)
        names = ShardReader(paths).read_metadata().state_dict_metadata
        self.chosen = {name: torch.empty_like(value) for name, value in self._parameters().items()}
        groups = self.optimization.optimizer.param_groups
        trained = [parameter for group in groups for parameter in group["params"]]
        slots = {}
        for name in (name for name in names if name.startswith("optimizer/")):
            parameter, size = trained[int(name.split("/")[1])], getattr(names[name], "size")  # noqa: B009 (of a tensor)
            slots[name] = torch.empty_like(parameter) if size == parameter.shape else torch.zeros(size)
        content = {**self._content(), **{name: value.detach() for name, value in slots.items()}}
        with _told(self.team):
            load(content, storage_reader=ShardReader(paths), process_group=self.team.group, no_dist=self.team.size == 1)
        tensors.load_optimizer(self.optimization.optimizer, tensors.under("optimizer/", content))

    def whole(self, chosen: bool) -> dict[str, Tensor]:
        """The leader: all parameters and buffers as they are now, or as they were chosen, gathered one after the other."""
        self._say("whole", chosen)
        if not chosen:
            self._check_finite()
        whole: dict[str, Tensor] = {}
        with self.team.alive():
            for name, value in (self.chosen if chosen else self._parameters()).items():
                gathered = value.full_tensor() if isinstance(value, DTensor) else value
                if not self.team.rank:
                    whole[name] = gathered.detach().to("cpu", copy=True)
        return whole

    def _say(self, step: str, *values: Any) -> None:
        if not self.team.rank:
            self.team.tell("shards", step, *values)

    def _parameters(self) -> dict[str, Tensor]:
        """Parameters and buffers, under the names of `tensors.parameters`."""
        model = self.optimization.model
        state = model.state_dict()
        return state | {tensors.HIDDEN + name: buffer for name, buffer in model.named_buffers() if name not in state}

    def _content(self) -> dict[str, Tensor]:
        return (
            tensors.prefixed("model/", self._parameters())
            | tensors.prefixed("optimizer/", tensors.optimizer_state(self.optimization.optimizer))
            | tensors.prefixed("chosen/", self.chosen)
        )

    def _check_finite(self) -> None:
        """Refuse to keep NaN or infinity in the shard of any process."""
        failed = None
        try:
            trained = self.optimization.model.named_parameters()
            own = {name: each.to_local() if isinstance(each, DTensor) else each for name, each in trained}
            tensors.check_finite(own, self.optimization.name)
        except Exception as error:
            failed = in_words(error)
        for said in filter(None, self.team.agree(failed)):
            raise from_words(said)


@contextmanager
def _told(team: Ranks) -> Iterator[None]:
    """While a distributed checkpoint is written or read: an error of one process is one of all."""
    try:
        with team.alive():
            yield
    except CheckpointException as error:
        rank, (cause, _) = next(iter(error.failures.items()))
        found = f"process {rank} (from 0): {type(cause).__name__}: {cause}"[:500]
        expected, remedy = "shards that can be written and read", "run again to resume"
        raise UnfinishedError(
            "a checkpoint in shards failed", where="sharded student", found=found, expected=expected, remedy=remedy
        ) from None
