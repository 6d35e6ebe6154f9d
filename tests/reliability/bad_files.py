"""Provocations B1 to B23 of the catalogue: files that cannot be read, or not as what they should be."""

from __future__ import annotations

import errno
import os
import shutil
import struct
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.distilling import go, splits, undrawn
from tests.reliability.outcomes import contents, exits, fact, printed, quietly, refused, same, told, warned
from tests.tables import columns, take, write
from tests.test_readers import npy_header, parquet, read, text
from wdistill import CheckpointError, ConfigError, FileError, InputError, StorageError
from wdistill.runs.checkpoints import CheckpointStore
from wdistill.tables import job, weigh
from wdistill.tables.options import Options, Paths
from wdistill.training.files import read_data

FORMATS = ("parquet", "npz", "csv", "jsonl")
HEADER = "id,teacher_0,teacher_1,label\n"


def weigh_tables(gold: Path, pool: Sequence[Path], output: Path, **options: Any) -> dict[str, Any]:
    """`wdistill weigh` in this process; its errors are raised."""
    paths = Paths([str(gold)], [str(path) for path in pool])
    record: dict[str, Any] = quietly(lambda: weigh.weigh_files(paths, output, Options(**options)))
    return record


def weighed(gold: Path, pool: Sequence[Path], output: Path, **options: Any) -> Any:
    """The rows of the weights."""
    weigh_tables(gold, pool, output, **options)
    return pq.read_table(output).to_pydict()


def two_tables(folder: Path, kind: str = "parquet", rows: int = 60) -> tuple[Path, Path]:
    return write(folder / f"v.{kind}", columns(1, 80)), write(folder / f"u.{kind}", columns(2, rows, first=1000))


def refused_by_both(error: Any, path: Path, *words: str) -> None:
    """The reader of tables and the reader of data refuse the file."""
    refused(error, lambda: read(path), str(path), *words)
    refused(error, lambda: read_data(path), str(path))


def nothing_to_read(folder: Path) -> None:
    (folder / "folder").mkdir()
    text(folder / "empty.csv", "")
    refused_by_both(FileError, folder / "missing.parquet", "No such file")
    refused_by_both(FileError, folder / "folder", "empty folder")
    refused_by_both(FileError, folder / "empty.csv", "0 bytes")
    gold, pool = two_tables(folder)
    refused(FileError, lambda: weigh_tables(gold, [folder / "fold*"], folder / "w.parquet"), "Is a directory")
    if os.geteuid():  # root may read everything
        pool.chmod(0)
        refused_by_both(FileError, pool, "Permission denied")
    refused(FileError, lambda: read_data(folder / "none.npz"), "No such file")
    fact(not list(folder.glob("w.*")), "nothing was written")


def cut_files(folder: Path) -> None:
    for kind in ("parquet", "npz"):
        path = write(folder / f"x.{kind}", columns(1, 60))
        content = path.read_bytes()
        text(path, content[:-30])
        refused(FileError, lambda p=path: read(p), f"ends early at byte {len(content) - 30}", str(path))
    np.savez(folder / "inputs.npz", inputs=np.ones((60, 6)), label=np.zeros(60))
    text(folder / "inputs.npz", (folder / "inputs.npz").read_bytes()[:-30])
    refused(FileError, lambda: read_data(folder / "inputs.npz"), "inputs.npz")
    refused(InputError, lambda: read(text(folder / "x.csv", HEADER + "a,1,0,1\nb,1,")), "line 3", "3 fields")
    refused(FileError, lambda: read(text(folder / "x.jsonl", '{"id":1,"teacher":[1,0]}\n{"id":2,"te')), "line 2", "cut off")


def flipped_bits(folder: Path) -> None:
    store = CheckpointStore(folder / "run")
    for step in (1, 2):
        store.commit({"step": step}, {f"checkpoint-{step}-0.safetensors": bytes([step] * 50)})
    _flip(folder / "run" / "checkpoint-2-0.safetensors")
    again = warned(lambda: CheckpointStore(folder / "run"), "checkpoint-2-0.safetensors damaged or missing")
    same((again.state["step"], again.read("checkpoint-1-0.safetensors")), (1, bytes([1] * 50)))
    _flip(folder / "run" / "checkpoint-1-0.safetensors")
    refused(CheckpointError, lambda: CheckpointStore(folder / "run"), str(folder / "run"), "checkpoint-1-0.safetensors")
    gold, pool = two_tables(folder)
    output = folder / "w.parquet"
    weigh_tables(gold, [pool], output)
    printed(["verify", output])
    _flip(output, output.stat().st_size // 3)
    exits(3, ["verify", output], "damaged")


def _flip(path: Path, at: int = 25) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)


