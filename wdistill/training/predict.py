"""Predictions of a model on a split: in eval mode, without augmentation, on a fixed grid of batches."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from wdistill.core.errors import ConfigError, NumericalError, UnfinishedError, bad_value, from_words, in_words, not_one_of
from wdistill.methods.decision import reachable
from wdistill.methods.metric import Metric
from wdistill.training.batch import Batch, call, described, logits_of, rows_in
from wdistill.training.inputs import Inputs
from wdistill.training.packing import packed, unpacked
from wdistill.training.ranks import Ranks, is_launched, local_rank, ranks
from wdistill.training.stage import StoppedError, told
from wdistill.weights.equations import probabilities

GRID = 128  # rows of a batch: the bits of a prediction may depend on it, so it never changes


def predict(
    model: nn.Module,
    inputs: Inputs,
    precision: str = "float32",
    rows: slice | None = None,
    on_batch: Callable[[int], None] = lambda rows: None,
) -> NDArray[np.float32]:
    """Logits (n, K), or those of `rows`, which start at a multiple of GRID; on_batch(b) follows every batch of b rows.

    Of a stack of students: (S, n, K).
    """
    part, team = rows or slice(0, len(inputs)), ranks()
    if team.size == 1:
        return _checked(_logits(model, inputs, precision, part, on_batch), model, part)
    if is_sharded(model):
        team.tell("predict", packed((None, inputs, precision, part), type(model).__name__))
        for error in filter(None, team.agree(None)):
            raise from_words(error)
        own = _logits_together(model, inputs, precision, part, on_batch, team)
        return _checked(_joined(own, part, team), model, part)
    team.tell("predict", packed((model, inputs, precision, part), type(model).__name__))
    failed, own = _attempt(lambda: _logits(model, inputs, precision, _share(part, team.rank, team.size), on_batch))
    said = team.agree(failed and in_words(failed))
    if failed is not None:
        raise failed
    for error in filter(None, said):
        raise told(error)
    return _checked(_joined(own, part, team), model, part)


def is_sharded(model: nn.Module) -> bool:
    """Whether every process of the run has a share of the model: its passes are those of all (sharded.py)."""
    fsdp = sys.modules.get("torch.distributed.fsdp")  # not imported for this: where it is not loaded, nothing is in shards
    return fsdp is not None and isinstance(model, fsdp.FSDPModule)


def predict_share(content: bytes, team: Ranks, stopping: Callable[[], bool], in_shards: nn.Module | None) -> None:
    """A follower's share of a prediction, for the leader; `in_shards`: the model that it has a share of."""

    def on_batch(rows: int) -> None:
        if stopping():
            raise StoppedError("stopped while a model predicted rows")

    failed, sent = _attempt(lambda: unpacked(content))
    if failed is None and sent[0] is None:
        if not any(team.agree(None)) and in_shards is not None:
            _, inputs, precision, part = sent
            failed, logits = _attempt(lambda: _logits_together(in_shards, inputs, precision, part, on_batch, team))
            if failed is None and len(logits):
                team.send(logits)
        return

    def compute() -> NDArray[np.float32] | None:
        if failed is not None:
            raise failed
        model, inputs, precision, part = sent
        own, device = _share(part, team.rank, team.size), device_for(device_of(model).type)
        return _logits(model.to(device), inputs, precision, own, on_batch) if _rows(own) else None

    wrong, logits = _attempt(compute)
    if not any(team.agree(wrong and in_words(wrong))) and logits is not None:
        team.send(logits)


def _attempt(compute: Callable[[], Any]) -> tuple[Exception | None, Any]:
    """An error, or a value."""
    try:
        return None, compute()
    except Exception as error:
        return error, None


