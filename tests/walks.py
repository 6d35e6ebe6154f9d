"""The files that a command goes through: those of the package and of the experiments whose functions are called.

    python -m tests.walks FILE COMMAND…     run a command of `wdistill`, and write the files it entered to FILE as JSON

What runs while a module is imported or while the flags of all commands are set up is no part of a walk, nor is the drawing
of a run's page. Each walk is a process of its own, on small made-up data.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from tests.tables import columns, write

ROOT = Path(__file__).resolve().parent.parent
OURS = tuple(f"{ROOT / folder}{os.sep}" for folder in ("wdistill", "experiments"))
SETTING_UP = "parser"  # the function that adds the flags of all commands
PAGELESS = ("weigh", "advise", "data")  # commands that draw no page

SPLITS = {"labeled": 40, "validation": 60, "unlabeled": 80, "test": 40}
TABLES = "--validation gold.parquet --unlabeled rest.parquet"
DATA = " ".join(f"--{name} {name}.npz" for name in SPLITS)
MODELS = "--teacher mlp:inputs=4,classes=3,hidden=8 --student mlp:inputs=4,classes=3,hidden=4"
SHORT = "--teacher-epochs 1 --student-epochs 1 --epochs 2 --batch-size 16 --device cpu"
TRIAL = "--labels 12 --trials 1 --epochs 1 --pretraining 1 --unlabeled 8 --validation 6 --test 6 --batch-size 8"
WALKS = {  # name: the command, and the number of files that is wanted
    "weigh": (f"weigh {TABLES} --output paper.parquet", 25),
    "weigh best": (f"weigh --method best {TABLES} --inputs inputs --output best.parquet", 30),
    "advise": (f"advise {TABLES} --inputs inputs", 34),
    "distill": (f"distill {MODELS} {DATA} {SHORT} --run paper", 38),
    "distill best": (f"distill --method best {MODELS} {DATA} {SHORT} --run best", 39),
    "one trial": (f"reproduce small-fashion {TRIAL} --arms unweighted,debiased --root data --results trial --runs runs", 47),
}


def walks() -> Iterator[tuple[str, list[str] | None, int]]:
    """Name, files entered and files wanted of every walk; no files where the command fails."""
    with tempfile.TemporaryDirectory(prefix="walks-") as name:
        folder = Path(name)
        make_data(folder)
        for walk, (command, wanted) in WALKS.items():
            yield walk, walked(folder, command), wanted


def make_data(folder: Path) -> None:
    """Tables with predictions and inputs, arrays to train on, and a data set for a trial."""
    from tests.official import write_fashion

    write(folder / "gold.parquet", _rows(1, 120))
    write(folder / "rest.parquet", {name: values for name, values in _rows(2, 200).items() if name != "label"})
    for seed, (split, rows) in enumerate(SPLITS.items(), 3):
        write(folder / f"{split}.npz", {name: _rows(seed, rows)[name] for name in ("id", "inputs", "label")})
    write_fashion(folder / "data" / "fashion", 30, 6)
    walked(folder, "data fashion --root data --unofficial --workers 1")


def _rows(seed: int, rows: int) -> dict[str, np.ndarray]:
    """Ids that no other seed has, labels, predictions of both models, and inputs that tell something too."""
    table = columns(seed, rows, classes=3, first=1000 * seed)
    noise = np.random.default_rng(seed).normal(size=(rows, 4))
    return table | {"inputs": (noise + 1.5 * np.eye(4)[table["label"]]).astype(np.float32)}


def walked(folder: Path, command: str) -> list[str] | None:
    """The files that a command enters, run in a folder; None, and its last words to stderr, where it fails."""
    result = folder / "entered.json"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    call = [sys.executable, "-m", "tests.walks", str(result), *command.split()]
    done = subprocess.run(call, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        print(f"wdistill {command}\n{done.stderr[-1000:]}", file=sys.stderr)
        return None
    return list(json.loads(result.read_text()))


def entered(argv: Sequence[str]) -> tuple[int, set[str]]:
    """The exit code of a command, and the files it enters."""
    from wdistill.cli import main

    files: set[str] = set()

    def look(frame: FrameType, event: str, argument: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(OURS) and file not in files and _is_part(frame):
            files.add(file)

    with _no_page(argv[0]):
        threading.settrace(look)
        sys.settrace(look)
        code = main(argv)
        sys.settrace(None)
    return code, files


def _is_part(frame: FrameType) -> bool:
    """Whether a call is of a function, and not of a module's or class's body, an import or the set-up of flags."""
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return False
    above: FrameType | None = frame
    while above is not None:
        if above.f_code.co_name == SETTING_UP or above.f_code.co_filename.startswith("<frozen importlib"):
            return False
        above = above.f_back
    return True


def _no_page(command: str) -> AbstractContextManager[None]:
    if command in PAGELESS:
        return nullcontext()
    from tests.distilling import undrawn

    return undrawn()


if __name__ == "__main__":
    exit_code, found = entered(sys.argv[2:])
    Path(sys.argv[1]).write_text(json.dumps(sorted(str(Path(file).relative_to(ROOT)) for file in found)))
    sys.exit(exit_code)