def other_extensions(folder: Path) -> None:
    wanted = read(write(folder / "x.parquet", columns(1, 60)))
    for kind in ("parquet", "npz"):
        path = write(folder / f"y.{kind}", columns(1, 60)).rename(folder / "x.txt")
        same(repr(read(path)), repr(wanted))
    for content, words in (
        (b"\x80\x04\x95pickle", ("cannot tell", "x80")),
        (b"some words only\n", ("cannot tell", "some words")),
        (b"\x1f\x8b\x08gzip", ("gzip", "Decompress")),
    ):
        refused(FileError, lambda c=content: read(text(folder / "x.csv", c)), "x.csv", *words)


def objects_in_archives(folder: Path) -> None:
    marker = folder / "marker"
    trap = np.array([Trap(marker)], object)
    np.savez(folder / "x.npz", teacher=trap, inputs=trap, allow_pickle=True)
    refused(FileError, lambda: read(folder / "x.npz"), "dtype object, which only unpickling")
    refused(FileError, lambda: read_data(folder / "x.npz"), "which only unpickling could read")
    np.save(folder / "inputs.npy", trap, allow_pickle=True)
    refused(FileError, lambda: read_data(folder), "inputs.npy", "dtype object", "not of real numbers")
    fact(not marker.exists(), "nothing was unpickled")


class Trap:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (open, (str(self.path), "w"))


