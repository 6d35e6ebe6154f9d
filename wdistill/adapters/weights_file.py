"""The weights of a Dataset as a file in a trainer's checkpoint, so that a run that is resumed has those it had."""

from __future__ import annotations

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
    store.write_bytes(folder / NAME, to_bytes(values))


def load_weights(data: WithTargets, folder: str | Path) -> int:
    """Set the weights to those in the folder; returns after which epoch they were estimated."""
    path = Path(folder, NAME)
    try:
        content = path.read_bytes()
    except OSError as error:
        remedy = "resume from an older checkpoint, or leave RefreshWeights out, as in the run that made it"
        raise unreadable("this checkpoint has no weights", path, error, "those of the rows", remedy) from None
    found = from_bytes(content, str(path))
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
    return torch.tensor(list(bytes.fromhex(store.digest(names.encode()))), dtype=torch.uint8)
