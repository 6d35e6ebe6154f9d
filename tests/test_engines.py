"""`weigh --engine`: the same rows as one process makes, whatever an engine retries, reorders, repeats or loses."""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.partitions import FILES, ROWS, bytes_of, paths, rows_in_files, rows_of, weigh
from tests.tables import columns, write
from wdistill.cli.entry import main
from wdistill.core.errors import ConfigError, FileError, InputError, UnfinishedError, WdistillError
from wdistill.core.places import LocalPlace, RemotePlace, asked, place_of
from wdistill.engines.local import run_here
from wdistill.engines.weigh import weigh_partitions
from wdistill.tables.batch_function import BatchFunction, prepare_batches
from wdistill.tables.manifest import MANIFEST
from wdistill.tables.options import Options, Paths, read_options
from wdistill.tables.weigh import weigh_files

PAPER: dict[str, Any] = {}
BEST = {"method": "best"}
FIDELITY = {"rule": ("debiased", "fidelity")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return rows_in_files(tmp_path)


# the same rows --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [PAPER, BEST, FIDELITY, {"rule": ("unweighted",)}], ids=str)
@pytest.mark.filterwarnings("ignore::wdistill.WdistillWarning")
def test_an_engine_makes_the_rows_of_one_process(folder: Path, options: dict[str, Any]) -> None:
    weigh_files(paths(folder), folder / "w.parquet", read_options(options))
    record = weigh(folder, **options)
    assert rows_of(folder / "o").equals(rows_of(folder / "w.parquet"))
    assert record["rows"] == FILES * ROWS and len(record["parts"]) == FILES
    assert sorted(name for name in bytes_of(folder / "o") if not name.startswith("part-")) == [MANIFEST]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".npz"])
def test_all_formats_are_partitions(folder: Path, suffix: str) -> None:
    for file in sorted((folder / "u").iterdir()):
        table = pq.read_table(file)
        values = {name: np.array(table[name].to_pylist()) for name in table.column_names}
        wide = {f"{name}_{c}": values[name][:, c] for name in ("teacher", "student") for c in range(4)}
        write(folder / "other" / (file.stem + suffix), values if suffix != ".csv" else {"id": values["id"], **wide})
    gold = pq.read_table(folder / "gold.parquet")
    labels = {name: np.array(gold[name].to_pylist()) for name in gold.column_names}
    if suffix == ".csv":  # ids in text are text
        labels["id"] = labels["id"].astype(str)
    write(folder / "gold2.parquet", labels)
    given = Paths([str(folder / "gold2.parquet")], [str(folder / "other")])
    weigh_files(given, folder / "w.parquet", Options())
    weigh_partitions(given, str(folder / "o"), Options(), run_here)
    assert rows_of(folder / "o").equals(rows_of(folder / "w.parquet"))


@pytest.mark.filterwarnings("ignore::wdistill.WdistillWarning")
def test_tables_are_joined_file_by_file(folder: Path) -> None:
    for file in sorted((folder / "u").iterdir()):
        table = pq.read_table(file)
        pq.write_table(table.drop(["student"]), _made(folder / "t" / file.name))
        pq.write_table(table.drop(["teacher"]).take(list(reversed(range(ROWS)))), _made(folder / "s" / file.name))
    weigh_files(paths(folder), folder / "w.parquet", Options())
    weigh_partitions(paths(folder, "t", "s"), str(folder / "o"), Options(), run_here)
    assert rows_of(folder / "o").equals(rows_of(folder / "w.parquet"))
    (folder / "s" / "0.parquet").rename(folder / "s" / "9.parquet")
    with pytest.raises(InputError, match="do not hold the same ids"):
        weigh_partitions(paths(folder, "t", "s"), str(folder / "p"), Options(), run_here)
    (folder / "s" / "9.parquet").unlink()
    with pytest.raises(ConfigError, match="tables of different numbers of files"):
        weigh_partitions(paths(folder, "t", "s"), str(folder / "p"), Options(), run_here)


