"""The weights of a Dataset in a trainer's checkpoint, with what tells whose they are: a run that is resumed has its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wdistill.adapters.torch import WithTargets
from wdistill.core import store
from wdistill.core.errors import CheckpointError, unreadable
from wdistill.training.tensors import from_bytes, to_bytes

NAME = "wdistill_weights.safetensors"
PARTS = {"weight", "epoch", "ids"}  # of a state


def state_of(data: WithTargets, epoch: int) -> dict[str, Tensor]:
    """The weights, the epoch that they were estimated at, and what tells the rows that they are of."""
    return {"weight": data.weight.clone(), "epoch": torch.tensor(epoch), "ids": _digest(data)}


def set_state(data: WithTargets, state: Mapping[str, Any], where: str) -> int:
    """Set the weights to those of a state, and return its epoch; an error where they are of other rows."""
    named = {*state} == PARTS
    if not named or not _same(state["ids"], _digest(data)) or getattr(state["weight"], "shape", None) != data.weight.shape:
        raise CheckpointError(
            "weights of other rows",
            where=where,
            found="another table of targets" if named else f"{', '.join(map(str, state)) or 'nothing'}, not whose they are",
            expected=f"the {len(data.table):,} ids of this one, in their order",
            remedy="resume with the table, and the version of wdistill, that the run began with",
        )
    data.set_weights(state["weight"], data.table.ids)
    return int(state["epoch"])


def save_weights(data: WithTargets, epoch: int, folder: Path) -> None:
    """Write the weights, which were estimated after this epoch, into a folder."""
    state = state_of(data, epoch)
    store.write_bytes(folder / NAME, to_bytes({**state, "sha256": _of_contents(state)}))


def load_weights(data: WithTargets, folder: str | Path) -> int:
    """Set the weights to those in the folder; returns after which epoch they were estimated."""
    path = Path(folder, NAME)
    try:
        content = path.read_bytes()
    except OSError as error:
        remedy = "resume from an older checkpoint, or leave RefreshWeights out, as in the run that made it"
        raise unreadable("this checkpoint has no weights", path, error, "those of the rows", remedy) from None
    state = from_bytes(content, str(path))
    told = state.pop("sha256", None)
    if told is None or not torch.equal(told, _of_contents(state)):
        raise CheckpointError(
            "the weights of this checkpoint are damaged",
            where=str(path),
            found="no digest of them" if told is None else "other contents than were written",
            expected="contents whose SHA-256 is the one in the file",
            remedy="resume from an older checkpoint, or restore this one from a copy",
        )
    return set_state(data, state, str(path))


def _digest(data: WithTargets) -> Tensor:
    """What tells the rows of a table, and their order."""
    names = "\n".join(map(repr, map(str, data.table.ids.tolist())))
    return _bytes_of(store.digest(names.encode()))


def _of_contents(state: Mapping[str, Tensor]) -> Tensor:
    """What tells names, types, shapes and numbers of tensors."""
    parts = {name: (str(each.dtype), [*each.shape], store.digest(each.numpy().tobytes())) for name, each in state.items()}
    return _bytes_of(store.digest(json.dumps(parts, sort_keys=True).encode()))


def _bytes_of(digest: str) -> Tensor:
    return torch.tensor(list(bytes.fromhex(digest)), dtype=torch.uint8)


def _same(found: Any, wanted: Tensor) -> bool:
    return isinstance(found, Tensor) and found.tolist() == wanted.tolist()
