"""Small runs that torchrun starts as several processes, one of which may be killed: a program for tests.

    torchrun --standalone --nproc-per-node=N -m tests.scale.ranked KIND FOLDER MICRO_BATCHES

KIND is one of KINDS; MICRO_BATCHES 0 leaves them to the number of processes. The variable DIES, such as "1 step 5", kills
process 1 when it tells or hears its fifth order to step; STOPS does the same with SIGTERM, and UNPACKS lets that process
not unpack what came with the order. RUNS_OUT, such as "1 7", lets memory not suffice for the seventh part of a batch in
process 1, and READS, such as "1 30", lets its thirtieth item not be read.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from tests.distilling import MADE, QUICK, Dropping, seeded, splits, student, table, teacher, undrawn
from tests.test_vid import big, images, small
from wdistill import Report, best, debiased, distill, fidelity, unweighted
from wdistill.training import packing
from wdistill.training.inputs import Streamed
from wdistill.training.optimizer import Optimization
from wdistill.training.ranks import Ranks

RECIPE = replace(QUICK, epochs=3, refresh=1, batch_size=13, checkpoint_seconds=0.0, device="cpu")


def rules(folder: Path, micro_batches: int | None) -> Report:
    """Two arms, refreshed, of a student with batch norm and dropout, and the auxiliary models of the second."""
    recipe, arms = replace(RECIPE, micro_batches=micro_batches), {"debiased": debiased, "best": best}
    return distill(teacher, Dropping, **splits(), rule=arms, recipe=recipe, run=folder)


def stored(folder: Path, micro_batches: int | None) -> Report:
    """A teacher that is a table, and weights that are estimated once."""
    recipe = replace(RECIPE, micro_batches=micro_batches, refresh=None)
    return distill(table(), Dropping, **splits(), rule=debiased, recipe=recipe, run=folder)


def features(folder: Path, micro_batches: int | None) -> Report:
    """VID, whose loss needs the teacher's features, on pictures."""
    settings: dict[str, Any] = {"vid": ("layers.3=layers.3",), "augmentation": ("flip", "translate")}
    recipe = replace(MADE, epochs=2, batch_size=13, device="cpu", micro_batches=micro_batches, **settings)
    return distill(seeded(big), seeded(small), **images(), rule=debiased, recipe=recipe, run=folder)


def spread(folder: Path, micro_batches: int | None) -> Report:
    """Four arms, each trained by one process."""
    arms = {"debiased": debiased, "fidelity": fidelity, "unweighted": unweighted, "best": best}
    recipe = replace(RECIPE, refresh=None, workers=2, micro_batches=micro_batches)
    return distill(teacher, Dropping, **splits(), rule=arms, recipe=recipe, run=folder)


def stacked(folder: Path, micro_batches: int | None) -> Report:
    """Two arms of a small student, which are trained as one model."""
    recipe = replace(RECIPE, refresh=None, micro_batches=micro_batches)
    return distill(teacher, student, **splits(), rule=[debiased, unweighted], recipe=recipe, run=folder)


def plain(folder: Path, micro_batches: int | None) -> Report:
    """One arm of a student without batch norm and dropout, which see parts of a batch apart."""
    recipe = replace(RECIPE, micro_batches=micro_batches)
    return distill(teacher, student, **splits(), rule=debiased, recipe=recipe, run=folder)


class Items:
    """A Dataset of the unlabeled rows, of which a process may not be able to read one."""

    read = 0

    def __len__(self) -> int:
        return len(splits()["unlabeled"][0])

    def __getitem__(self, row: int) -> Tensor:
        Items.read += 1
        if os.environ.get("READS") == f"{os.environ.get('RANK')} {Items.read}":
            raise OSError(f"item {row} is on a disk that is not here")
        return splits()["unlabeled"][0][row]


def sharded(folder: Path, micro_batches: int | None) -> Report:
    """A student with batch norm and dropout in shards, refreshed, and an arm that is taught corrected targets."""
    recipe, arms = replace(RECIPE, sharded=True, micro_batches=micro_batches), {"debiased": debiased, "best": best}
    return distill(teacher, Dropping, **{**splits(), "unlabeled": Streamed(Items())}, rule=arms, recipe=recipe, run=folder)


def whole(folder: Path, micro_batches: int | None) -> Report:
    """The same students, not in shards."""
    recipe, arms = replace(RECIPE, micro_batches=micro_batches), {"debiased": debiased, "best": best}
    return distill(teacher, Dropping, **{**splits(), "unlabeled": Streamed(Items())}, rule=arms, recipe=recipe, run=folder)


def streamed(folder: Path, micro_batches: int | None) -> Report:
    """Rows that a DataLoader reads in every epoch."""
    recipe = replace(RECIPE, micro_batches=micro_batches)
    return distill(
        teacher, student, **{**splits(), "unlabeled": Streamed(Items())}, rule=debiased, recipe=recipe, run=folder
    )


KINDS: Mapping[str, Callable[[Path, int | None], Report]] = {
    each.__name__: each for each in (rules, stored, features, spread, stacked, plain, streamed, sharded, whole)
}


def disturb() -> None:
    """Kill or stop this process at the order that a variable names, if it names this process, or let it fail."""
    seen, tell, hear = Counter[str](), Ranks.tell, Ranks.hear
    signals = {"DIES": signal.SIGKILL, "STOPS": signal.SIGTERM, "UNPACKS": 0}
    lost = list[bool]()
    wanted = [(os.environ[name].split(), number) for name, number in signals.items() if name in os.environ]
    here = [(order, int(count), number) for (rank, order, count), number in wanted if rank == os.environ["RANK"]]

    def at(order: str) -> None:
        seen[order] += 1
        for wanted_order, count, number in here:
            if (order, seen[order]) == (wanted_order, count):
                if not number:
                    lost.append(True)
                    continue
                sys.stderr.write(f"signal at {time.time()}\n")
                os.kill(os.getpid(), number)

    def telling(self: Ranks, order: str, *values: Any) -> None:
        at(order)
        tell(self, order, *values)

    def load(stream: Any) -> Any:
        if lost:
            lost.clear()
            raise ModuleNotFoundError("No module named 'elsewhere'")
        return pickle.load(stream)

    def hearing(self: Ranks) -> tuple[Any, ...]:
        heard = hear(self)
        at(heard[0])
        return heard

    Ranks.tell, Ranks.hear = telling, hearing  # type: ignore[method-assign]
    packing.pickle = SimpleNamespace(dump=pickle.dump, load=load)  # type: ignore[assignment]
    rank, number = os.environ.get("RUNS_OUT", "-1 0").split()
    backward, count = Optimization.backward, iter(range(1, 10**6))

    def failing(self: Optimization, loss: Tensor) -> None:
        if next(count) == int(number):
            raise MemoryError("made up")
        backward(self, loss)

    if rank == os.environ["RANK"]:
        Optimization.backward = failing  # type: ignore[method-assign]


if __name__ == "__main__":
    kind, folder, parts = sys.argv[1:]
    disturb()
    with undrawn():
        report = KINDS[kind](Path(folder), int(parts) or None)
    sys.stdout.write(f"{os.environ['RANK']} has {', '.join(report.students)}\n")
