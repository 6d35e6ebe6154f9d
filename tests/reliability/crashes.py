"""Crash points F1 to F20 of the catalogue: a small run is killed there, started again, and compared byte by byte.

python -m tests.reliability.crashes [F8 …]      prints one JSON object: what went wrong, by number
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from tests.killing import MEMORY, RECIPE, child, differences, fingerprint, splits
from tests.reliability.hooks import PowerCut, at_point
from tests.reliability.jobs import prepare_process
from wdistill import debiased, distill
from wdistill.training import loop
from wdistill.training.models.networks import MLP
from wdistill.training.optimizer import Optimization
from wdistill.weights.debiased import Debiased

OFTEN = replace(RECIPE, checkpoint_seconds=1e-9)  # a checkpoint after every step
Hook = Callable[[str, Path], None]
Job = Callable[[Path], None]


def run(folder: Path) -> None:
    torch.manual_seed(0)
    distill(MLP(6, 3, (8,)), MLP(6, 3, (4,)), **splits(), rule=debiased, recipe=OFTEN, run=folder)


def undisturbed(operation: str, path: Path) -> None: ...


@dataclass(frozen=True)
class At:
    """The first operation on a path of this pattern, below the folder of the run; or the first after another one."""

    operation: str
    pattern: str
    after: tuple[str, str] | None = None

    def hook(self, folder: Path, act: Callable[[], None]) -> Hook:
        """Does something there, once."""
        begun, done = self.after is None, False

        def before(operation: str, path: Path) -> None:
            nonlocal begun, done
            name = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else ""
            if begun and not done and operation == self.operation and re.fullmatch(self.pattern, name):
                done = True
                act()
            begun = begun or (operation, name) == self.after

        return before


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


ARM = "arms/debiased"
CHECKPOINT = ARM + "/{}checkpoint-{:05d}-{:07d}.safetensors{}"


def checkpoint(operation: str, epoch: int, step: int) -> At:
    """An operation on the checkpoint of the arm after so many epochs and steps."""
    temporary = ("\\.", r"\.\d+\.[0-9a-f]+\.tmp") if operation in ("open", "sync") else ("", "")
    return At(operation, CHECKPOINT.format(temporary[0], epoch, step, temporary[1]))


def after_rename(operation: str, pattern: str, name: str) -> At:
    return At(operation, pattern, ("rename", name))


MID = CHECKPOINT.format("", 1, 2, "")
CHAINS: dict[str, list[list[At]]] = {  # every chain: kills one after the other, each of the process that resumes
    "F1": [[At("make", "initial")], [At("write", "initial/student.safetensors")], [At("rename", "generation-000001.json")]],
    "F2": [[At("open", r"teacher/\.checkpoint-00001-0000001.*")]],
    "F3": [[At("make", "labels")]],
    "F4": [[At("write", "labels/unlabeled-000000.parquet")]],
    "F5": [[after_rename("open", r"labels/\.generation.*", "labels/unlabeled-000000.parquet")]],
    "F7": [[after_rename("open", ARM + r"/\.generation.*", f"{ARM}/weights/00001.parquet")]],
    "F8": [[checkpoint("open", 1, 3)]],
    "F9": [[checkpoint("open", 2, 0)], [after_rename("open", ".*", CHECKPOINT.format("", 2, 0, ""))]],
    "F10": [[checkpoint("write", 1, 2)], [checkpoint("sync", 1, 2)]],
    "F11": [[after_rename("sync", ARM, MID)]],
    "F12": [[At("remove", ARM + "/checkpoint.*")], [At("remove", ARM + "/generation.*")]],
    "F13": [[At("write", "report.html")], [At("rename", "report.html")]],
    "F14": [[checkpoint("open", 1, 3), At("remove", ".*")], [checkpoint("write", 1, 3), checkpoint("open", 1, 3)]],
    "F15": [[checkpoint("open", 1, 1), checkpoint("write", 1, 3), checkpoint("rename", 1, 4)]],
}


def killed(folder: Path, wanted: dict[str, str], chain: Sequence[At]) -> str:
    """Kill a run at every point of a chain, then let it end: what is wrong with it."""
    for point in chain:
        if (ended := child(folder, point.hook(folder, die), run)) != -signal.SIGKILL:
            return f"{point} was not reached: the run ended with {ended}"
    return ends_as(folder, wanted)


def ends_as(folder: Path, wanted: dict[str, str]) -> str:
    if ended := child(folder, undisturbed, run):
        return f"started again, it ended with {ended}"
    missing = [] if (folder / "report.html").exists() else ["report.html"]
    return ", ".join([*differences(fingerprint(folder), wanted), *missing][:5])


def in_estimation(folder: Path, wanted: dict[str, str]) -> str:
    """Killed inside the second estimation of weights, which writes nothing."""
    with calling(Debiased, "weigh_rows", 2, die):
        if (ended := child(folder, undisturbed, run)) != -signal.SIGKILL:
            return f"it was not killed, and ended with {ended}"
    return ends_as(folder, wanted)


def asked_to_stop(folder: Path, wanted: dict[str, str]) -> str:
    """SIGTERM or Ctrl-C, once or twice, while rows are labeled, in a step, in an evaluation, in a save."""
    places: dict[str, Callable[[Path, Callable[[], None]], tuple[Hook, Any]]] = {
        "labels": lambda place, act: (At("write", "labels/unlabeled-000000.parquet").hook(place, act), nullcontext()),
        "save": lambda place, act: (checkpoint("write", 1, 3).hook(place, act), nullcontext()),
        "step": lambda place, act: (undisturbed, calling(Optimization, "step", 17, act)),
        "evaluation": lambda place, act: (undisturbed, calling(loop, "predict", 5, act)),
    }
    tried = [(name, signal.SIGTERM, 1) for name in places]
    tried += [("step", signal.SIGTERM, 2), ("step", signal.SIGINT, 1), ("save", signal.SIGINT, 2)]
    for name, number, times in tried:
        place = folder.with_name(f"{name}-{number}-{times}")
        hook, patched = places[name](place, partial(ask, number, times))
        with patched:
            ended = child(place, hook, run_as_command)
        wrong = f"it ended with {ended}" if ended != 128 + number else ends_as(place, wanted)
        if wrong:
            return f"signal {number} in {name}, {times} times: {wrong}"
    return ""


def ask(number: int, times: int) -> None:
    for _ in range(times):
        os.kill(os.getpid(), number)


def calling(owner: Any, name: str, nth: int, act: Callable[[], None]) -> Any:
    """Does something as a function is called for the n-th time."""
    calls, real = [], getattr(owner, name)

    def call(*given: Any, **more: Any) -> Any:
        calls.append(1)
        if len(calls) == nth:
            act()
        return real(*given, **more)

    return patch.object(owner, name, call)


def run_as_command(folder: Path) -> None:
    """The run, with the exit code of a command that was asked to stop."""
    try:
        run(folder)
    except SystemExit as end:
        os._exit(int(end.code or 0))
    except KeyboardInterrupt:
        os._exit(130)


def power_cuts(folder: Path, wanted: dict[str, str]) -> str:
    """The power goes at eight points: unsynced bytes and renames are lost."""
    log = folder.with_name("operations")

    def note(operation: str, path: Path) -> None:
        with log.open("a") as file:
            file.write(".")

    child(folder, note, run)
    count = log.stat().st_size
    for point in range(5, count, count // 8):
        place = folder.with_name(f"cut-{point}")
        if (ended := child(place, PowerCut(at_point(point)), run)) != -signal.SIGKILL:
            return f"not cut at operation {point}: it ended with {ended}"
        if wrong := ends_as(place, wanted):
            return f"cut at operation {point}: {wrong}"
    return ""


def suspended(folder: Path, wanted: dict[str, str]) -> str:
    """Stopped for half a second as by Ctrl-Z, and the clock set back by an hour meanwhile."""

    def stop() -> None:
        own, began, real = os.getpid(), time.monotonic(), time.time
        if os.fork() == 0:
            time.sleep(0.5)
            os.kill(own, signal.SIGCONT)
            os._exit(0)
        os.kill(own, signal.SIGSTOP)
        if time.monotonic() - began < 0.5:
            os._exit(98)
        time.time = lambda: real() - 3600  # type: ignore[assignment]

    ended = child(folder, checkpoint("open", 1, 3).hook(folder, stop), run)
    return f"it ended with {ended}" if ended else ends_as(folder, wanted)


def after_the_end(folder: Path, wanted: dict[str, str]) -> str:
    """Killed, and the power gone, as soon as the run has returned."""
    power = PowerCut()

    def run_and_lose(place: Path) -> None:
        run(place)
        power.lose()
        die()

    if (ended := child(folder, power, run_and_lose)) != -signal.SIGKILL:
        return f"it ended with {ended}"
    return ", ".join(differences(fingerprint(folder), wanted)[:5]) or ends_as(folder, wanted)


OTHERS = {"F6": in_estimation, "F16": asked_to_stop, "F18": power_cuts, "F19": suspended, "F20": after_the_end}
NUMBERS = sorted([*CHAINS, *OTHERS], key=lambda number: int(number[1:]))


def attempt(number: str, place: Path, wanted: dict[str, str]) -> str:
    """What goes wrong at the points of this number; nothing if all is well."""
    if number in OTHERS:
        return OTHERS[number](place / "run", wanted)
    tried = (killed(place / f"run-{at}", wanted, chain) for at, chain in enumerate(CHAINS[number]))
    return next(filter(None, tried), "")


def main(numbers: Sequence[str]) -> int:
    prepare_process()
    place = Path(tempfile.mkdtemp(prefix="crashes-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    try:
        assert child(place / "reference", undisturbed, run) == 0
        wanted, found = fingerprint(place / "reference"), dict[str, str]()
        for number in numbers or NUMBERS:
            (place / number).mkdir()
            try:
                found[number] = attempt(number, place / number, wanted)
            except Exception as error:  # what is left is not even a run
                found[number] = f"{type(error).__name__}: {error}"
            shutil.rmtree(place / number, ignore_errors=True)
        print(json.dumps(found))
        return 1 if any(found.values()) else 0
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
