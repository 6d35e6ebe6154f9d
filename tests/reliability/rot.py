"""Bit rot: flips, cuts and losses of every kind of file that we write; what is read is the same, or an error says so.

For every row of the table of files (artefacts.py), damage is done to what jobs have made, whole or killed on their way.

python -m tests.reliability.rot --gate w.parquet --damage "flip 17" --seed 0      replays one
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.killing import MEMORY, child, fingerprint, killer, timeless
from tests.reliability.artefacts import Artefact, row_of
from tests.reliability.jobs import JOBS, OTHERS, as_command, prepare_process
from wdistill import WdistillError
from wdistill.core import store
from wdistill.datasets.prepared import load_prepared
from wdistill.report.verify import verify
from wdistill.runs.checkpoints import Snapshot, read_manifest
from wdistill.tables.manifest import MANIFEST
from wdistill.training.export import load_student
from wdistill.weights.saved import load, to_bytes

RUNS = {**JOBS, **OTHERS}


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
    code = child(folder, lambda operation, path: None, as_command(RUNS[job].run))
    if code in (2, 3):
        parts = victim.relative_to(folder).parts
        top = 2 if parts[0] in ("arms", "auxiliary") else 1
        shutil.rmtree(folder if len(parts) == 1 or parts[0] == "initial" else folder.joinpath(*parts[:top]))
        code = child(folder, lambda operation, path: None, as_command(RUNS[job].run))
    if code:
        return f"ended with {code}"
    found = results(folder, RUNS[job].fingerprint)
    different = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
    if different and any(each.is_bad for each in verify(_ours(folder))[1]):
        return ""  # of a finished run: not used again, and `wdistill verify` tells
    return f"other bytes: {', '.join(different[:3])}" if different else ""


def _ours(folder: Path) -> Path:
    """What `wdistill verify` is given: the folder of a job, or the prepared data or the folder of weights in it."""
    return next((each for name in ("imagenet/prepared-9", "w") for each in folder.glob(name)), folder)


def results(folder: Path, fingerprint: Callable[[Path], dict[str, str]] = fingerprint) -> dict[str, str]:
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
        names = [name for name in snapshot.files if name != "metrics.jsonl"]  # it has times
        found |= {(place / name).relative_to(folder).as_posix(): _digest(place / name) for name in names}
    if "metrics.jsonl" in manifests.get(folder, Snapshot(0, {}, {})).files:
        found["metrics.jsonl"] = _metrics(folder / "metrics.jsonl")
    return found


def heal(job: str, folder: Path, victim: Path, wanted: dict[str, str]) -> str:
    """A folder of weights: whole, or `wdistill verify` says what to remove, and the job makes that anew."""
    damaged = [state for state in verify(folder / "w")[1] if state.is_bad] if (folder / "w" / MANIFEST).exists() else []
    if not damaged and (wrong := run_again(job, folder, victim, wanted)):
        return wrong
    for state in damaged:
        if state.remedy.startswith("remove it,"):
            state.path.unlink(missing_ok=True)
    code = child(folder, lambda operation, path: None, as_command(RUNS[job].run))
    if code:
        return f"after what verify says, it ended with {code}"
    found = RUNS[job].fingerprint(folder)
    different = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
    return f"other bytes after what verify says: {', '.join(different[:3])}" if different else ""


def _digest(path: Path) -> str:
    return store.digest_file(path) if path.exists() else "missing"


def _metrics(path: Path) -> str:
    """All lines without their times; what is no JSON is shown as it is."""
    text = path.read_bytes().decode(errors="replace") if path.exists() else ""
    try:
        return json.dumps([timeless(json.loads(line)) for line in text.splitlines()])
    except ValueError:
        return text


def read_weights(job: str, folder: Path, victim: Path, wanted: list[dict[str, Any]]) -> str:
    """A file of weights: verified as whole only if it says the same."""
    from wdistill.tables.output import read_batches

    def read() -> Any:
        _, findings = verify(victim)
        return [batch.to_pydict() for batch in read_batches(victim)] if not any(each.is_bad for each in findings) else None

    found = quietly(read)
    return "" if found is None or isinstance(found, WdistillError) or str(found) == str(wanted) else "other rows"


def read_rule(job: str, folder: Path, victim: Path, wanted: bytes) -> str:
    """A saved rule: read only if it is the same."""
    found = quietly(lambda: _rule(folder))
    return "" if isinstance(found, WdistillError) or found == wanted else "another rule"


def _rule(folder: Path) -> bytes:
    return to_bytes(load(folder / "rule.npz"))


def read_page(job: str, folder: Path, victim: Path, wanted: bytes) -> str:
    """A page: verified as whole only if it is the same."""
    found = victim.read_bytes() if victim.exists() else b""
    return "" if found == wanted or any(each.is_bad for each in verify(folder)[1]) else "another page"


def make_again(job: str, folder: Path, victim: Path, wanted: dict[str, str]) -> str:
    """A file that is looked at before it is used or replaced: damaged, it is refused until it is removed."""
    name = victim.relative_to(folder).as_posix()
    for remove, right in ((False, (0, 2)), (True, (0,))):
        if remove:
            victim.unlink(missing_ok=True)
        code = child(folder, lambda operation, path: None, as_command(RUNS[job].run))
        if code not in right:
            return f"ended with {code}"
        if code == 0 and fingerprint(folder).get(name) != wanted[name]:
            return "other contents"
    return ""


def read_arrays(job: str, folder: Path, victim: Path, wanted: bytes) -> str:
    found = quietly(lambda: _arrays(folder))
    return "" if isinstance(found, WdistillError) or found == wanted else "other arrays"


def _arrays(folder: Path) -> bytes:
    data = load_prepared(folder / "data" if (folder / "data").exists() else _ours(folder))
    parts = (data.train.inputs, data.train.labels, data.test.inputs, data.test.labels)
    return data.sha256.encode() + str(data.metadata).encode() + b"".join(np.asarray(part).tobytes() for part in parts)


def read_student(job: str, folder: Path, victim: Path, wanted: bytes) -> str:
    found = quietly(lambda: _parameters(folder))
    whole = isinstance(found, WdistillError) or found == wanted
    _, findings = verify(folder / "student") if (folder / "student" / "student.json").exists() else ("", [])
    seen = not findings or any(each.is_bad for each in findings) or isinstance(found, WdistillError)
    return ("" if seen else "not seen by verify") if whole else "other parameters"


def _parameters(folder: Path) -> bytes:
    state = load_student(folder / "student").state_dict()
    return b"".join(name.encode() + tensor.numpy().tobytes() for name, tensor in sorted(state.items()))


# gates ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gate:
    """How damage to one kind of file is met: in what jobs have made, whole or killed when they had most such files."""

    sample: str  # a path of that kind
    read: Callable[[str, Path, Path, Any], str]
    outcome: Callable[[str, Path], Any]
    whole: tuple[str, ...] = ()
    killed: tuple[str, ...] = ()

    @property
    def row(self) -> Artefact:
        row = row_of(self.sample)
        assert row is not None
        return row

    def files(self, folder: Path) -> list[str]:
        """The files of that kind, below the folder of a job."""
        names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
        return [name for name in names if row_of(name) is self.row]


@dataclass(frozen=True)
class Victim:
    """A file that is damaged: in a copy of what a job has made."""

    job: str
    made: Path
    name: str
    wanted: Any  # what is read where nothing is damaged


def damages(flips: int, cuts: int, victims: list[Victim], losses: int | None) -> Iterator[tuple[str, Victim]]:
    """The name of every damage, and its victim; flips and cuts go from file to file."""
    for way, number in (("flip", flips), ("cut", cuts), ("loss", len(victims) if losses is None else losses)):
        yield from ((f"{way} {i}", victims[i % len(victims)]) for i in range(number))


def attempt(gate: Gate, name: str, victim: Victim, copy: Path, seed: int) -> str:
    """Do one damage to a copy, and say what is wrong; nothing if what is read is the same, or an error of ours."""
    shutil.copytree(victim.made, copy, symlinks=True)
    way, number = name.split()
    damage(copy / victim.name, way, np.random.default_rng([seed, int(number)]))
    try:
        return gate.read(victim.job, copy, copy / victim.name, victim.wanted)
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def prove(gate: Gate, flips: int, cuts: int, losses: int | None, seed: int, only: str = "") -> tuple[int, list[str]]:
    """So many damages to files of one kind, and the loss of each of them: how many were tried, and what went wrong."""
    place = Path(tempfile.mkdtemp(prefix="rot-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    try:
        tried, failures = 0, []
        for name, victim in damages(flips, cuts, victims_of(gate, place), losses):
            if only in ("", name):
                tried += 1
                if wrong := attempt(gate, name, victim, place / "copy", seed):
                    command = f"python -m tests.reliability.rot --gate {gate.sample!r} --damage {name!r} --seed {seed}"
                    failures.append(f"{wrong} after damage to {victim.name} of {victim.job}: {command}")
        return tried, failures
    finally:
        shutil.rmtree(place, ignore_errors=True)


def victims_of(gate: Gate, place: Path) -> list[Victim]:
    """Every file of that kind, in all that the jobs of a gate have made."""
    found = []
    for job, make in [*((job, make_whole) for job in gate.whole), *((job, make_killed) for job in gate.killed)]:
        made = make(gate, job, place / f"{job}, {make.__name__}")
        wanted = gate.outcome(job, made)
        found += [Victim(job, made, name, wanted) for name in gate.files(made)]
    assert found, f"no file like {gate.sample}"
    return found


def make_whole(gate: Gate, job: str, folder: Path) -> Path:
    assert child(folder, lambda operation, path: None, as_command(RUNS[job].run)) == 0
    return folder


def make_killed(gate: Gate, job: str, folder: Path) -> Path:
    """A job that was killed when it had most files of a kind."""
    log = folder.with_name("counts")
    log.write_text("")

    def count(operation: str, path: Path) -> None:
        with log.open("a") as file:
            file.write(f"{len(gate.files(folder))}\n")

    assert child(folder, count, as_command(RUNS[job].run)) == 0
    counts = [int(line) for line in log.read_text().split()]
    shutil.rmtree(folder)
    assert child(folder, killer(1 + counts.index(max(counts))), as_command(RUNS[job].run)) == -signal.SIGKILL
    return folder


def again(job: str, made: Path) -> dict[str, str]:
    """What a job comes to when nothing is damaged."""
    fresh = made.with_name(f"{made.name}, fresh")
    assert child(fresh, lambda operation, path: None, as_command(RUNS[job].run)) == 0
    return results(fresh, RUNS[job].fingerprint)


def _rows(job: str, folder: Path) -> list[dict[str, Any]]:
    from wdistill.tables.output import read_batches

    (path,) = (path for path in folder.iterdir() if path.name in ("w.parquet", "w.pq", "w.npz", "next.parquet"))
    return [batch.to_pydict() for batch in read_batches(path)]


def _files(job: str, folder: Path) -> dict[str, str]:
    return fingerprint(folder)


def _page(job: str, folder: Path) -> bytes:
    return (folder / "report.html").read_bytes()


RUN, TABLES, ENGINE = ("distill",), ("joined weigh",), ("weigh by an engine",)
WEIGHTS = ("weigh", "weigh best", "weigh to npz", "weigh to pq", "correct", "label", "plan")
UNFINISHED = ("joined weigh", "label", "weigh by an engine", "distill", "data", "download", "export")
GATES = {
    gate.sample: gate
    for gate in (
        Gate("w.parquet", read_weights, _rows, WEIGHTS),
        Gate("w.csv", run_again, again, ("weigh to csv", "plan in csv")),
        Gate("w.svg", run_again, again, ("inspect",)),
        Gate("rule.npz", read_rule, lambda job, folder: _rule(folder), ("save",)),
        Gate("w.parquet.parts/job.json", run_again, again, killed=("joined weigh", "correct", "label")),
        Gate("w.parquet.parts/part-000000.0.parquet", run_again, again, killed=("joined weigh", "correct", "label")),
        Gate("w/_manifest.json", heal, again, ENGINE),
        Gate(f"w/part-000000-{'0' * 16}-{'0' * 16}.parquet", heal, again, ENGINE, ENGINE),
        Gate(f"w/_part-000000-{'0' * 16}.json", heal, again, killed=ENGINE),
        Gate("tmp/wdistill-0/part-000000.0.parquet", heal, again, killed=ENGINE),
        Gate("w.parquet.parts/aligned-000000.0/rows-000000", run_again, again, killed=TABLES),
        Gate("w.parquet.answers/aligned-tables.0/answers.parquet", run_again, again, killed=("correct",)),
        Gate("w.parquet.parts/scratch.0/keys-0", run_again, again, killed=TABLES),
        Gate("w.parquet.parts/lock", run_again, again, killed=("joined weigh", "label", "distill")),
        Gate("generation-000001.json", run_again, again, RUN, RUN),
        Gate("teacher/parameters.safetensors", run_again, again, RUN, RUN),
        Gate("labels/unlabeled-000000.parquet", run_again, again, ("distill", "distill best")),
        Gate("arms/debiased/weights/00001.parquet", run_again, again, RUN, RUN),
        Gate("metrics.jsonl", run_again, again, RUN),
        Gate("report.html", read_page, _page, RUN),
        Gate("page.html", make_again, _files, ("report",)),
        Gate(".inputs/inputs.json", run_again, again, killed=("distill of Datasets",)),
        Gate("data/train.inputs.npy", read_arrays, lambda job, folder: _arrays(folder), ("data", "data of images")),
        Gate("imagenet/prepared-9/train.inputs.part", run_again, again, killed=("data of images",)),
        Gate("data/dataset.json", read_arrays, lambda job, folder: _arrays(folder), ("data", "data of images")),
        Gate("data/owner.txt", run_again, again, ("data",), ("data", "data of images")),
        Gate("originals/published.bin", make_again, _files, ("download",)),
        Gate("student/student.safetensors", read_student, lambda job, folder: _parameters(folder), ("export",)),
        Gate("student/student.json", read_student, lambda job, folder: _parameters(folder), ("export",)),
        Gate(".w.parquet.1.0123456789abcdef.tmp", run_again, again, killed=UNFINISHED),
    )
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Replay one damage.")
    parser.add_argument("--gate", choices=GATES, required=True)
    parser.add_argument("--damage", required=True, metavar="'flip 17'")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    prepare_process()
    way, number = arguments.damage.split()
    sizes = {each: int(number) + 1 if each == way else 0 for each in ("flip", "cut", "loss")}
    gate = GATES[arguments.gate]
    _, failures = prove(gate, sizes["flip"], sizes["cut"], sizes["loss"], arguments.seed, arguments.damage)
    print("\n".join(failures) or "nothing went wrong")


if __name__ == "__main__":
    main()
