"""The checkpoints of one training: when they are due, and what is in them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from wdistill.runs.checkpoints import CheckpointStore
from wdistill.runs.recipe import Recipe
from wdistill.training import tensors
from wdistill.training.stage import Callbacks, Stage, TrainState


class Checkpointer:
    """The checkpoints of one training: when they are due, and what is in them."""

    def __init__(self, stage: Stage, recipe: Recipe, callbacks: Callbacks) -> None:
        self.stage, self.seconds, self.callbacks = stage, recipe.checkpoint_seconds, callbacks
        self.store = CheckpointStore(stage.folder)
        self.store.clean()
        self.checkpoint, self.committed = "", time.monotonic()
        self.files: dict[str, bytes] = {}  # estimated weights that are not yet committed

    def is_due(self) -> bool:
        late = self.seconds > 0 and time.monotonic() - self.committed > self.seconds
        return self.callbacks.stopping() or late

    def keep(self, files: Mapping[str, bytes]) -> None:
        """Files of an estimate, to be committed next; of earlier ones only those of the first are kept."""
        self.files = {name: content for name, content in self.files.items() if f"{0:05d}" in name} | dict(files)

    def commit(self, state: TrainState, content: bytes) -> float:
        """Write a checkpoint; returns the seconds that it took."""
        started = time.perf_counter()
        name = f"checkpoint-{state.epoch:05d}-{state.step:07d}.safetensors"
        self.write(state, {name: content}, {"checkpoint": name})
        self.checkpoint, self.committed = name, time.monotonic()
        return time.perf_counter() - started

    def write(self, state: TrainState, files: Mapping[str, bytes], more: Mapping[str, Any]) -> None:
        """Commit files and state; of the weights, the first and the newest are kept."""
        last = [state.refreshes[-1].file] if state.refreshes else []
        kept = {"00000", *(Path(name).stem for name in last)}
        weights = [name for name in self.store.snapshot.files if name.startswith("weights/")]
        old = [name for name in weights if Path(name).stem not in kept]
        drop = [*old, *([self.checkpoint] if self.checkpoint and self.checkpoint not in files else [])]
        record = {**asdict(state), "why": self.stage.why, "gold": self.stage.gold, **more}
        self.store.commit(record, {**self.files, **files}, drop)
        self.files = {}

    def resume(self) -> tuple[TrainState, dict[str, Tensor]]:
        """The state and the tensors of the last checkpoint."""
        record = {name: value for name, value in self.store.state.items() if name not in ("why", "gold")}
        self.checkpoint = record.pop("checkpoint")
        return TrainState.from_json(record), self.read(self.checkpoint)

    def read(self, name: str) -> dict[str, Tensor]:
        return tensors.from_bytes(self.store.read(name), str(self.stage.folder / name))
