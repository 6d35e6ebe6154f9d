"""Bit rot: flips, cuts and losses of every file that we write; what is read is the same, or an error of ours says so.

python -m tests.reliability.rot --gate "a run" --number 17 --seed 0      replays one
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import signal
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.killing import MEMORY, child, fingerprint, timeless
from tests.reliability.jobs import JOBS, as_command, prepare_process
from wdistill import WdistillError
from wdistill.core import store
from wdistill.datasets.prepared import load_prepared
from wdistill.report.verify import verify
from wdistill.runs.checkpoints import read_manifest
from wdistill.training.export import load_student

BESIDE = ("lock", "report.html")  # they hold nothing that is used
WAYS = ("flip", "flip", "flip", "cut", "loss")


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in BESIDE)


def damage(path: Path, way: str, rng: np.random.Generator) -> None:
    """Flip one bit, cut the end off, or remove the file."""
    content = bytearray(path.read_bytes())
    at = int(rng.integers(max(1, len(content))))
    if way == "loss" or not content:
        path.unlink()
        return
    content[at] ^= 1 << int(rng.integers(8))
    path.write_bytes(content if way == "flip" else content[:at])


# what becomes of a damaged folder: "" if the same or an error of ours ---------------------------------------------------


def quietly(call: Callable[[], Any]) -> Any:
    """The result of a call, or the error of ours that it raised."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            return call()
        except WdistillError as error:
            return error


def run_again(job: str, folder: Path, victim: Path, wanted: dict[str, str]) -> str:
    """A run or a job that is started again; where it refuses, it works once the damaged part is removed."""
    code = child(folder, lambda operation, path: None, as_command(JOBS[job].run))
    if code in (2, 3):
        parts = victim.relative_to(folder).parts
        top = 2 if parts[0] in ("arms", "auxiliary") else 1
        shutil.rmtree(folder if len(parts) == 1 or parts[0] == "initial" else folder.joinpath(*parts[:top]))
        code = child(folder, lambda operation, path: None, as_command(JOBS[job].run))
    if code:
        return f"ended with {code}"
    found = results(folder)
    different = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
    if different and any(each.is_bad for each in verify(folder)[1]):
        return ""  # of a finished run: not used again, and `wdistill verify` tells
    return f"other bytes: {', '.join(different[:3])}" if different else ""


def results(folder: Path) -> dict[str, str]:
    """A digest of everything that counts: outputs, or what the newest manifests of a run list, and their states.

    Warnings may tell of the damage, and files that only an older manifest lists are not used.
    """
    manifests = {path.parent: read_manifest(path.parent) for path in folder.rglob("generation-*.json")}
    if not manifests:
        return fingerprint(folder)
    found = {}
    for place, snapshot in manifests.items():
        state = {name: value for name, value in snapshot.state.items() if name != "warnings"}
        found[f"{place.relative_to(folder)} state"] = json.dumps(timeless(state), sort_keys=True)
        names = [name for name in snapshot.files if name != "metrics.jsonl"]  # it has times; the states have all of it
        found |= {str((place / name).relative_to(folder)): store.digest_file(place / name) for name in names}
    return found


def read_weights(folder: Path, victim: Path, wanted: list[dict[str, Any]]) -> str:
    """A file of weights: verified as whole only if it says the same."""
    from wdistill.tables.output import read_batches

    def read() -> Any:
        _, findings = verify(victim)
        return [batch.to_pydict() for batch in read_batches(victim)] if not any(each.is_bad for each in findings) else None

    found = quietly(read)
    return "" if found is None or isinstance(found, WdistillError) or str(found) == str(wanted) else "other rows"


def read_arrays(folder: Path, victim: Path, wanted: bytes) -> str:
    found = quietly(lambda: _arrays(folder))
    return "" if isinstance(found, WdistillError) or found == wanted else "other arrays"


def _arrays(folder: Path) -> bytes:
    data = load_prepared(folder / "data")
    parts = (data.train.inputs, data.train.labels, data.test.inputs, data.test.labels)
    return data.sha256.encode() + str(data.metadata).encode() + b"".join(np.asarray(part).tobytes() for part in parts)


