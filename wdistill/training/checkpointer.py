"""The checkpoints of one training: when they are due, and what is in them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from wdistill.core.store import make_folder
from wdistill.runs.checkpoints import CheckpointStore, Unnamed
from wdistill.runs.recipe import Recipe
from wdistill.training import tensors
from wdistill.training.stage import Callbacks, Stage, TrainState

Position = tuple[int, int]  # epochs done, and steps of the next one


class Checkpointer:
    """The checkpoints of one training: when they are due, and what is in them.

    Trainings in one stack resume from a checkpoint that all of them have, but a kill finds some with one more, and what was
    lost of one begins anew: what a training has stored already is not written again.
    """

    def __init__(self, stage: Stage, recipe: Recipe, callbacks: Callbacks) -> None:
        self.stage, self.seconds, self.callbacks = stage, recipe.checkpoint_seconds, callbacks
        self.store = CheckpointStore(stage.folder)
        self.store.clean()
        self.committed = time.monotonic()
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
        self.committed = time.monotonic()
        return time.perf_counter() - started

    def commit_shards(self, state: TrainState, make: Callable[[str, Path], Mapping[str, Unnamed]]) -> None:
        """Write a checkpoint of which every process writes a shard, which `make` (name, folder) makes."""
        if self._has(state):
            self.files = {}
            return
        started, name = time.perf_counter(), f"checkpoint-{state.epoch:05d}-{state.step:07d}"
        make_folder(self.stage.folder, parents=True)
        shards = make(name, self.stage.folder)
        self.write(state, {}, {"checkpoint": name}, shards)
        self.committed = time.monotonic()
        state.seconds["store"] += time.perf_counter() - started

    def write(
        self,
        state: TrainState,
        files: Mapping[str, bytes],
        more: Mapping[str, Any],
        unnamed: Mapping[str, Unnamed] | None = None,
    ) -> None:
        """Commit files and state, unless they are stored; of the weights, the first and the newest are kept."""
        if self._has(state):
            self.files = {}
            return
        last = [state.refreshes[-1].file] if state.refreshes else []
        kept = {"00000", *(Path(name).stem for name in last)}
        weights = [name for name in self.store.snapshot.files if name.startswith("weights/")]
        drop = [name for name in weights if Path(name).stem not in kept]
        drop += [name for name in self.store.snapshot.files if name.startswith("checkpoint-") and name not in files]
        epochs = [epoch.record for epoch in state.epochs]
        record = {**asdict(state), "epochs": epochs, "why": self.stage.why, "gold": self.stage.gold, **more}
        self.store.commit(record, {**self.files, **files}, drop, unnamed)
        self.files = {}

    def _has(self, state: TrainState) -> bool:
        """Whether this state, or a later one, is stored."""
        return bool(self.store.state) and position_of(asdict(state)) <= position_of(self.store.state)

    def resumable(self) -> dict[Position, CheckpointStore]:
        """The checkpoints that there are, newest first."""
        return {position_of(each.state): each for each in self.store.intact() if "checkpoint" in each.state}

    def resume(self, at: CheckpointStore) -> tuple[TrainState, list[Path]]:
        """The state of a checkpoint, and its files: one, or its shards."""
        record = {name: value for name, value in at.state.items() if name not in ("why", "gold", "checkpoint")}
        names = [name for name in at.snapshot.files if name.startswith(at.state["checkpoint"])]
        return TrainState.from_json(record), [self.stage.folder / name for name in sorted(names)]

    def content(self, at: CheckpointStore) -> dict[str, Tensor]:
        """The tensors of a checkpoint that is one file."""
        name = at.state["checkpoint"]
        return tensors.from_bytes(at.read(name), str(self.stage.folder / name))

    def read(self, name: str) -> dict[str, Tensor]:
        return tensors.from_bytes(self.store.read(name), str(self.stage.folder / name))


def position_of(state: Mapping[str, Any]) -> Position:
    return state["epoch"], state["step"]