def _share(part: slice, rank: int, size: int) -> slice:
    """Whole cells of the grid, for each process in their order; the first has the most."""
    cells = -(-_rows(part) // GRID)
    first, last = (part.start + GRID * -(-cells * place // size) for place in (rank, rank + 1))
    return slice(min(first, part.stop), min(last, part.stop))


def _rows(part: slice) -> int:
    return int(part.stop - part.start)


def _joined(own: NDArray[np.float32], part: slice, team: Ranks) -> NDArray[np.float32]:
    """The leader's logits and those of the others, in their order."""
    others = [team.receive(rank) for rank in range(1, team.size) if _rows(_share(part, rank, team.size))]
    return np.concatenate([own, *others], axis=-2)


def _logits(
    model: nn.Module, inputs: Inputs, precision: str, part: slice, on_batch: Callable[[int], None]
) -> NDArray[np.float32]:
    orders = [torch.arange(a, min(a + GRID, part.stop)) for a in range(part.start, part.stop, GRID)]
    parts: list[NDArray[np.float32]] = []
    training, device = model.training, device_of(model)
    model.eval()
    try:
        with torch.no_grad():
            for batch in inputs.batches(orders):
                try:
                    logits = forward(model, batch, device, precision)
                except Exception as error:
                    raise model_error(error, f"the model {type(model).__name__}", batch) from error
                parts.append(logits.float().cpu().numpy())
                on_batch(rows_in(batch))
    finally:
        model.train(training)
    return np.concatenate(parts, axis=-2)


def _logits_together(
    model: nn.Module, inputs: Inputs, precision: str, part: slice, on_batch: Callable[[int], None], team: Ranks
) -> NDArray[np.float32]:
    """A process' share of logits by a model that all have shares of: each makes as many passes as that with most rows.

    All read before any computes: an error while one reads, or a callback that ends it, is one of all.
    """
    own = _share(part, team.rank, team.size)
    orders = [torch.arange(a, min(a + GRID, own.stop)) for a in range(own.start, own.stop, GRID)]
    most = -(-_rows(_share(part, 0, team.size)) // GRID)
    empty = [torch.arange(part.start, min(part.start + GRID, part.stop))] * (most - len(orders))
    batches, parts, training = iter(inputs.batches([*orders, *empty])), list[NDArray[np.float32]](), model.training
    failed: Exception | None = None
    model.eval()
    try:
        for _ in range(most):
            if failed is None:
                failed, batch = _attempt(partial(next, batches))
            _refuse_if_any(failed, team)
            try:
                with torch.no_grad():
                    logits = forward(model, batch, device_of(model), precision)
            except Exception as error:
                wrong = model_error(error, f"the model {type(model).__name__}", batch)
                wrong.__cause__ = error
                raise team.leave(wrong) from error
            parts.append(logits.float().cpu().numpy())
            failed, _ = _attempt(partial(on_batch, rows_in(batch)))
        _refuse_if_any(failed, team)
    finally:
        model.train(training)
    return np.concatenate(parts[: len(orders)]) if orders else parts[0][:0]


def _refuse_if_any(failed: Exception | None, team: Ranks) -> None:
    """Raise where any process has failed: its own error, or that of another."""
    for said in filter(None, team.agree(failed and in_words(failed))):
        raise failed or told(said)


def _checked(result: NDArray[np.float32], model: nn.Module, part: slice) -> NDArray[np.float32]:
    """Logits of some rows, if they are finite."""
    if not np.isfinite(result).all():
        bad = np.flatnonzero(~np.isfinite(result).all(axis=-1).reshape(-1, result.shape[-2]).all(axis=0))
        found = f"NaN or infinite logits in {len(bad)} rows, first {', '.join(map(str, bad[:5] + part.start))} (from 0)"
        where, remedy = type(model).__name__, "use a smaller learning rate, or precision float32"
        what, expected = "predictions are not finite", "finite logits"
        raise NumericalError(what, where=where, found=found, expected=expected, remedy=remedy)
    return result


def accuracy(logits: NDArray[Any], labels: Tensor, weights: NDArray[np.float64] | None = None) -> float:
    """Share of rows whose largest logit is that of their label, weighted where rows (m,) have weights."""
    return share_right(logits.argmax(axis=1), labels, weights)


def share_right(classes: NDArray[np.integer], labels: Tensor, weights: NDArray[np.float64] | None = None) -> float:
    """Share of rows whose class (m,) is their label, likewise."""
    return float(np.average(classes == labels.numpy(), weights=weights))


def score(metric: Metric, logits: NDArray[Any], labels: Tensor, weights: NDArray[np.float64] | None = None) -> float:
    """The metric of logits (m, K) at the best threshold, more being better: see `reachable`."""
    value = reachable(metric, np.asarray(probabilities(logits, "logits"), np.float64), labels.numpy(), weights)
    return value if metric.higher else -value


def forward(model: nn.Module, batch: Batch, device: torch.device, precision: str) -> Tensor:
    """Logits (b, K) of a batch on any device and of any type."""
    with autocast(device, precision):
        logits: Tensor = logits_of(call(model, batch, device))
    return logits


def autocast(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """Mixed precision, unless the precision is float32."""
    return nullcontext() if precision == "float32" else torch.autocast(device.type, getattr(torch, precision))


def device_of(model: nn.Module) -> torch.device:
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def device_for(wanted: str) -> torch.device:
    """auto: CUDA or Apple's MPS where there is one, else the CPU; of several cards that of this process."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    present = [name for name, ok in available.items() if ok]
    if wanted != "auto" and wanted not in present:
        raise not_one_of(
            "no such device here", "recipe: device", wanted, present, "leave it out to take the fastest there is"
        )
    chosen = present[0] if wanted == "auto" else wanted
    return torch.device(chosen, local_rank()) if chosen == "cuda" and is_launched() else torch.device(chosen)


def count_classes(model: nn.Module, name: str, inputs: Inputs, precision: str) -> int:
    """The number of classes K of a model, from its output for two rows; refuses outputs that are not logits."""
    logits, rows, where = probe(model, name, inputs, precision), min(2, len(inputs)), type(model).__name__
    shape = getattr(logits, "shape", None)
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != rows or logits.shape[1] < 2:
        found = f"a tensor of shape {tuple(shape)}" if shape is not None else f"a {type(logits).__name__}"
        expected = f"one tensor (rows, classes): here ({rows}, 2 or more)"
        remedy = "wrap the module in one whose forward returns the logits alone, or as .logits"
        raise bad_value(f"the {name} does not return logits", where, found, expected, remedy)
    sums = logits.float().sum(1)
    if (logits >= 0).all() and torch.allclose(sums, torch.ones_like(sums), atol=1e-4):
        found, expected = "rows within [0, 1] that sum to 1", "logits, before the softmax"
        raise bad_value(f"the {name} returns probabilities", where, found, expected, "remove the softmax at its end")
    return int(logits.shape[1])


def probe(model: nn.Module, name: str, inputs: Inputs, precision: str) -> Any:
    """The model's output for the first two rows, in eval mode."""
    (batch,) = inputs.batches([torch.arange(min(2, len(inputs)))])
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return forward(model, batch, device_of(model), precision)
    except Exception as error:
        raise model_error(error, f"the {name}", batch) from error
    finally:
        model.train(training)


def model_error(error: Exception, model: str, batch: Batch) -> ConfigError | UnfinishedError:
    """Our error for an exception out of a model: after out of memory the run can resume, all else is the model's."""
    if is_out_of_memory(error):
        shape = f"rows {tuple(batch.shape[1:])}" if isinstance(batch, Tensor) else f"rows: {described(batch)}"
        found = f"a batch of {rows_in(batch)} {shape}"
        remedy = "free memory and run again to resume, or start a new run with a smaller batch_size"
        return UnfinishedError("out of memory", where=model, found=found, expected="a batch that fits", remedy=remedy)
    where = f"a batch of {described(batch)}"
    found = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    remedy = "check shape and type of the inputs against the module's first layer"
    if isinstance(error, TypeError) and "forward()" in str(error):
        remedy = "name the inputs as the arguments of the module's forward: a mapping of names to tensors"
    if "same dtype" in str(error):
        remedy = "call .float() on the module: half precision is a setting of the recipe"
    return bad_value(f"{model} cannot read its input", where, found, "a module that takes such a batch", remedy)


def is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)