def read_student(folder: Path, victim: Path, wanted: bytes) -> str:
    found = quietly(lambda: _parameters(folder))
    whole = isinstance(found, WdistillError) or found == wanted
    _, findings = verify(folder / "student") if (folder / "student" / "student.json").exists() else ("", [])
    seen = not findings or any(each.is_bad for each in findings) or isinstance(found, WdistillError)
    return ("" if seen else "not seen by verify") if whole else "other parameters"


def _parameters(folder: Path) -> bytes:
    state = load_student(folder / "student").state_dict()
    return b"".join(name.encode() + tensor.numpy().tobytes() for name, tensor in sorted(state.items()))


# gates ------------------------------------------------------------------------------------------------------------------


def gate(
    name: str, job: str, outcome: Callable[[Path], Any], read: Callable[[Path, Path, Any], str], number: int, seed: int
) -> tuple[int, list[str]]:
    """Damage `number` copies of what a job made, file after file and way after way; what went wrong."""
    place = Path(tempfile.mkdtemp(prefix="rot-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    try:
        made = MADE.get(name, make)(place / "whole", job)
        wanted = outcome(made)
        victims, failures = files_of(made), []
        for i in range(number):
            copy, victim = place / "copy", victims[i % len(victims)]
            shutil.copytree(made, copy)
            damage(copy / victim.relative_to(made), WAYS[i // len(victims) % len(WAYS)], np.random.default_rng([seed, i]))
            wrong = read(copy, copy / victim.relative_to(made), wanted)
            if wrong:
                command = f"python -m tests.reliability.rot --gate {name!r} --number {i} --seed {seed}"
                failures.append(f"{wrong} after damage to {victim.relative_to(made)}: {command}")
            shutil.rmtree(copy)
        return number, failures
    finally:
        shutil.rmtree(place, ignore_errors=True)


def make(folder: Path, job: str) -> Path:
    assert child(folder, lambda operation, path: None, as_command(JOBS[job].run)) == 0
    return folder


def make_unfinished(folder: Path, job: str) -> Path:
    """A job that was killed when it had written two thirds of what it writes."""
    count = 0

    def before(operation: str, path: Path) -> None:
        nonlocal count
        count += operation == "open" and path.name.lstrip(".").startswith(("part-", "checkpoint-"))
        if count == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    assert child(folder, before, as_command(JOBS[job].run)) == -signal.SIGKILL
    return folder


def whole_of(job: str) -> Callable[[Path], dict[str, str]]:
    """What the job comes to when nothing is damaged."""

    def outcome(made: Path) -> dict[str, str]:
        fresh = make(made.with_name("fresh"), job)
        return results(fresh)

    return outcome


def _rows(folder: Path) -> list[dict[str, Any]]:
    from wdistill.tables.output import read_batches

    return [batch.to_pydict() for batch in read_batches(folder / "w.parquet")]


MADE = {"an unfinished weigh": make_unfinished, "an unfinished run": make_unfinished}
GATES: dict[str, Callable[[int, int], tuple[int, list[str]]]] = {
    "weights": partial(gate, "weights", "weigh", _rows, read_weights),
    "corrected targets": partial(gate, "corrected targets", "weigh best", _rows, read_weights),
    "an unfinished weigh": partial(
        gate, "an unfinished weigh", "joined weigh", whole_of("joined weigh"), partial(run_again, "joined weigh")
    ),
    "a run": partial(gate, "a run", "distill", whole_of("distill"), partial(run_again, "distill")),
    "an unfinished run": partial(gate, "an unfinished run", "distill", whole_of("distill"), partial(run_again, "distill")),
    "prepared data": partial(gate, "prepared data", "data", _arrays, read_arrays),
    "an exported student": partial(gate, "an exported student", "export", _parameters, read_student),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Replay one damage.")
    parser.add_argument("--gate", choices=GATES, required=True)
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    prepare_process()
    torch.set_num_threads(1)
    _, failures = GATES[arguments.gate](arguments.number + 1, arguments.seed)
    print("\n".join(failures) or "nothing went wrong")


if __name__ == "__main__":
    main()