def declared_too_much(folder: Path) -> None:
    huge = npy_header((10**12, 6)) + bytes(80)
    for name in ("teacher", "inputs"):
        text(folder / f"{name}.npy", huge)
        with zipfile.ZipFile(folder / f"{name}.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"{name}.npy", huge)
    for path in (folder / "teacher.npy", folder / "teacher.npz"):
        refused(FileError, lambda p=path: read(p), "ends early at byte")
    refused(FileError, lambda: read_data(folder / "inputs.npz"), "inputs.npz")
    refused(FileError, lambda: read_data(folder), "inputs.npy")
    np.savez_compressed(folder / "x.npz", teacher=np.zeros(1000))
    data = bytearray((folder / "x.npz").read_bytes())
    entry = data.index(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = struct.pack("<I", 0xFFFF_FFF0)
    refused(FileError, lambda: read(text(folder / "x.npz", bytes(data))), "'teacher'", "4294967280 bytes declared")


def kinds_of_csv(folder: Path) -> None:
    for delimiter, mark in ((",", "."), (";", ","), (";", "."), ("\t", ",")):
        for end in ("\n", "\r\n"):
            rows = [["id", "teacher_0", '"teacher_1"'], [f'"a{end}b"', f"0{mark}25", f"0{mark}75"]]
            path = text(folder / "x.csv", "\ufeff" + end.join(delimiter.join(row) for row in rows))
            ids, found = read(path)
            same((ids, found["teacher"].tolist()), ([f"a{end}b"], [[0.25, 0.75]]))
    for content, words in (
        ('a,1,0,1\n"b\nc",1,0,1\nd,1,0\n', ("line 5", "3 fields", "4 fields")),
        ("a,1,0,1\nb,1,0,1,9\n", ("line 3", "5 fields")),
        ("a,1,x7,1\n", ("line 2", "'teacher_1'", "'x7'")),
    ):
        refused(InputError, lambda c=content: read(text(folder / "x.csv", HEADER + c)), *words)


def csv_round_trip(folder: Path) -> None:
    gold, pool = two_tables(folder)
    wanted = weighed(gold, [pool], folder / "w.parquet")
    weigh_tables(gold, [pool], folder / "w.csv")
    _, found = read(folder / "w.csv", (), ("weight", "error", "distortion"))
    for name, values in found.items():
        same(values.astype(np.float32), np.array(wanted[name], np.float32))
    numbers = np.array([[0.1, 1 / 3, 5e-324], [1e300, np.nextafter(1, 2), 0]])
    lines = [f"r{row},{','.join(map(repr, values))}" for row, values in enumerate(numbers.tolist())]
    path = text(folder / "x.csv", "\n".join(["id,teacher_0,teacher_1,teacher_2", *lines]))
    same(read(path)[1]["teacher"], numbers)


def columns_by_name(folder: Path) -> None:
    for header, words in (
        ("id,techer,label", ("no column 'teacher'", "'label'", "Rename 'techer'")),
        ("ID,teacher_0,teacher_1", ("no column 'id'", "Rename 'ID'")),
        ("id,teacher_0,teacher_0", ("'teacher_0'", "same name")),
    ):
        refused(InputError, lambda h=header: read(text(folder / "x.csv", f"{h}\na,1,0\n")), "x.csv", *words)
    gold = columns(1, 80)
    gold["labels"] = gold.pop("label")
    path, (_, pool) = write(folder / "g.parquet", gold), two_tables(folder)
    refused(InputError, lambda: weigh_tables(path, [pool], folder / "w.parquet"), "columns id, labels", "rename 'labels'")


def repeated_and_missing_ids(folder: Path) -> None:
    gold, pool = columns(1, 80), columns(2, 60, first=1000)
    paths = two_tables(folder)
    for name, table, at in (("g", gold, 0), ("p", pool, 1)):
        ids = table["id"].copy()
        ids[9] = ids[3]
        given = [*paths]
        given[at] = write(folder / f"{name}.parquet", {**table, "id": ids})
        words = ("more than once", str(ids[3]), given[at].name)
        refused(InputError, lambda g=given: weigh_tables(g[0], [g[1]], folder / "w.parquet"), *words)
    path = parquet(folder / "n.parquet", id=[1, None, 3, None])
    refused(InputError, lambda: read(path, ()), "'id'", "2 of 4", "rows 1, 3 (from 0)")


def ids_of_another_type(folder: Path) -> None:
    gold, pool = write(folder / "v.parquet", columns(1, 80)), columns(2, 60, first=1000)
    teacher = write(folder / "t.parquet", take(pool, np.arange(60), "id", "teacher"))
    texts = np.array([f"{i:06d}" for i in pool["id"]])
    pupil = write(folder / "s.parquet", take({**pool, "id": texts}, np.arange(60), "id", "student"))
    refused(InputError, lambda: weigh_tables(gold, [teacher, pupil], folder / "w.parquet"), "another type", "s.parquet")
    same(read(text(folder / "x.csv", HEADER + "007,1,0,1\n"))[0], ["007"])


def ids_that_differ(folder: Path) -> None:
    gold, pool = write(folder / "v.parquet", columns(1, 80)), columns(2, 60, first=1000)
    teacher = write(folder / "t.parquet", take(pool, np.arange(60), "id", "teacher"))
    fewer = write(folder / "s.parquet", take(pool, np.arange(3, 60), "id", "student"))
    refused(
        InputError,
        lambda: weigh_tables(gold, [teacher, fewer], folder / "w.parquet"),
        *("3 ids only in", "1000", "--allow-subset"),
    )
    fact(not (folder / "w.parquet").exists(), "nothing was written")
    record = weigh_tables(gold, [teacher, fewer], folder / "w.parquet", allow_subset=True)
    told("\n".join(record["warnings"]), "tables differ in their ids", "3 ids only in")


def other_order(folder: Path) -> None:
    gold, pool = write(folder / "v.parquet", columns(1, 80)), columns(2, 60, first=1000)
    order = np.random.default_rng(0).permutation(60)
    teacher = write(folder / "t.parquet", take(pool, np.arange(60), "id", "teacher"))
    wanted = weighed(gold, [write(folder / "u.parquet", pool)], folder / "w.parquet")
    for name, rows in (("sorted", np.arange(60)), ("mixed", order)):
        pupil = write(folder / f"{name}.parquet", take(pool, rows, "id", "student"))
        same(weighed(gold, [teacher, pupil], folder / "w.parquet"), wanted)


def other_shards(folder: Path) -> None:
    gold, pool = write(folder / "v.parquet", columns(1, 80)), columns(2, 60, first=1000)
    wanted = weighed(gold, [write(folder / "u.parquet", pool)], folder / "w.parquet")
    for count in (3, 7):
        for number, rows in enumerate(np.array_split(np.arange(60), count)):
            write(folder / f"shards{count}" / f"{number}.parquet", take(pool, rows))
        same(weighed(gold, [folder / f"shards{count}"], folder / "w.parquet"), wanted)
    for number, rows in enumerate(np.array_split(np.arange(60), 3)[::-1]):
        write(folder / "reversed" / f"{number}.parquet", take(pool, rows))
    found = weighed(gold, [folder / "reversed"], folder / "w.parquet")
    order = np.argsort(found["id"])
    same({name: [values[row] for row in order] for name, values in found.items()}, wanted)


def shards_of_other_types(folder: Path) -> None:
    for first, second, words in (
        (np.float32, np.float64, ("float", "double")),
        (np.float64, None, ("'teacher'", "null")),
    ):
        shards = folder / str(second)
        write(shards / "0.parquet", {"id": np.arange(2), "teacher": np.full((2, 2), 0.5, first)})
        if second is None:
            parquet(shards / "1.parquet", id=[8, 9], teacher=pa.nulls(2))
        else:
            write(shards / "1.parquet", {"id": np.arange(8, 10), "teacher": np.full((2, 2), 0.5, second)})
        refused(InputError, lambda s=shards: read(s), "1.parquet", *words)


def changed_shards(folder: Path) -> None:
    inputs, labels = splits()["unlabeled"]
    changed = inputs.clone()
    changed[-1, -1] += 1
    with undrawn():
        quietly(lambda: go(run=folder / "run"))
        before = contents(folder / "run")
        refused(ConfigError, lambda: go(unlabeled=(changed, labels), run=folder / "run"), "data unlabeled sha256", " → ")
    same(contents(folder / "run"), before)
    gold = write(folder / "v.parquet", columns(1, 80))
    for number in range(3):
        write(folder / "u" / f"{number}.parquet", columns(number, 20, first=1000 * (number + 1)))
    output = folder / "w.parquet"
    with patch.object(job, "PART", 1):
        stopped(lambda: weigh_tables(gold, [folder / "u"], output), "part-000002")
        write(folder / "u" / "0.parquet", columns(9, 20, first=1000))
        found = weighed(gold, [folder / "u"], output)
    shutil.rmtree(folder / "w.parquet.parts", ignore_errors=True)
    same(found, weighed(gold, [folder / "u"], folder / "fresh.parquet"))


def stopped(call: Callable[[], object], name: str) -> None:
    """A job stops because a file of this name cannot be opened, as on a full disk."""

    def fail(operation: str, path: Path) -> None:
        if operation == "open" and path.name.lstrip(".").startswith(name):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with patch("wdistill.core.store.before", fail):
        refused(StorageError, call, "No space left")


def growing_file(folder: Path) -> None:
    for kind in FORMATS:
        path = write(folder / f"x.{kind}", columns(1, 50))
        chunks = weigh.open_tables([str(path)], option="--unlabeled")[0].chunks(["teacher"], rows=20)
        next(chunks)
        with path.open("ab") as stream:
            stream.write(b"\n")
        refused(FileError, lambda c=chunks: list(c), str(path), "changed while it was being read")


def odd_names(folder: Path) -> None:
    gold, pool = two_tables(folder)
    wanted = weighed(gold, [pool], folder / "w.parquet")
    for name in ("a b", "ü…", "line\nend", "x" * 255, "[x]*", os.fsdecode(b"\xff")):
        same(weighed(gold, [pool.rename(pool.with_name(name))], folder / "w.parquet"), wanted)
        pool = folder / name
    (folder / "loop").symlink_to(folder / "loop")
    refused(FileError, lambda: read(folder / "loop"), "loop", "symbolic links")
    refused(FileError, lambda: read(folder / ("x" * 256)), "File name too long")


def read_only_inputs(folder: Path) -> None:
    (folder / "in").mkdir()
    (folder / "out").mkdir()
    gold, pool = two_tables(folder / "in")
    before = contents(folder / "in"), (folder / "in").stat().st_mtime_ns
    (folder / "in").chmod(0o555)
    try:
        weigh_tables(gold, [pool], folder / "out" / "w.parquet")
    finally:
        (folder / "in").chmod(0o755)
    same((contents(folder / "in"), (folder / "in").stat().st_mtime_ns), before)


def addresses(folder: Path) -> None:
    for scheme in ("s3", "https", "hf", "file"):
        address = f"{scheme}://bucket/x.parquet"
        refused(FileError, lambda a=address: read(a), address, "remote files are not read", "Copy it")
        common = ["weigh", "--validation", "v", "--output", folder / "w.csv", "--unlabeled"]
        exits(2, [*common, address], "remote files are not read", address)


def no_unlabeled_rows(folder: Path) -> None:
    gold, pool = two_tables(folder, rows=0)
    refused(InputError, lambda: weigh_tables(gold, [pool], folder / "w.parquet"), "0 rows")
    inputs, _ = splits()["unlabeled"]
    refused(InputError, lambda: go(unlabeled=inputs[:0]), "unlabeled")
    fact(not (folder / "w.parquet").exists(), "nothing was written")
