"""The weights of a Dataset as a file in a trainer's checkpoint, so that a run that is resumed has those it had."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from wdistill.adapters.torch import WithTargets
from wdistill.core import store
from wdistill.core.errors import CheckpointError, unreadable
from wdistill.training.tensors import from_bytes, to_bytes

NAME = "wdistill_weights.safetensors"


def save_weights(data: WithTargets, epoch: int, folder: Path) -> None:
    """Write the weights, which were estimated after this epoch, into a folder."""
    values = {"weight": data.weight, "epoch": torch.tensor(epoch), "ids": _digest(data)}
    store.write_bytes(folder / NAME, to_bytes({**values, "sha256": _of_contents(values)}))


def load_weights(data: WithTargets, folder: str | Path) -> int:
    """Set the weights to those in the folder; returns after which epoch they were estimated."""
    path = Path(folder, NAME)
    try:
        content = path.read_bytes()
    except OSError as error:
        remedy = "resume from an older checkpoint, or leave RefreshWeights out, as in the run that made it"
        raise unreadable("this checkpoint has no weights", path, error, "those of the rows", remedy) from None
    found = from_bytes(content, str(path))
    told = found.pop("sha256", None)
    if told is None or not torch.equal(told, _of_contents(found)):
        raise CheckpointError(
            "the weights of this checkpoint are damaged",
            where=str(path),
            found="no digest of them" if told is None else "other contents than were written",
            expected="contents whose SHA-256 is the one in the file",
            remedy="resume from an older checkpoint, or restore this one from a copy",
        )
    if {*found} != {"weight", "epoch", "ids"} or not torch.equal(found["ids"], _digest(data)):
        raise CheckpointError(
            "weights of other rows",
            where=str(path),
            found="another table of targets",
            expected=f"the {len(data.table):,} ids of this one, in their order",
            remedy="resume with the table that the run began with",
        )
    data.set_weights(found["weight"], data.table.ids)
    return int(found["epoch"])


def _digest(data: WithTargets) -> Tensor:
    """What tells the rows of a table, and their order."""
    names = "\n".join(map(repr, map(str, data.table.ids.tolist())))
    return _bytes_of(store.digest(names.encode()))


def _of_contents(values: Mapping[str, Tensor]) -> Tensor:
    """What tells names, types, shapes and numbers of tensors."""
    parts = {name: (str(each.dtype), [*each.shape], store.digest(each.numpy().tobytes())) for name, each in values.items()}
    return _bytes_of(store.digest(json.dumps(parts, sort_keys=True).encode()))


def _bytes_of(digest: str) -> Tensor:
    return torch.tensor(list(bytes.fromhex(digest)), dtype=torch.uint8)
