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
import re
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.killing import MEMORY, child, differences, fingerprint, killer, timeless
from tests.reliability.artefacts import Artefact, row_of
from tests.reliability.jobs import JOBS, OTHERS, as_command, prepare_process
from wdistill import WdistillError
from wdistill.core import sealed, store
from wdistill.core.errors import unreadable
from wdistill.datasets.prepared import load_prepared
from wdistill.report.verify import verify
from wdistill.runs.checkpoints import Snapshot, read_manifest
from wdistill.tables.manifest import MANIFEST
from wdistill.training.export import load_student
from wdistill.weights.saved import load, to_bytes

RUNS = {**JOBS, **OTHERS}
COPY = "copy"  # where jobs run, and where what they made is damaged
HAS_DIGEST = re.compile("SHA-256|CRC|checksum|seal|digest")  # in words of the table of files
FEW = 4  # damages, some of which change nothing that is read
Read = Callable[[str, Path, "Sequence[Path]", Any], "Met"]  # the job, the damaged copy, what is damaged, what is wanted


def damage(path: Path, way: str, rng: np.random.Generator) -> None:
    """Flip one bit, cut the end off, or remove the file."""
    content = bytearray(path.read_bytes())
    at = int(rng.integers(max(1, len(content))))
    if way == "loss" or not content:
        path.unlink()
        return
    content[at] ^= 1 << int(rng.integers(8))
    path.write_bytes(content if way == "flip" else content[:at])


# what becomes of a damaged folder --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Met:
    """What became of a damaged folder: what is wrong, nothing if all is well; and whether somebody named the damage."""

    wrong: str = ""
    named: bool = False


@dataclass(frozen=True)
class Whole:
    """What is read where nothing is damaged, and the files that the job makes, by their digests."""

    content: Any
    files: dict[str, str]


