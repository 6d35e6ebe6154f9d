"""Provocations G1 to I12 of the catalogue: disks, other processes, and files and names that mean harm."""

from __future__ import annotations

import ast
import errno
import gzip
import io
import json
import os
import pickle
import resource
import signal
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from torch import nn

from tests import killing, official
from tests.distilling import go, splits, unlike
from tests.reliability.bad_files import Trap, two_tables, weigh_tables
from tests.reliability.bad_runs import begin, run
from tests.reliability.outcomes import contents, exits, fact, printed, quietly, refused, same, told, warned
from tests.tables import columns, write
from tests.test_readers import npy_bytes, read, text
from wdistill import (
    BusyError,
    CheckpointError,
    ConfigError,
    FileError,
    InputError,
    StorageError,
    Streamed,
    debiased,
    export_student,
    load,
    load_student,
)
from wdistill.core import store
from wdistill.core.processes import process_pool
from wdistill.datasets import originals, prepare
from wdistill.runs.checkpoints import CheckpointStore
from wdistill.runs.recipe import read_recipe
from wdistill.tables import job
from wdistill.training import labels
from wdistill.training.tensors import from_bytes

PACKAGE = Path(store.__file__).parent.parent


# G: disks ---------------------------------------------------------------------------------------------------------------


def disk_error(name: str, *words: str) -> Callable[[Path], None]:
    """A proof that this error, at any operation of a commit, is a StorageError and leaves the snapshot before."""
    code = getattr(errno, name)

    def prove(folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        at, fired = 0, True
        while fired:  # until the fault no longer fires
            at += 1
            checkpoints = CheckpointStore(folder / str(at))
            checkpoints.commit({"step": 1}, {"a": b"one" * 50})
            with _failing(at, code) as seen, suppress(StorageError):
                checkpoints.commit({"step": 2}, {"b": b"two" * 50})
            fired = len(seen) >= at
            again = quietly(lambda at=at: CheckpointStore(folder / str(at)))
            fact(again.read("a") == b"one" * 50 and again.state["step"] in (1, 2), "a whole snapshot is there")
            fact(not list((folder / str(at)).glob(".*.tmp")), "nothing unfinished is left")
        fact(at > 8, "every operation was tried")
        with _failing(3, code):
            refused(StorageError, lambda: store.write_bytes(folder / "file", b"content"), str(folder / "file"), *words)
        gold, pool = two_tables(folder)
        with _failing(6, code):
            exits(3, ["weigh", "--validation", gold, "--unlabeled", pool, "--output", folder / "w.parquet"], *words)
        weigh_tables(gold, [pool], folder / "w.parquet")
        weigh_tables(gold, [pool], folder / "again.parquet")
        same((folder / "w.parquet").read_bytes(), (folder / "again.parquet").read_bytes())

    return prove


@contextmanager
def _failing(at: int, code: int) -> Iterator[list[str]]:
    """The given operation of the store fails with the system's own words."""
    seen: list[str] = []

    def fail(operation: str, path: Path) -> None:
        seen.append(operation)
        if len(seen) == at:
            raise OSError(code, os.strerror(code))

    with patch.object(store, "before", fail):
        yield seen


def no_space(folder: Path) -> None:
    with patch("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000})):
        refused(StorageError, lambda: go(run=folder / "run"), "1,000 bytes free", "about ", "free some space")
    disk_error("ENOSPC", "No space left", "the same command resumes")(folder)


def not_permitted(folder: Path) -> None:
    for name, words in (("EROFS", "not read-only"), ("EACCES", "you may write to")):
        disk_error(name, words)(folder / name)


def too_many_files(folder: Path) -> None:
    disk_error("EMFILE", "Too many open files", "ulimit -n")(folder)
    path, limits = write(folder / "x.parquet", columns(1, 60)), resource.getrlimit(resource.RLIMIT_NOFILE)
    first = os.open(folder, os.O_RDONLY)  # the lowest free number: from here on, no more
    resource.setrlimit(resource.RLIMIT_NOFILE, (first, limits[1]))
    os.close(first)
    handles = [os.open(os.devnull, os.O_RDONLY) for number in range(first) if _is_free(number)]
    try:
        refused(StorageError, lambda: store.write_bytes(folder / "y", b"y"), "Too many open files", "ulimit -n")
        refused(FileError, lambda: read(path), "Too many open files")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for handle in handles:
            os.close(handle)


def _is_free(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return True
    return False


def temporary_files(folder: Path) -> None:
    opened: list[Path] = []

    def watch(operation: str, path: Path) -> None:
        if operation in ("open", "append"):
            opened.append(path)

    gold, pool = two_tables(folder / "in")
    with patch.object(store, "before", watch):
        weigh_tables(gold, [pool], folder / "w.parquet")
        run(run=folder / "run")
    fact(
        len(opened) > 20
        and {path.parent.stat().st_dev for path in opened if path.parent.exists()} == {folder.stat().st_dev},
        "one disk",
    )
    places = {folder / "w.parquet.parts"}
    fact(all(path.parent in places or path.is_relative_to(folder / "run") for path in opened), "beside their target")


def no_locks(folder: Path) -> None:
    for code in (errno.ENOLCK, errno.EOPNOTSUPP):

        def flock(*_: object, code: int = code) -> None:
            raise OSError(code, os.strerror(code))

        with patch("fcntl.flock", flock):
            refused(StorageError, lambda: go(run=folder / "run"), str(folder / "run"), "a file system with locks")


def removed_checkpoint(folder: Path) -> None:
    checkpoints = CheckpointStore(folder)
    for step in (1, 2):
        checkpoints.commit({"step": step}, {f"checkpoint-{step}-0.safetensors": bytes([step] * 50)})
    (folder / "checkpoint-2-0.safetensors").rename(folder / "moved")
    again = warned(lambda: CheckpointStore(folder), "checkpoint-2-0.safetensors damaged or missing", "the snapshot before")
    same((again.state["step"], again.read("checkpoint-1-0.safetensors")), (1, bytes([1] * 50)))


def maps_have_room(folder: Path) -> None:
    """Memory maps are read-only but for one, whose room on the disk is taken first: none meets a full disk as a SIGBUS."""
    maps = list[tuple[str, object]]()  # file, mode
    for path in PACKAGE.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call):
                if getattr(call.func, "attr", getattr(call.func, "id", "")) in ("memmap", "open_memmap", "mmap"):
                    given = [each.value for each in call.keywords if each.arg == "mode"] or call.args[2:3]
                    maps.append((path.name, getattr(given[0], "value", "?") if given else "?"))
                maps += [(path.name, getattr(each.value, "value", "?")) for each in call.keywords if each.arg == "mmap_mode"]
    same(([each for each in maps if each[1] != "r"], ("npy.py", "r") in maps), ([("store.py", "r+")], True))

    def full(handle: int, start: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with patch("os.posix_fallocate", full):
        refused(StorageError, lambda: store.unnamed_array(folder, (10, 3), np.dtype(np.float32)), str(folder), "No space")
    rows = store.unnamed_array(folder, (10, 3), np.dtype(np.float32))
    rows[7] = 5
    same((rows.sum(), list(folder.iterdir())), (15, []))


def stale_files(folder: Path) -> None:
    checkpoints = CheckpointStore(folder)
    checkpoints.commit({"step": 1}, {"checkpoint-1-0.safetensors": b"one"})
    store.temporary_name(folder / "checkpoint-4-0.safetensors").write_bytes(b"half")
    mine = {".my.tmp", ".my.7.tmp", ".checkpoint-4-0.safetensors.123.tmp", "checkpoint-9-9.safetensors"}
    for name in mine:
        (folder / name).write_bytes(b"mine")
    CheckpointStore(folder).clean()
    same(set(contents(folder)), mine | {"checkpoint-1-0.safetensors", "generation-000001.json"})
    place = folder / "run"
    with store.lock(place):
        unfinished = store.temporary_name(place / "metrics.jsonl")
        unfinished.write_bytes(b"of a living owner")
        refused(BusyError, lambda: go(run=place), "its lock is held by")
        same(contents(place), {unfinished.name: b"of a living owner"})


def few_files(folder: Path) -> None:
    gold = write(folder / "v.parquet", columns(1, 80))
    for number in range(40):
        write(folder / "u" / f"{number}.parquet", columns(number, 3, first=1000 + 3 * number))
    names: set[str] = set()
    with patch.object(store, "before", lambda operation, path: names.add(path.name)):
        weigh_tables(gold, [folder / "u"], folder / "w.parquet")
    same(sum(name.startswith("part-") for name in names), 1)  # of 40 files
    fact(10**8 / job.PART < 500 and 10**8 * 10 / labels.CHUNK < 100, "10^8 rows of 10 classes are some hundred files")
    with _failing(2, errno.ENOSPC):  # what a file system without inodes says as a file is made
        refused(StorageError, lambda: weigh_tables(gold, [folder / "u"], folder / "again.parquet"), "No space left")


def waiting_for_space(folder: Path) -> None:
    place = begin(folder)
    run(run=place)
    run(run=folder / "fresh")
    same(unlike(place, folder / "fresh"), [])


# H: processes -----------------------------------------------------------------------------------------------------------


def two_owners(folder: Path) -> None:
    words = (f"process {os.getpid()} on {os.uname().nodename}, since 20", "one process at a time")
    with store.lock(folder / "run"):
        refused(BusyError, lambda: go(run=folder / "run"), str(folder / "run"), *words)
    gold, pool = two_tables(folder)
    with store.lock(folder / "w.parquet.parts"):
        refused(BusyError, lambda: weigh_tables(gold, [pool], folder / "w.parquet"), *words)
        exits(5, ["weigh", "--validation", gold, "--unlabeled", pool, "--output", folder / "w.parquet"], *words)


def lock_of_a_dead_process(folder: Path) -> None:
    def die(place: Path) -> None:
        with store.lock(place):
            os.kill(os.getpid(), signal.SIGKILL)

    same(killing.child(folder / "run", lambda operation, path: None, die), -signal.SIGKILL)
    fact((folder / "run" / "lock").read_text().startswith("process "), "its lock is still there")
    run(run=folder / "run")
    fact(CheckpointStore(folder / "run").state["finished"], "and in nobody's way")


def eight_at_once(folder: Path) -> None:
    for number in range(10):
        outcomes = _race(folder / str(number))
        same(sorted(outcomes), ["BusyError"] * 7 + ["won"])


def _race(folder: Path) -> list[str]:
    """Eight threads make one folder and ask for its lock at the same moment; who has it keeps it until all have asked."""
    together, outcomes = threading.Barrier(8), list[str]()

    def ask() -> None:
        together.wait()
        try:
            with store.lock(folder):
                outcomes.append("won")
                together.wait()
        except Exception as error:
            outcomes.append(type(error).__name__)
            together.wait()

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def _nothing() -> None: ...


def spawned_processes(folder: Path) -> None:
    with process_pool(1, _nothing) as pool:
        same(pool._mp_context.get_start_method(), "spawn")  # type: ignore[attr-defined]
    with patch("torch.utils.data.DataLoader") as loader:
        assert Streamed(splits()["unlabeled"][0], workers=2)._loader
        same(loader.call_args.kwargs["multiprocessing_context"], "spawn")
    texts = [path.read_text() for path in PACKAGE.rglob("*.py")]
    fact(not any("os.fork" in each or '"fork"' in each or '"forkserver"' in each for each in texts), "nothing forks")


# I: harm ----------------------------------------------------------------------------------------------------------------


def pickled_checkpoints(folder: Path) -> None:
    marker = folder / "marker"
    harm = pickle.dumps(Trap(marker))
    refused(CheckpointError, lambda: from_bytes(harm, "parameters.safetensors"), "parameters.safetensors")
    (folder / "rule.npz").write_bytes(harm)
    refused(FileError, lambda: load(folder / "rule.npz"), "rule.npz")
    place = folder / "run"
    run(run=place)
    checkpoints = CheckpointStore(place / "arms" / "debiased")  # with a digest that is right
    state, name = checkpoints.state, "parameters.safetensors"
    checkpoints.commit(state, drop=[name])
    checkpoints.commit(state, {"other": b""})
    checkpoints.commit(state, {name: harm})
    refused(CheckpointError, lambda: go(run=place), "not a safetensors file")
    fact(not marker.exists(), "nothing was unpickled")


def pickled_models(folder: Path) -> None:
    marker, path = folder / "marker", folder / "teacher.pt"
    words = ["distill", "--student", "mlp:inputs=6,classes=3", "--run", folder / "run"]
    for name, (inputs, truth) in splits().items():
        np.savez(
            folder / f"{name}.npz",
            inputs=inputs.numpy(),
            label=truth.numpy(),
            id=[f"{name}{row}" for row in range(len(truth))],
        )
        words += [f"--{name}", folder / f"{name}.npz"]
    for content in (nn.Linear(6, 3).state_dict(), Trap(marker)):
        torch.save(content, path)
        exits(2, [*words, "--teacher", path], str(path), "stored parameters alone are no teacher", "package.module:function")
        renamed = path.rename(folder / "teacher.npz")  # whatever its name
        exits(2, [*words, "--teacher", renamed], "teacher.npz")
    fact(not marker.exists() and not list((folder / "run").glob("generation-*")), "nothing was unpickled or begun")


def code_of_others(folder: Path) -> None:
    (folder / "their_hostile.py").write_text(f"open({str(folder / 'marker')!r}, 'w')\n")
    with patch("warnings.warn"):  # without a program for other languages
        quietly(lambda: export_student(nn.Linear(4, 3), torch.rand(1, 4), folder / "student", "their_hostile:make"))
    with patch.object(sys, "path", [str(folder), *sys.path]):
        words = ("import and call their_hostile:make", "trust_code")
        refused(ConfigError, lambda: load_student(folder / "student"), *words)
    fact(not (folder / "marker").exists() and "their_hostile" not in sys.modules, "nothing was imported")


def formulas(folder: Path) -> None:
    risky = "=+-@\t\r"
    ids = np.array([f"{(risky + 'ax')[i % 8]}{i}" for i in range(60)])
    gold, pool = columns(1, 80), columns(2, 60)
    paths = (
        write(folder / "v.parquet", {**gold, "id": gold["id"].astype(str)}),
        write(folder / "u.parquet", {**pool, "id": ids}),
    )
    weigh_tables(paths[0], [paths[1]], folder / "w.csv", escape_formulas=True)
    found = read(folder / "w.csv", (), ("weight",))[0]
    same(found, [f"'{each}" if each[0] in risky else each for each in ids.tolist()])
    refused(
        ConfigError,
        lambda: weigh_tables(paths[0], [paths[1]], folder / "w.parquet", escape_formulas=True),
        *("--escape-formulas", "FILE.csv"),
    )


def paths_in_archives(folder: Path) -> None:
    place = folder / "in" / "deep"
    place.mkdir(parents=True)
    with zipfile.ZipFile(place / "x.npz", "w") as archive:
        for name in ("../../teacher.npy", "/tmp/wdistill-outside.npy"):
            archive.writestr(name, npy_bytes(np.full((4, 2), 0.5)))
    refused(InputError, lambda: read(place / "x.npz"), "no column 'teacher'")
    same(sorted(contents(folder)), ["in/deep/x.npz"])
    fact(not Path("/tmp/wdistill-outside.npy").exists(), "nothing was written elsewhere")


def bombs(folder: Path) -> None:
    official.write_mnist(folder / "mnist")
    (folder / "mnist" / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(1 << 22)))
    with patch.object(originals, "MAX_UNPACKED", 1 << 20):
        refused(FileError, lambda: prepare("mnist", folder, unofficial=True), "t10k-images-idx3-ubyte", "too large")
    with zipfile.ZipFile(folder / "x.npz", "w") as archive:
        for number in range(15_000):
            archive.writestr(f"{number}.npy", b"")
    refused(FileError, lambda: read(folder / "x.npz"), "too many members")


def secrets(folder: Path) -> None:
    with patch.dict(os.environ, {"AWS_SECRET_ACCESS_KEY": "hunter2-hunter2"}):
        run(run=folder / "run")
        gold, pool = two_tables(folder)
        weigh_tables(gold, [pool], folder / "w.parquet")
    kept = contents(folder)
    fact(len(kept) > 10 and not [name for name, content in kept.items() if b"hunter2" in content], "no file has the secret")


def manifests_that_lead_outside(folder: Path) -> None:
    (folder / "outside").write_bytes(b"x")
    for number, name in enumerate(("../outside", str(folder / "outside"), "deep/../../outside")):
        place = folder / str(number)
        place.mkdir()
        content = json.dumps({"number": 1, "state": {"step": 1}, "files": {name: [1, store.digest(b"x")]}})
        seal = f'{{"sha256": "{store.digest(content.encode())}", "content": {content}}}\n'
        (place / "generation-000001.json").write_text(seal)
        refused(CheckpointError, lambda p=place: CheckpointStore(p), str(place))


def escapes_in_ids(folder: Path) -> None:
    gold, pool = columns(1, 80), columns(2, 60)
    ids = np.array([f"\x1b[31m{i // 2}\nrow" for i in range(60)])
    paths = write(folder / "v.parquet", gold), write(folder / "u.parquet", {**pool, "id": ids})
    message = exits(2, ["weigh", "--validation", paths[0], "--unlabeled", paths[1], "--output", folder / "w.csv"], "x1b[31m")
    fact("\x1b" not in message and "31m0\nrow" not in message, "they are shown, not obeyed")
    red = folder / "\x1b[31mred"
    red.mkdir()
    with redirect_stderr(io.StringIO()) as said:
        go(rule={"\x1b[31marm": debiased}, run=red / "run")
    shown = said.getvalue()
    fact("x1b[31marm: epoch 2/2" in shown, "the arm is named")
    for words in (
        ["runs", red],
        ["show", red / "run"],
        ["verify", red / "run"],
        ["report", red / "run"],
        ["data", "--root", red],
    ):
        shown += printed(words)
    fact("\x1b" not in shown and shown.count("x1b[31m") > 5, "nor are names of folders and arms")


def deep_and_long_settings(folder: Path) -> None:
    for content in (b"epochs = " + b"[" * 20_000, b"#" * (2 << 20), b"epochs = 1" + b"0" * 5000):
        path = text(folder / "recipe.toml", content)
        refused(FileError, lambda p=path: read_recipe([p], {}), str(path), "not a TOML file")
    deep = text(folder / "x.jsonl", '{"id":1,"teacher":' + "[" * 20_000 + "]" * 20_000 + "}\n")
    refused(FileError, lambda: read(deep), "line 1", "nested")
    run(run=folder / "run")
    for path in (folder / "run").glob("generation-*.json"):
        path.write_bytes(b"[" * 20_000)
    refused(CheckpointError, lambda: go(run=folder / "run"), "generation-")


def open_folders(folder: Path) -> None:
    (folder / "run").mkdir()
    (folder / "run").chmod(0o777)
    report = run(run=folder / "run")
    told("\n".join(report.outcome.warnings), str(folder / "run"), "every user of this machine", "chmod o-w")
    (folder / "other").mkdir(mode=0o755)
    fact(not any("every user" in text for text in run(run=folder / "other").outcome.warnings), "others are not warned of")