def _made(path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    return path


def unruly(work: Any, questions: Sequence[str], seed: int) -> Iterator[str]:
    """An engine that reorders, repeats, and gives up some attempts halfway."""
    rng = random.Random(seed)
    asked = [*questions, *rng.choices(questions, k=3)]
    rng.shuffle(asked)
    for question in asked:
        sent = pickle.loads(pickle.dumps(work))
        sent(question)  # an attempt whose answer is lost
        yield sent(question)


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6))
def test_what_an_engine_repeats_or_reorders_changes_no_byte(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    base = tmp_path_factory.mktemp("unruly")
    write(base / "gold.parquet", columns(0, 30, first=10_000))
    for number in range(3):
        write(base / "u" / f"{number}.parquet", columns(number + 1, 20, first=100 * number))
    weigh(base, "plain")
    weigh(base, "unruly", partial(unruly, seed=seed))
    assert bytes_of(base / "plain") == bytes_of(base / "unruly")


@pytest.mark.slow
def test_processes_of_this_machine_make_the_same_bytes(folder: Path) -> None:
    weigh(folder, "one")
    weigh(folder, "two", partial(run_here, workers=2))
    assert bytes_of(folder / "one") == bytes_of(folder / "two")


def test_errors_in_a_file_name_it_as_it_was_given(folder: Path) -> None:
    table = pq.read_table(folder / "u" / "2.parquet")
    bad = np.array(table["teacher"].to_pylist())
    bad[5] = np.nan
    pq.write_table(
        table.set_column(1, "teacher", pa.FixedSizeListArray.from_arrays(pa.array(bad.ravel()), 4)),
        folder / "u" / "2.parquet",
    )
    with pytest.raises(InputError, match=r"u/2.parquet, column 'teacher'.*\n.*in row 5"):
        weigh(folder)
    np.savez(folder / "u.npz", teacher=bad, student=bad)
    with pytest.raises(InputError, match="there are no ids"):
        weigh_partitions(paths(folder, "u.npz"), str(folder / "p"), Options(), run_here)


# places ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def memory() -> Iterator[str]:
    """A remote store in this process."""
    import fsspec

    yield "memory://bucket"
    fsspec.filesystem("memory").store.clear()


def test_remote_files_make_the_same_bytes(folder: Path, memory: str) -> None:
    import fsspec

    system = fsspec.filesystem("memory")
    system.put(str(folder / "u"), "/bucket/u", recursive=True)
    system.put_file(str(folder / "gold.parquet"), "/bucket/gold.parquet")
    given = Paths([f"{memory}/gold.parquet"], [f"{memory}/u"])
    weigh_partitions(given, f"{memory}/o", Options(), run_here)
    weigh(folder)
    remote = {path.rpartition("/")[2]: system.cat_file(path) for path in system.ls("/bucket/o", detail=False)}
    # the keys differ, which are of these versions of these files; the digests do not
    assert {name.rpartition("-")[2] for name in remote} == {name.rpartition("-")[2] for name in bytes_of(folder / "o")}
    parts = sorted(content for name, content in remote.items() if name.startswith("part-"))
    assert parts == sorted(content for name, content in bytes_of(folder / "o").items() if name.startswith("part-"))
    with pytest.raises(FileError) as error:
        weigh_partitions(Paths([f"{memory}/none.parquet"], [f"{memory}/u"]), str(folder / "x"), Options(), run_here)
    assert "memory://bucket/none.parquet" in str(error.value)


class Flaky:
    """A function that fails some times before it answers."""

    def __init__(self, failures: int, error: Exception) -> None:
        self.left, self.error, self.calls = failures, error, 0

    def __call__(self) -> str:
        self.calls += 1
        if self.left:
            self.left -= 1
            raise self.error
        return "answer"


@pytest.mark.parametrize("error", [OSError("reset"), TimeoutError(), RuntimeError("503 slow down")])
def test_a_store_that_does_not_answer_is_asked_again_a_few_times(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr("wdistill.core.places.PAUSE", 0.0)
    patient = Flaky(4, error)
    assert asked(patient, "s3://b") == "answer" and patient.calls == 5
    with pytest.raises(UnfinishedError, match="does not answer") as caught:
        asked(Flaky(5, error), "s3://b")
    assert caught.value.exit_code == 75


@pytest.mark.parametrize("error", [PermissionError("403"), FileNotFoundError("404")])
def test_a_store_that_refuses_is_not_asked_again(error: Exception) -> None:
    final = Flaky(9, error)
    with pytest.raises(WdistillError, match=r"refuses|no such file"):
        asked(final, "s3://b/x")
    assert final.calls == 1


@pytest.mark.parametrize("remote", [False, True])
def test_of_several_writers_one_is_first(tmp_path: Path, memory: str, remote: bool) -> None:
    place = place_of(f"{memory}/m" if remote else str(tmp_path))
    assert isinstance(place, RemotePlace if remote else LocalPlace)
    assert [place.put_if_absent("x", content) for content in (b"first", b"second")] == [True, False]
    assert place.read("x") == b"first" and place.names() == ["x"] and place.has("x") and not place.has("y")
    place.remove("x")
    assert place.read("x") is None and place.names() == []


# the pure function ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [PAPER, BEST], ids=str)
def test_batches_of_any_size_and_order_give_the_rows_of_the_command(folder: Path, options: dict[str, Any]) -> None:
    weigh_files(paths(folder), folder / "w.parquet", read_options(options))
    state = prepare_batches(folder / "gold.parquet", folder / "u", **options)
    assert state == prepare_batches(folder / "gold.parquet", folder / "u", **options)
    function, table = BatchFunction(state), pq.read_table(folder / "u")
    expected = rows_of(folder / "w.parquet")
    for size in (1, 7, 1000):
        batches = table.take(list(reversed(range(len(table))))).combine_chunks().to_batches(size)
        assert pa.Table.from_batches(map(pickle.loads(pickle.dumps(function)), batches)).sort_by("id").equals(expected)
    assert function.stream(table).read_all().sort_by("id").equals(expected)
    assert function(table.to_batches()[0].slice(0, 0)).schema == expected.schema


def test_a_batch_is_checked_like_a_file(folder: Path) -> None:
    function = BatchFunction(prepare_batches(folder / "gold.parquet", folder / "u"))
    batch = pq.read_table(folder / "u" / "0.parquet").to_batches()[0]
    with pytest.raises(InputError, match="no column 'student'"):
        function(batch.drop_columns(["student"]))
    with pytest.raises(InputError, match="a batch of rows, column 'teacher'"):
        function(batch.set_column(1, "teacher", pa.FixedSizeListArray.from_arrays(pa.array(np.full(240, 2.0)), 4)))
    with pytest.raises(ConfigError, match="not a batch"):
        function(pq.read_table(folder / "u"))
    for state in (
        b"",
        b"PK\x05\x06" + bytes(18),
        function.state[:-10],
        function.state.replace(b'"wdistill": 1', b'"wdistill": 2'),
    ):
        with pytest.raises(FileError, match="not a prepared job"):
            BatchFunction(state)(batch)


# the command ----------------------------------------------------------------------------------------------------------


def test_the_command_names_what_belongs_to_an_engine(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["weigh", "--validation", str(folder / "gold.parquet"), "--unlabeled", str(folder / "u"), "--output"]
    assert main([*flags, str(folder / "o"), "--engine", "local"]) == 0
    assert "output" in capsys.readouterr().out
    assert main([*flags, str(folder / "x"), "--workers", "2"]) == 2
    said = capsys.readouterr().err
    assert "--workers needs --engine local" in said and "add --engine local, or leave --workers out" in said
    assert main([*flags, str(folder / "x"), "--engine", "local", "--master", "local[2]"]) == 2
    assert "--engine spark" in capsys.readouterr().err
    (folder / "x").write_text("mine")
    assert main([*flags, str(folder / "x"), "--engine", "local"]) == 2
    assert "with --engine the output is a folder" in capsys.readouterr().err and (folder / "x").read_text() == "mine"
    assert main(["verify", str(folder / "o")]) == 0
    assert f"a folder of weights, {FILES + 1} of {FILES + 1} files whole" in capsys.readouterr().out
    assert main(["inspect", str(folder / "o"), "--picture", str(folder / "w.svg")]) == 0
    assert f"{FILES * ROWS}" in capsys.readouterr().out
    part = next(path for path in (folder / "o").iterdir() if path.name.startswith("part-"))
    part.write_bytes(part.read_bytes()[:-1])
    assert main(["verify", str(folder / "o")]) == 3
    assert f"damaged: {part}" in capsys.readouterr().out


@pytest.mark.kill
def test_the_command_resumes_after_a_worker_was_killed(folder: Path) -> None:
    for number in range(FILES, 12):
        write(folder / "u" / f"{number}.parquet", columns(number, 20_000, first=10**6 * number))
    flags = ["weigh", "--validation", str(folder / "gold.parquet"), "--unlabeled", str(folder / "u"), "--engine", "local"]
    command = [sys.executable, "-m", "wdistill", *flags, "--workers", "2", "--output", str(folder / "o")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        while not any((folder / "o").glob("part-*")):
            assert process.poll() is None
        workers = _children(process.pid)
        os.kill(workers[-1], signal.SIGKILL)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 75 and "a worker process died" in said and "Traceback" not in said
    assert main([*flags, "--output", str(folder / "o")]) == 0
    assert main([*flags, "--output", str(folder / "whole")]) == 0
    assert bytes_of(folder / "o") == bytes_of(folder / "whole")


def _children(parent: int) -> list[int]:
    """The processes that a process has started and that work for it, the last started last."""
    stats = [path.read_text().rpartition(")")[2].split() for path in Path("/proc").glob("[0-9]*/stat")]
    pids = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/stat")]
    return sorted(pid for pid, stat in zip(pids, stats, strict=True) if int(stat[1]) == parent)


def test_manifests_are_records_that_people_can_read(folder: Path) -> None:
    weigh(folder)
    record = json.loads((folder / "o" / MANIFEST).read_bytes())["content"]
    assert record["parts"][0]["input"].endswith("u/0.parquet") and record["options"]["rule"] == ["debiased"]