def quietly(call: Callable[[], Any]) -> Any:
    """The result of a call, or the error of ours that it raised."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            return call()
        except WdistillError as error:
            return error


def start(job: str, folder: Path) -> tuple[int, str]:
    """Start a job where it is: its exit code, and what it said on standard error."""
    said = folder.with_name(f"{folder.name}.said")

    def run(folder: Path) -> None:
        sys.stderr = said.open("w", buffering=1)
        as_command(RUNS[job].run)(folder)

    code = child(folder, undisturbed, run)
    return code, said.read_text()


def undisturbed(operation: str, path: Path) -> None:
    """A hook that does nothing."""


def named_in(error: str, folder: Path) -> list[Path]:
    """What an error names below a folder: what its remedy says is to be removed; else the file that it is about; else, where
    it is about a folder, the files that were found in it, or missed."""
    text = error.rpartition("error: ")[2]
    place = re.escape(str(folder)) + r"(?:/[\w./-]*\w)?"
    about, found, remedy = (re.search(start, text, re.MULTILINE) for start in (r"\A.*", r"^  found: .*", r"^  to do: .*"))
    where = [Path(path) for path in re.findall(place, about[0] if about else "")][:1]
    if remedy and (told := re.search(rf"\bremove (?:the folder )?({place})", remedy[0])):
        return [Path(told[1])]
    if (remedy and re.search(r"\bremove (it|the folder)\b", remedy[0])) or not (where and where[0].is_dir()):
        return where
    words = found[0].removeprefix("  found: ") if found else ""
    return [Path(path) for path in re.findall(place, words)] or [
        path for name in words.split(", ") if os.path.lexists(path := where[0] / name)
    ]


def remove(paths: Iterable[Path]) -> None:
    for path in paths:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def concerns(named: Sequence[Path], victim: Path, gone: bool) -> bool:
    """Whether what an error names is what was damaged, or its folder; or, where a record was gone, what stood beside it, or
    the folder of the job that had begun with it."""

    def is_it(path: Path) -> bool:
        orphan = path.parent == victim.parent or path.suffix in (".parts", ".answers")
        return victim.is_relative_to(path) or (orphan and gone)

    return bool(named) and all(map(is_it, named))


def mend(job: str, folder: Path, victims: Sequence[Path]) -> Met:
    """A run or a job is started; where it refuses, it works once what its error names is removed, and no more.

    Two errors may come one after the other: of a record that is lost, and of what began with it.
    """
    code, said = start(job, folder)
    told, gone = any(victim.name in said for victim in victims), not victims[0].exists()
    for _ in range(len(victims)):
        if code in (2, 3):
            named = named_in(said, folder)
            if not concerns(named, victims[0], gone):
                return Met(f"the error names {', '.join(map(str, named)) or 'nothing'}: {said[-300:]}")
            told = True
            remove(named)
            gone = not victims[0].exists()
            code, said = start(job, folder)
    return Met(f"ended with {code}: {said[-300:]}" if code else "", told)


def run_again(job: str, folder: Path, victims: Sequence[Path], wanted: dict[str, str]) -> Met:
    """A run or a job that is started again comes to the same."""
    met = mend(job, folder, victims)
    if met.wrong:
        return met
    different = differences(results(folder, RUNS[job].fingerprint), wanted)
    bad = [state.path for state in verify(_ours(folder))[1] if state.is_bad] if different else []
    if bad:
        return Met("", met.named or any(victim in bad for victim in victims))  # of a finished run: verify tells
    return Met(f"other bytes: {', '.join(different[:3])}" if different else "", met.named)


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


def heal(job: str, folder: Path, victims: Sequence[Path], wanted: dict[str, str]) -> Met:
    """A folder of weights: whole, or `wdistill verify` says what to remove, and the job makes that anew."""
    damaged = [state for state in verify(folder / "w")[1] if state.is_bad] if (folder / "w" / MANIFEST).exists() else []
    if not damaged and (met := run_again(job, folder, victims, wanted)).wrong:
        return met
    told = any(state.path in victims for state in damaged) if damaged else met.named
    for state in damaged:
        if state.remedy.startswith("remove it,"):
            state.path.unlink(missing_ok=True)
    code, said = start(job, folder)
    if code:
        return Met(f"after what verify says, it ended with {code}: {said[-300:]}")
    different = differences(RUNS[job].fingerprint(folder), wanted)
    return Met(f"other bytes after what verify says: {', '.join(different[:3])}" if different else "", told)


def _digest(path: Path) -> str:
    return store.digest_file(path) if path.exists() else "missing"


def _metrics(path: Path) -> str:
    """All lines without their times; what is no JSON is shown as it is."""
    text = path.read_bytes().decode(errors="replace") if path.exists() else ""
    try:
        return json.dumps([timeless(json.loads(line)) for line in text.splitlines()])
    except ValueError:
        return text


def reading(read: Callable[[Path, Path], Any], verified: Callable[[Path], Path] | None = None) -> Read:
    """How damage is met by who reads: what is read is the same, or an error names the file. Once that is removed, the error
    says that it is missing, and the job makes the same file again.

    `verified`: the folder that `wdistill verify` is given, which sees every byte, also of what is not read.
    """

    def met(job: str, folder: Path, victims: Sequence[Path], wanted: Whole) -> Met:
        (victim,) = victims
        found = quietly(lambda: read(folder, victim))
        refused = isinstance(found, WdistillError)
        if not refused and found != wanted.content:
            return Met("other contents are read")
        said = quietly(lambda: verify(verified(folder))) if verified else None
        seen = [state.path for state in said[1] if state.is_bad] if isinstance(said, tuple) else []
        if isinstance(said, tuple) and bool(seen) == (_files(folder) == wanted.files):
            return Met("verify does not see it" if not seen else "verify sees damage where there is none")
        if refused:
            named = named_in(f"error: {found}", folder)
            if not concerns(named, victim, not victim.exists()):
                return Met(f"the error names {', '.join(map(str, named)) or 'nothing'}: {found}")
            remove(named)
            gone = quietly(lambda: read(folder, victim))
            if not isinstance(gone, WdistillError) or not any(str(path) in str(gone) for path in (*named, victim.parent)):
                return Met(f"what was removed is not missed: {gone}")
        victim.unlink(missing_ok=True)
        if (made := mend(job, folder, victims)).wrong:
            return Met(f"it is not made again: {made.wrong}")
        different = differences(_files(folder), wanted.files)
        return Met(f"made again, other bytes: {', '.join(different[:3])}" if different else "", refused or victim in seen)

    return met


def _weights(folder: Path, victim: Path) -> str:
    """The rows of a file of weights that says that it is whole; an error where it does not."""
    from wdistill.tables.output import read_batches

    for state in verify(victim)[1]:
        if state.is_bad:
            raise unreadable("damaged", state.path, state.state, "a whole file", state.remedy)
    return str([batch.to_pydict() for batch in read_batches(victim)])


def _rule(folder: Path, victim: Path) -> bytes:
    return to_bytes(load(folder / "rule.npz"))


def _arrays(folder: Path, victim: Path) -> bytes:
    data = load_prepared(_data(folder))
    parts = (data.train.inputs, data.train.labels, data.test.inputs, data.test.labels)
    return data.sha256.encode() + str(data.metadata).encode() + b"".join(np.asarray(part).tobytes() for part in parts)


def _parameters(folder: Path, victim: Path) -> bytes:
    state = load_student(_student(folder)).state_dict()
    return b"".join(name.encode() + tensor.numpy().tobytes() for name, tensor in sorted(state.items()))


def read_page(job: str, folder: Path, victims: Sequence[Path], wanted: bytes) -> Met:
    """A page: verified as whole only if it is the same."""
    (victim,) = victims
    found = victim.read_bytes() if victim.exists() else b""
    bad = any(each.is_bad and each.path == victim for each in verify(folder)[1])
    return Met("" if found == wanted or bad else "another page", bad)


def make_again(job: str, folder: Path, victims: Sequence[Path], wanted: dict[str, str]) -> Met:
    """A file that is looked at before it is used or replaced: the same, or refused until it is removed."""
    name = victims[0].relative_to(folder).as_posix()
    met = mend(job, folder, victims)
    return met if met.wrong or fingerprint(folder).get(name) == wanted[name] else Met("other contents")


# gates ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gate:
    """How damage to one kind of file is met: in what jobs have made, whole or killed when they had most such files."""

    sample: str  # a path of that kind
    read: Read
    outcome: Callable[[str, Path], Any]
    whole: tuple[str, ...] = ()
    killed: tuple[str, ...] = ()
    twice: tuple[str, str] = ("", "")  # of a file that is kept twice: the ends of both names, which are damaged together
    quiet: bool = False  # whether what a killed job left is made anew without a word: a seeded defect shows that it is

    @property
    def row(self) -> Artefact:
        row = row_of(self.sample)
        assert row is not None
        return row

    def files(self, folder: Path) -> list[str]:
        """The files of that kind, below the folder of a job."""
        names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
        return [name for name in names if row_of(name) is self.row]

    def victims(self, folder: Path) -> list[tuple[str, ...]]:
        """What is damaged at once: each of the files, and both copies of one."""
        files, (one, other) = self.files(folder), self.twice
        copies = [(name, f"{name.removesuffix(one)}{other}") for name in files if one and name.endswith(one)]
        return [*((name,) for name in files), *(pair for pair in copies if {*pair} <= {*files})]

    def is_noticed(self, made: Path) -> bool:
        """Whether damage to what was made must be named: the file has a digest, or a checksum, or a seal."""
        quiet = self.quiet and made.name.endswith(make_killed.__name__)
        return not quiet and HAS_DIGEST.search(self.row.proof) is not None


@dataclass(frozen=True)
class Victim:
    """Files that are damaged together, mostly one: in a copy of what a job has made."""

    job: str
    made: Path
    names: tuple[str, ...]
    wanted: Any  # what is read where nothing is damaged


def damages(flips: int, cuts: int, victims: list[Victim], losses: int | None) -> Iterator[tuple[str, Victim]]:
    """The name of every damage, and its victim; flips and cuts go from file to file."""
    for way, number in (("flip", flips), ("cut", cuts), ("loss", len(victims) if losses is None else losses)):
        yield from ((f"{way} {i}", victims[i % len(victims)]) for i in range(number))


def attempt(gate: Gate, name: str, victim: Victim, copy: Path, seed: int) -> Met:
    """Do one damage to a copy, and say what became of it."""
    shutil.copytree(victim.made, copy, symlinks=True)
    way, number = name.split()
    for i, each in enumerate(victim.names):
        damage(copy / each, way, np.random.default_rng([seed, int(number), *([i] if i else [])]))
    try:
        return gate.read(victim.job, copy, [copy / each for each in victim.names], victim.wanted)
    except Exception as error:
        return Met(f"an error that is not ours, {type(error).__name__}: {error}"[:300])
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def prove(gate: Gate, flips: int, cuts: int, losses: int | None, seed: int, only: str = "") -> tuple[int, list[str]]:
    """So many damages to files of one kind, and the loss of each of them: how many were tried, and what went wrong.

    Wrong, too, is a gate that tries nothing: where no damage to what a job made was named, though the files have digests.
    """
    place = Path(tempfile.mkdtemp(prefix="rot-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    try:
        tried, failures, named = 0, list[str](), dict[str, list[bool]]()
        again = f"python -m tests.reliability.rot --gate {gate.sample!r} --seed {seed}"
        for name, victim in damages(flips, cuts, victims_of(gate, place), losses):
            if only in ("", name):
                tried += 1
                met = attempt(gate, name, victim, place / COPY, seed)
                if gate.is_noticed(victim.made) and not name.startswith("loss"):
                    named.setdefault(victim.made.name, []).append(met.named)
                if met.wrong:
                    hurt = f"{' and '.join(victim.names)} of {victim.job}"
                    failures.append(f"{met.wrong} after damage to {hurt}: {again} --damage {name!r}")
        blind = [] if only else unnoticed(named)
        return tried, [*failures, *(f"no damage to {each} was named, so that nothing is proved: {again}" for each in blind)]
    finally:
        shutil.rmtree(place, ignore_errors=True)


def unnoticed(named: Mapping[str, Sequence[bool]]) -> list[str]:
    """What was damaged, and no damage to it was named: of so many that some cannot all be harmless, and of all together."""
    alone = [made for made, each in named.items() if len(each) >= FEW and not any(each)]
    return alone if any(map(any, named.values())) else list(named)


def victims_of(gate: Gate, place: Path) -> list[Victim]:
    """Every file of that kind, in all that the jobs of a gate have made: where copies of it are damaged, too, since a job
    that is not finished names its tables by their paths."""
    found = []
    for job, make in [*((job, make_whole) for job in gate.whole), *((job, make_killed) for job in gate.killed)]:
        made = make(gate, job, place / COPY).rename(place / f"{job}, {make.__name__}")
        wanted = gate.outcome(job, made)
        found += [Victim(job, made, names, wanted) for names in gate.victims(made)]
    assert found, f"no file like {gate.sample}"
    return found


def make_whole(gate: Gate, job: str, folder: Path) -> Path:
    assert child(folder, undisturbed, as_command(RUNS[job].run)) == 0
    return folder


def make_killed(gate: Gate, job: str, folder: Path) -> Path:
    """A job that was killed when a record listed most files of a kind; of such moments, when most were there and the records
    listed most of all: before a record lists it, a file is thrown away unread."""
    log = folder.with_name("counts")
    log.write_text("")

    def count(operation: str, path: Path) -> None:
        files, known = {*gate.files(folder)}, listed(folder)
        with log.open("a") as file:
            file.write(json.dumps([len(files & known), len(files), len(known)]) + "\n")

    assert child(folder, count, as_command(RUNS[job].run)) == 0
    counts = [json.loads(line) for line in log.read_text().splitlines()]
    shutil.rmtree(folder)
    assert child(folder, killer(1 + counts.index(max(counts))), as_command(RUNS[job].run)) == -signal.SIGKILL
    return folder


def listed(folder: Path) -> set[str]:
    """The files below the folder of a job that are there and that a record in it lists."""
    found = set[Path]()
    for path in folder.rglob("*.json"):
        record = sealed.read_sealed(path)
        if isinstance(record, dict):
            found |= {path.parent / name for name in _listed_by(record, path.name)}
    return {path.relative_to(folder).as_posix() for path in found if path.is_file()}


def _listed_by(record: Mapping[str, Any], name: str) -> list[str]:
    """The files that one record lists: of a run, of inputs, of a job, of partitions, of images on their way."""
    names = [*record.get("files", ()), *record.get("inputs", ())]
    if "aligned" in record:
        tables = record["aligned"].items()
        names += [f"aligned-{number}.{record['token']}/{each}" for number, table in tables for each in table["files"]]
    names += [part["file"] for part in record.get("parts", ())]
    names += [record["file"]] if "file" in record else []
    return [*names, name.replace(".progress.json", ".part")] if record.get("chunks") else names


def again(job: str, made: Path) -> dict[str, str]:
    """What a job comes to when nothing is damaged."""
    fresh = made.with_name(f"{made.name}, fresh")
    assert child(fresh, undisturbed, as_command(RUNS[job].run)) == 0
    return results(fresh, RUNS[job].fingerprint)


def whole(read: Callable[[Path, Path], Any]) -> Callable[[str, Path], Whole]:
    """What is read of what a job has made, and its files."""
    return lambda job, made: Whole(read(made, _output(made)), _files(made))


def _output(folder: Path) -> Path:
    """The table that a job has written."""
    return next((path for path in folder.iterdir() if path.name in ("w.parquet", "w.pq", "w.npz", "next.parquet")), folder)


def _files(folder: Path) -> dict[str, str]:
    return fingerprint(folder)


def _of_job(job: str, made: Path) -> dict[str, str]:
    return _files(made)


def _page(job: str, folder: Path) -> bytes:
    return (folder / "report.html").read_bytes()


def _data(folder: Path) -> Path:
    return _ours(folder) if (folder / "imagenet").exists() else folder / "data"


def _student(folder: Path) -> Path:
    return folder / "student"


RUN, TABLES, ENGINE = ("distill",), ("joined weigh",), ("weigh by an engine",)
WEIGHTS = ("weigh", "weigh best", "weigh to npz", "weigh to pq", "correct", "label", "plan")
COPIES = ("job.json", "job.copy.json")
UNFINISHED = ("joined weigh", "label", "weigh by an engine", "distill", "data", "download", "export")
GATES = {
    gate.sample: gate
    for gate in (
        Gate("w.parquet", reading(_weights), whole(_weights), WEIGHTS),
        Gate("w.csv", run_again, again, ("weigh to csv", "plan in csv")),
        Gate("w.svg", run_again, again, ("inspect",)),
        Gate("rule.npz", reading(_rule), whole(_rule), ("save",)),
        Gate("w.parquet.parts/job.json", run_again, again, killed=("joined weigh", "correct", "label"), twice=COPIES),
        Gate("w.parquet.parts/part-000000.0.parquet", run_again, again, killed=("joined weigh", "correct", "label")),
        Gate("w/_manifest.json", heal, again, ENGINE),
        Gate(f"w/part-000000-{'0' * 16}-{'0' * 16}.parquet", heal, again, ENGINE, ENGINE, quiet=True),
        Gate(f"w/_part-000000-{'0' * 16}.json", heal, again, killed=ENGINE, quiet=True),
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
        Gate("page.html", make_again, _of_job, ("report",)),
        Gate(".inputs/inputs.json", run_again, again, killed=("distill of Datasets",)),
        Gate("data/train.inputs.npy", reading(_arrays, _data), whole(_arrays), ("data", "data of images")),
        Gate("imagenet/prepared-9/train.inputs.part", run_again, again, killed=("data of images",), quiet=True),
        Gate("data/dataset.json", reading(_arrays, _data), whole(_arrays), ("data", "data of images")),
        Gate("data/owner.txt", run_again, again, ("data",), ("data", "data of images")),
        Gate("originals/published.bin", make_again, _of_job, ("download",)),
        Gate("student/student.safetensors", reading(_parameters, _student), whole(_parameters), ("export",)),
        Gate("student/student.json", reading(_parameters, _student), whole(_parameters), ("export",)),
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
