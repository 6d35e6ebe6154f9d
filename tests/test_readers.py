"""The table readers: the same rows from every format, and an error that says what to do for everything else."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import re
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wdistill.core.errors import FileError, InputError, WdistillError
from wdistill.tables.formats.table import Chunk, Table, open_tables

N, K = 50, 3
IDS = np.arange(100, 100 + N)
TEACHER = np.random.default_rng(0).random((N, K))
STUDENT = np.random.default_rng(1).random((N, K))
LABEL = np.arange(N) % K
FORMATS = ["parquet", "wide.parquet", "npz", "csv", "jsonl"]


def lists(matrix: np.ndarray, kind: str = "list") -> pa.Array:
    """A matrix as an Arrow column of lists."""
    flat, (n, k) = pa.array(matrix.reshape(-1)), matrix.shape
    if kind == "fixed":
        return pa.FixedSizeListArray.from_arrays(flat, k)
    offsets = np.arange(0, n * k + 1, k)
    if kind == "large":
        return pa.LargeListArray.from_arrays(pa.array(offsets), flat)
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), flat)


def wide(name: str, matrix: np.ndarray) -> dict[str, np.ndarray]:
    return {f"{name}_{i}": column for i, column in enumerate(matrix.T)}


def write(path: Path, rows: slice = slice(None)) -> Path:
    """The same rows in the format that the suffix names."""
    ids, teacher, student, label = IDS[rows], TEACHER[rows], STUDENT[rows], LABEL[rows]
    if path.name.endswith("wide.parquet"):
        columns = {"id": ids, **wide("student", student), **wide("teacher", teacher), "label": label}
        pq.write_table(pa.table(columns), path)
    elif path.suffix == ".parquet":
        columns = {"id": ids, "teacher": lists(teacher), "student": lists(student, "fixed"), "label": label}
        pq.write_table(pa.table(columns), path, row_group_size=7)
    elif path.suffix == ".npz":
        np.savez(path, id=ids, teacher=teacher, student=student, label=label)
    elif path.suffix == ".csv":
        names = ["id", *wide("teacher", teacher), *wide("student", student), "label"]
        lines = [f"{i},{','.join(map(str, [*t, *s]))},{y}" for i, t, s, y in zip(ids, teacher, student, label, strict=True)]
        path.write_text("\n".join([",".join(names), *lines]) + "\n")
    else:
        rows_ = zip(ids.tolist(), teacher.tolist(), student.tolist(), label.tolist(), strict=True)
        lines = [json.dumps({"id": i, "teacher": t, "student": s, "label": y}) for i, t, s, y in rows_]
        path.write_text("\n".join(lines) + "\n")
    return path


def table(*sources: object) -> Table:
    """The one table that the sources are."""
    (only,) = open_tables([str(source) for source in sources], option="--unlabeled")
    return only


def together(chunks: Iterator[Chunk]) -> tuple[list[Any], dict[str, np.ndarray]]:
    """All ids and columns of some chunks."""
    got = list(chunks)
    names = got[0].columns
    return [i for c in got for i in c.ids.to_pylist()], {n: np.concatenate([c.columns[n] for c in got]) for n in names}


def text(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def parquet(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def refused(kind: type[WdistillError], action: Callable[[], Any], *words: str) -> str:
    """The message of an error, which has every part and the words that are named."""
    with pytest.raises(WdistillError) as caught:
        action()
    error = caught.value
    message = str(error)
    assert type(error) is kind, message
    assert error.where.startswith("--unlabeled "), message
    assert error.found and error.expected, message
    assert error.remedy.endswith("."), message
    for word in words:
        assert word in message, f"{word!r} is not in: {message}"
    return message


def read(source: object, matrices: tuple[str, ...] = ("teacher",), vectors: tuple[str, ...] = ()) -> Any:
    return together(table(source).chunks(matrices, vectors))


# The same rows from every format


@pytest.mark.parametrize("rows", [1, 7, N, 65536])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_arrays(tmp_path: Path, name: str, rows: int) -> None:
    opened = table(write(tmp_path / f"x.{name}"))
    assert opened.format == name.split(".")[-1]
    assert opened.rows == (None if name in ("csv", "jsonl") else N)
    assert opened.bytes == opened.files[0].stat().st_size
    assert all(opened.has(column) for column in ("id", "teacher", "student", "label")) and not opened.has("teach")
    assert opened.classes("teacher") is None
    chunks = list(opened.chunks(["teacher", "student"], ["label"], rows=rows))
    assert all(len(chunk.ids) <= rows and chunk.file == 0 for chunk in chunks)
    assert [chunk.first for chunk in chunks] == np.cumsum([0] + [len(c.ids) for c in chunks])[:-1].tolist()
    ids, columns = together(iter(chunks))
    assert ids == (list(map(str, IDS)) if name == "csv" else IDS.tolist())
    for array in columns.values():
        assert array.flags.c_contiguous and array.flags.writeable
    np.testing.assert_array_equal(columns["teacher"], TEACHER)
    np.testing.assert_array_equal(columns["student"], STUDENT)
    np.testing.assert_array_equal(columns["label"], LABEL)
    assert columns["teacher"].dtype == np.float64 and columns["label"].dtype == np.int64


@pytest.mark.parametrize("name", FORMATS)
def test_ids_alone(tmp_path: Path, name: str) -> None:
    chunks = list(table(write(tmp_path / f"x.{name}")).chunks(rows=20))
    assert sum(len(chunk.ids) for chunk in chunks) == N
    assert all(chunk.columns == {} for chunk in chunks)


@pytest.mark.parametrize("name", FORMATS)
def test_shards_follow_each_other_and_never_mix(tmp_path: Path, name: str) -> None:
    for number, rows in enumerate([slice(0, 20), slice(20, 21), slice(21, N)]):
        write(tmp_path / f"part{number}.{name}", rows)
    text(tmp_path / ".hidden", "x")
    (tmp_path / "folder").mkdir()
    whole = read(write(tmp_path / "folder" / f"x.{name}"))
    for source in (tmp_path, tmp_path / "part*"):
        opened = table(source)
        assert [path.name for path in opened.files] == [f"part{number}.{name}" for number in range(3)]
        ids, columns = together(opened.chunks(["teacher"], rows=8))
        assert ids == whole[0]
        np.testing.assert_array_equal(columns["teacher"], whole[1]["teacher"])
        assert [(c.file, c.first) for c in opened.chunks(start=1, rows=65536)] == [(1, 0), (2, 0)]
        assert list(opened.chunks(start=3)) == []


def test_every_source_is_a_table_but_npy_files_are_columns_of_one(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.csv"), write(tmp_path / "b.npz")
    np.save(tmp_path / "teacher.npy", TEACHER)
    np.save(tmp_path / "raw.npy", LABEL)
    sources = [str(first), str(tmp_path / "teacher.npy"), str(second), f"truth={tmp_path / 'raw.npy'}"]
    tables = open_tables(sources, option="--labeled")
    assert [opened.format for opened in tables] == ["csv", "npy", "npz"]
    assert tables[1].columns == ("teacher", "truth") and tables[1].rows == N and len(tables[1].files) == 2
    ids, columns = together(tables[1].chunks(["teacher"], ["truth"], rows=9))
    assert ids == list(range(N))
    np.testing.assert_array_equal(columns["teacher"], TEACHER)
    np.testing.assert_array_equal(columns["truth"], LABEL)


@pytest.mark.parametrize("kind", ["list", "large", "fixed"])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "u1", "?"])
def test_lists_of_every_kind(tmp_path: Path, kind: str, dtype: str) -> None:
    matrix = (TEACHER * 3).astype(dtype)
    path = parquet(tmp_path / "x", id=IDS, teacher=lists(matrix, kind))
    _, columns = together(table(path).chunks(["teacher"], rows=11))
    assert columns["teacher"].dtype == (dtype if dtype[0] == "f" else np.float64)
    np.testing.assert_array_equal(columns["teacher"], matrix)


@pytest.mark.parametrize("dtype", ["f2", "f4", ">f8", ">i2", "?", "u8"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_of_every_kind(tmp_path: Path, dtype: str, order: Any, save: Any) -> None:
    matrix = np.asarray((TEACHER * 3).astype(dtype), order=order)
    save(tmp_path / "x.npz", teacher=matrix, student=TEACHER, id=IDS.astype("U"))
    ids, columns = together(table(tmp_path / "x.npz").chunks(["teacher", "student"], rows=11))
    assert ids == IDS.astype("U").tolist()
    assert columns["teacher"].dtype.isnative
    np.testing.assert_array_equal(columns["teacher"], matrix)
    np.testing.assert_array_equal(columns["student"], TEACHER)


def test_npz_without_ids_counts_its_rows_over_all_files(tmp_path: Path) -> None:
    for number in range(3):
        np.savez(tmp_path / f"{number}.npz", teacher=TEACHER[: 10 + number])
    opened = table(tmp_path)
    assert opened.rows == 33
    assert together(opened.chunks(rows=4))[0] == list(range(33))
    assert together(opened.chunks(start=2, rows=4))[0] == list(range(21, 33))


def test_wide_columns_in_any_order_and_with_names(tmp_path: Path) -> None:
    many = np.random.default_rng(2).random((N, 12))
    shuffled = dict(reversed(wide("teacher", many).items()))
    path = parquet(tmp_path / "numbered", id=IDS, **shuffled, teacher_model=["a"] * N, teacher_b_0=IDS)
    np.testing.assert_array_equal(read(path)[1]["teacher"], many)
    named = text(tmp_path / "named.csv", "student_dog,id,student_cat\n1,a,0.5\n")
    assert table(named).classes("student") == ("dog", "cat")
    assert read(named, ("student",))[1]["student"].tolist() == [[1.0, 0.5]]
    assert not table(parquet(tmp_path / "x", id=[1], label_name=["a"], label_by=["b"])).has("label")


def test_vectors_keep_their_type(tmp_path: Path) -> None:
    columns = {
        "small": pa.array([1, 2], pa.int8()),
        "single": pa.array([0.5, 2], pa.float32()),
        "yes": [True, False],
        "name": pa.array(["a", "bc"], pa.large_string()),
        "coded": pa.array(["a", "a"]).dictionary_encode(),
    }
    _, got = read(parquet(tmp_path / "x", id=["a", "b"], **columns), (), tuple(columns))
    assert [got[name].dtype.kind for name in columns] == ["i", "f", "b", "U", "U"]
    assert got["small"].dtype == np.int64 and got["single"].dtype == np.float64
    assert got["coded"].tolist() == ["a", "a"] and got["name"].tolist() == ["a", "bc"]


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.uint64(), pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]
)
def test_ids_become_int64_or_string(tmp_path: Path, kind: pa.DataType) -> None:
    ids = pa.array([1, 2]).cast(pa.string()).cast(kind) if pa.types.is_string(kind) else pa.array(["1", "2"]).cast(kind)
    (chunk,) = table(parquet(tmp_path / "x", id=ids)).chunks()
    assert chunk.ids.type == (pa.int64() if pa.types.is_integer(kind) else pa.string())


# CSV and JSON lines


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize(("delimiter", "mark"), [(",", "."), (";", ","), (";", "."), ("\t", ","), ("|", ".")])
def test_csv_dialects(tmp_path: Path, delimiter: str, mark: str, bom: str, end: str) -> None:
    rows = [["id", "teacher_0", '"teacher_1"', "label"], ["007", f"0{mark}25", "1", f"1{mark}5"]]
    rows += [[f'"a{end}b"', "1e-3", f"-{mark}5" if mark == "." else "-0,5", "2"]]
    path = text(tmp_path / "x", bom + end.join(delimiter.join(row) for row in rows))
    ids, columns = read(path, ("teacher",), ("label",))
    assert ids == ["007", f"a{end}b"]
    assert columns["teacher"].tolist() == [[0.25, 1.0], [0.001, -0.5]]
    assert columns["label"].tolist() == [1.5, 2.0]


def test_csv_blank_lines_are_passed_over(tmp_path: Path) -> None:
    path = text(tmp_path / "x", "\ufeff\r\n\nid,teacher_0,teacher_1\n\na,1,0\n\nb,0,1\n")
    assert read(path)[0] == ["a", "b"]
    refused(InputError, lambda: read(text(path, path.read_bytes() + b"c,0,x\n")), "line 8", "row 2", "'x'")


def test_csv_single_column_and_strings(tmp_path: Path) -> None:
    assert read(text(tmp_path / "x", "id\n007\n\n2020-01-01\n"), ())[0] == ["007", "2020-01-01"]
    _, columns = read(text(tmp_path / "y", "id,label,day\n1,cat,2020-01-01\n2,true,2020-01-02\n"), (), ("label", "day"))
    assert columns["label"].tolist() == ["cat", "true"] and columns["day"].tolist() == ["2020-01-01", "2020-01-02"]


@pytest.mark.slow
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.floats(allow_nan=False), min_size=2, max_size=20))
def test_text_numbers_come_back_to_the_bit(tmp_path: Path, values: list[float]) -> None:
    matrix = np.array([values])
    lines = ",".join(["id", *wide("teacher", matrix)]), ",".join(["a", *map(repr, values)])
    np.testing.assert_array_equal(read(text(tmp_path / "x", "\n".join(lines)))[1]["teacher"], matrix)
    if np.isfinite(matrix).all():
        path = text(tmp_path / "y", json.dumps({"id": "a", "teacher": values}))
        np.testing.assert_array_equal(read(path)[1]["teacher"], matrix)


@pytest.mark.slow
def test_long_text_is_read_in_blocks(tmp_path: Path) -> None:
    n = 60_000
    csv_path = text(tmp_path / "x", "id,teacher_0,teacher_1,label\n" + "".join(f"k{i},{i},0.5,{i}\n" for i in range(n)))
    json_path = text(tmp_path / "y", "".join(f'{{"id":{i},"teacher":[{i},0.5]}}\n' for i in range(n)))
    for path in (csv_path, json_path):
        chunks = list(table(path).chunks(["teacher"], rows=10_000))
        assert len(chunks) > 6 and max(len(chunk.ids) for chunk in chunks) <= 10_000
        assert np.concatenate([chunk.columns["teacher"] for chunk in chunks])[:, 0].tolist() == list(range(n))
    with csv_path.open("a") as stream:
        stream.write("last,1,1,2.5\n")
    words = ("line 60002", "row 60000", "'label'", "'2.5'", "integer")
    refused(InputError, lambda: read(csv_path, ("teacher",), ("label",)), *words)
    with json_path.open("a") as stream:
        stream.write('\n{"id":1,"teacher":[1,"x"]}\n')
    refused(FileError, lambda: read(json_path), "line 60002", "row 60000", "'teacher'", "'x'")


def test_long_fields_of_other_columns_do_no_harm(tmp_path: Path) -> None:
    path = text(tmp_path / "x", f'id,text,teacher_0,teacher_1\n1,"{"x" * 200_000}",1,0\n2,y,1,0\n')
    assert read(path)[0] == ["1", "2"]


def test_json_ids_that_look_like_dates_stay_strings(tmp_path: Path) -> None:
    lines = '{"id":"2020-01-01","teacher":[1,0],"label":true}\n\n{"id":"2020-01-02","teacher":[0.5,0.5],"label":false}'
    ids, columns = read(text(tmp_path / "x", lines), ("teacher",), ("label",))
    assert ids == ["2020-01-01", "2020-01-02"]
    assert columns["teacher"].tolist() == [[1, 0], [0.5, 0.5]] and columns["label"].tolist() == [True, False]


HEADER = "id,teacher_0,teacher_1,label\n"
BAD_TEXT = [
    (HEADER + 'a,1,0,1\n"b\nc",1,0,1\nd,1,0\n', InputError, ["line 5", "3 fields", "4 fields"]),
    (HEADER + "a,1,0,1\nb,1,0,1,9\n", InputError, ["line 3", "5 fields", "4 fields"]),
    (HEADER + 'a,1,0,1\n"b\nc",1,x7,1\n', InputError, ["line 3", "row 1", "'teacher_1'", "'x7'", "a number"]),
    (HEADER + "a,1,NA,1\n", InputError, ["line 2", "'NA'"]),
    (HEADER + "a,1,,1\nb,1,0,1\nc,,0,1\n", InputError, ["'teacher'", "2 of 3", "rows 0, 2", "'a', 'c'"]),
    (HEADER + "a,1,0,1\n,1,0,1\n", InputError, ["'id'", "1 of 2", "row 1 (from 0)"]),
    (HEADER + "a,1,0,1\nb,1,0,\n", InputError, ["'label'", "1 of 2", "row 1", "'b'"]),
    (HEADER.encode() + b"a,1,0,1\n" * 999 + b"\xff,1,0,1\n", InputError, ["line 1001", "'id'", "UTF-8 text"]),
    ("id,teacher_0,,label\na,1,0,1\n", InputError, ["column number 3", "no name"]),
    ("id,teacher_0,teacher_0,label\na,1,0,1\n", InputError, ["'teacher_0'", "same name"]),
    ("id,teacher_0,teacher_2,label\na,1,0,1\n", InputError, ["without teacher_1"]),
    ("id,teacher_0,teacher_00,label\na,1,0,1\n", InputError, ["each number once"]),
    ("ID,teacher_0,teacher_1,label\na,1,0,1\n", InputError, ["no column 'id'", "Rename 'ID'"]),
    ("id,techer,label\na,1,1\n", InputError, ["no column 'teacher'", "'label'", "Rename 'techer'"]),
    ('id,teacher,label\na,"[1, 0]",1\n', InputError, ["'teacher'", "string", "teacher_0, teacher_1"]),
    ("id,teacher_0,teacher_1,lable\na,1,0,1\n", InputError, ["no column 'label'", "Rename 'lable'"]),
    (",".join(["id", "label", *(f"teacher_{i}" for i in range(300_000))]) + "\n1\n", FileError, ["too long"]),
    (HEADER + 'a,1,0,"' + "x" * 3_000_000, FileError, ["too long"]),
    ('{"id":1,"teacher":[1,0],"label":1}\n{"id":2,"teacher":[1,0],"label"', FileError, ["line 2", "cut off"]),
    ('{"id":1,"teacher":[1,NaN],"label":1}\n', FileError, ["line 1", "NaN is not a number"]),
    ('{"id":1,"teacher":[1,0],"label":1}\n\n{"id":2,"teacher":[1e999,0],"label":1}\n', FileError, ["line 3", "1e999"]),
    ('{"id":1,"teacher":[1,0],"label":1}\n[1]\n', FileError, ["line 2", "list instead of an object"]),
    ('{"id":1,"teacher":[1,null],"label":1}\n', InputError, ["'teacher'", "1 of 1", "row 0 (from 0; id 1)"]),
    ('{"id":1,"teacher":[1,0],"label":1}\n{"id":2,"label":1}\n', InputError, ["'teacher'", "1 of 2", "row 1"]),
    (
        '{"id":1,"teacher":[1,0],"label":1}\n{"id":2,"teacher":[1],"label":1}\n',
        InputError,
        ["1 entries", "row 1", "2 entries"],
    ),
    ('{"id":1,"teacher":[],"label":1}\n', InputError, ["'teacher'", "lists of numbers"]),
    ('{"id":1.5,"teacher":[1,0],"label":1}\n', InputError, ["'id'", "double", "integers or strings"]),
    ('{"id":1,"id":2,"teacher":[1,0],"label":1}\n', FileError, ["twice"]),
    ('{"id":1,"teacher":[1,0],"label":[1]}\n', InputError, ["'label'", "list<", "one number or string"]),
    ('{"id":1,"teacher":' + "[" * 100_000, FileError, ["line 1", "nested"]),
    ('{"id":"' + "x" * 3_000_000 + '","teacher":[1,0],"label":1}\n', FileError, ["too long"]),
]


@pytest.mark.parametrize(("content", "kind", "words"), BAD_TEXT, ids=range(len(BAD_TEXT)))
def test_bad_text(tmp_path: Path, content: str | bytes, kind: type[WdistillError], words: list[str]) -> None:
    path = text(tmp_path / "x", content)
    refused(kind, lambda: read(path, ("teacher",), ("label",)), str(path), *words)


# Columns that do not fit

BAD_COLUMNS: list[tuple[dict[str, Any], list[str]]] = [
    ({"id": [1, None, 3, None]}, ["'id'", "2 of 4", "rows 1, 3 (from 0)"]),
    ({"id": [None] * 9}, ["'id'", "null"]),
    ({"id": pa.array([None] * 9, pa.int64())}, ["9 of 9", "rows 0, 1, 2, 3, 4, …"]),
    ({"id": [1.0]}, ["'id'", "double"]),
    ({"id": [True]}, ["'id'", "bool"]),
    ({"id": pa.array([1, 2**63], pa.uint64())}, ["'id'", str(2**63), "row 1", "as strings"]),
    ({"id": [1], "label": pa.array([2**63], pa.uint64())}, ["'label'", str(2**63)]),
    ({"id": ["a", "b"], "teacher": [[1.0, 0.0], None]}, ["'teacher'", "1 of 2", "row 1", "'b'"]),
    ({"id": ["a", "b"], "teacher": [[1.0, None], [1.0, 2.0]]}, ["'teacher'", "1 of 2", "row 0", "'a'"]),
    ({"id": ["a", "b"], "teacher": [[1.0, 0.0], [1.0]]}, ["1 entries", "row 1", "'b'", "2 entries"]),
    ({"id": [1], "teacher": pa.array([[]], pa.list_(pa.float64()))}, ["0 entries", "one entry a class"]),
    ({"id": [1], "teacher": [["x"]]}, ["'teacher'", "string", "lists of numbers"]),
    ({"id": [1], "teacher": [0.5]}, ["'teacher'", "double", "lists of numbers"]),
    ({"id": [1], "teacher_0": [1.0], "teacher_1": ["x"]}, ["'teacher_1'", "string", "numbers"]),
    ({"id": [1], "teacher_1": [1.0], "teacher_3": [1.0]}, ["without teacher_0, teacher_2"]),
    ({"id": [1], "label": [[1]]}, ["'label'", "list<", "one number or string"]),
    ({"id": [1], "label": pa.array([None], pa.null())}, ["'label'", "null"]),
    ({"id": [1], "label": pa.array([0], pa.timestamp("s"))}, ["'label'", "timestamp"]),
    ({"id": [1, 2], "label": pa.array([1, None]).dictionary_encode()}, ["'label'", "1 of 2", "row 1"]),
    ({"Id": [1]}, ["no column 'id'", "Rename 'Id'"]),
    ({"name": [1]}, ["no column 'id'", "'name'"]),
]


@pytest.mark.parametrize(("columns", "words"), BAD_COLUMNS, ids=range(len(BAD_COLUMNS)))
def test_bad_columns(tmp_path: Path, columns: dict[str, Any], words: list[str]) -> None:
    path = parquet(tmp_path / "x", **columns)
    matrices = ("teacher",) if any(name.startswith("teacher") for name in columns) else ()
    vectors = ("label",) if "label" in columns else ()
    refused(InputError, lambda: read(path, matrices, vectors), str(path), *words)


def test_a_numbered_column_is_no_vector(tmp_path: Path) -> None:
    path = parquet(tmp_path / "x", id=[1], teacher_0=[1.0], teacher_1=[0.0], truth_2024=[3])
    refused(InputError, lambda: read(path, (), ("teacher_0",)), "one class of 'teacher'")
    assert read(path, (), ("truth_2024",))[1]["truth_2024"].tolist() == [3]


def test_parquet_with_two_columns_of_one_name(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"]), tmp_path / "x")
    refused(InputError, lambda: read(tmp_path / "x", ()), "'id'", "same name")


# Files of one table that differ

DRIFTS: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    ({"teacher": lists(np.ones((1, 2), "f4"))}, {"teacher": lists(np.ones((1, 2)))}, ["float", "double"]),
    ({"teacher": lists(np.ones((1, 2)))}, {"teacher": lists(np.ones((1, 3)))}, ["3 entries", "2 entries"]),
    (wide("teacher", np.ones((1, 2))), wide("teacher", np.ones((1, 3))), ["teacher_2", "nothing"]),
    ({"teacher_a": [1.0], "teacher_b": [0.0]}, {"teacher_b": [1.0], "teacher_a": [0.0]}, ["teacher_b", "teacher_a"]),
    ({"teacher": [[1.0]]}, {"student": [[1.0]]}, ["no column 'teacher'"]),
    ({"teacher": [[1.0]], "id": [1]}, {"teacher": [[1.0]], "id": ["007"]}, ["'id'", "string", "int64"]),
    ({"teacher": [[1.0]]}, {"teacher": pa.nulls(1)}, ["'teacher'", "null"]),
]


@pytest.mark.parametrize(("first", "second", "words"), DRIFTS, ids=range(len(DRIFTS)))
def test_drift_between_files(tmp_path: Path, first: dict[str, Any], second: dict[str, Any], words: list[str]) -> None:
    parquet(tmp_path / "0", **{"id": [1], **first})
    parquet(tmp_path / "1", **{"id": [1], **first})
    path = parquet(tmp_path / "2", **{"id": [2], **second})
    refused(InputError, lambda: read(tmp_path), str(path), *words)


def test_drift_in_other_formats(tmp_path: Path) -> None:
    text(tmp_path / "c0", '{"id":7,"teacher":[1,0]}\n')
    text(tmp_path / "c1", '{"id":"007","teacher":[1,0]}\n')
    refused(InputError, lambda: read(tmp_path / "c*"), "c1", "id (string)", "id (int64)", "c0")
    text(tmp_path / "a0", "id,teacher_cat,teacher_dog\n1,1,0\n")
    text(tmp_path / "a1", "id,teacher_dog,teacher_cat\n1,1,0\n")
    refused(InputError, lambda: read(tmp_path / "a*"), "a1", "teacher_dog, teacher_cat", "a0")
    np.savez(tmp_path / "b0.npz", teacher=TEACHER)
    np.savez(tmp_path / "b1.npz", teacher=TEACHER.astype("f4"))
    refused(InputError, lambda: read(tmp_path / "b*"), "b1.npz", "float", "double", "b0.npz")


def test_files_without_rows_are_passed_over(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": pa.nulls(0), "teacher": pa.nulls(0)}), tmp_path / "a0")
    parquet(tmp_path / "a1", id=[1], teacher=[[1.0, 0.0]])
    pq.write_table(pa.table({"id": pa.nulls(0)}), tmp_path / "a2")
    text(tmp_path / "b0", "id,teacher_0,teacher_1")
    text(tmp_path / "b1", "id,teacher_0,teacher_1\n1,1,0\n")
    np.savez(tmp_path / "c0.npz", id=IDS[:0], teacher=TEACHER[:0])
    np.savez(tmp_path / "c1.npz", id=IDS[:1], teacher=TEACHER[:1])
    for name in "abc":
        (chunk,) = table(tmp_path / f"{name}*").chunks(["teacher"])
        assert (chunk.file, len(chunk.ids)) == (1, 1)
    assert list(table(tmp_path / "b0").chunks(["teacher"])) == []


def test_names_that_begin_with_a_dot_or_a_line_are_left_out_unless_a_glob_begins_so(tmp_path: Path) -> None:
    for name in ("a.parquet", ".b.parquet", "_c.parquet"):
        write(tmp_path / name)
    (tmp_path / "_SUCCESS").touch()
    for text, names in (("", ["a.parquet"]), ("*", ["a.parquet"]), ("_*.parquet", ["_c.parquet"])):
        (table,) = open_tables([f"{tmp_path}/{text}"], option="--unlabeled")
        assert [path.name for path in table.files] == names
    (tmp_path / "a.parquet").unlink()
    for text in ("", "*"):
        with pytest.raises(FileError, match="there are no files here"):
            open_tables([f"{tmp_path}/{text}"], option="--unlabeled")


def test_formats_do_not_mix_in_one_table(tmp_path: Path) -> None:
    write(tmp_path / "a.csv")
    path = write(tmp_path / "b.parquet")
    refused(FileError, lambda: table(tmp_path), str(path), "parquet", "csv")


# Files that are not what they should be


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    text(tmp_path / "empty", "")
    refused(FileError, lambda: table(tmp_path / "missing"), "missing", "No such file")
    refused(FileError, lambda: table(tmp_path / "loop"), "loop", "symbolic links")
    refused(FileError, lambda: table(tmp_path / "gone"), "gone", "No such file")
    refused(FileError, lambda: table(tmp_path / "fifo"), "fifo", "Not a regular file")
    refused(FileError, lambda: table(tmp_path / "folder"), "no files", "empty folder")
    refused(FileError, lambda: table(tmp_path / "*.csv"), "no files", "*.csv")
    refused(FileError, lambda: table(tmp_path / "empty"), "empty", "0 bytes")
    refused(FileError, lambda: table(tmp_path / ("x" * 256)), "File name too long")
    refused(FileError, lambda: table(tmp_path / "fold*"), "Is a directory")
    refused(FileError, lambda: table(f"teacher={tmp_path / 'missing.npy'}"), "No such file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv")
    path.chmod(0)
    refused(FileError, lambda: table(path), "Permission denied")


@pytest.mark.parametrize("name", ["a b", "ü…", "line\nend", "x" * 255, "a=b", "[x]*", os.fsdecode(b"\xff")])
@pytest.mark.parametrize("kind", FORMATS)
def test_odd_names_work(tmp_path: Path, name: str, kind: str) -> None:
    write(tmp_path / f"x.{kind}").rename(tmp_path / name)
    assert len(read(tmp_path / name)[0]) == N


def test_content_decides_the_format(tmp_path: Path) -> None:
    for name in FORMATS:
        path = write(tmp_path / f"x.{name}").rename(tmp_path / "x.txt")
        assert table(path).format == name.split(".")[-1]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (gzip.compress(b"id,x\n", mtime=0), ["gzip", "Decompress"]),
        (b"\x80\x04\x95pickle", ["cannot tell", "x80"]),
        (b"some words only\n", ["cannot tell", "some words"]),
        ("id,teacher".encode("utf-16"), ["cannot tell", "UTF-8"]),
        (b"id,\0\n", ["cannot tell"]),
        (b" \n\n ", ["cannot tell"]),
    ],
)
def test_content_that_is_no_table(tmp_path: Path, content: bytes, words: list[str]) -> None:
    refused(FileError, lambda: table(text(tmp_path / "x.csv", content)), str(tmp_path / "x.csv"), *words)


def test_npy_names(tmp_path: Path) -> None:
    np.save(tmp_path / "teacher.npy", TEACHER)
    np.save(tmp_path / "other.npy", TEACHER)
    np.save(tmp_path / "label.npy", LABEL[1:])
    first = str(tmp_path / "teacher.npy")
    refused(InputError, lambda: table(tmp_path / "other.npy"), "COLUMN=PATH.npy", "'other'")
    refused(InputError, lambda: table(first, f"teacher={tmp_path / 'other.npy'}"), "given twice", "'teacher'")
    refused(FileError, lambda: table(f"teacher={write(tmp_path / 'x.csv')}"), "csv", "COLUMN=PATH.npy")
    refused(InputError, lambda: table(first, tmp_path / "label.npy").rows, "label.npy", "49 rows", "50 rows")
    refused(InputError, lambda: list(table(first).chunks(["student"])), "no column 'student'")


def npy_bytes(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npy_header(shape: tuple[int, ...], descr: str = "<f8") -> bytes:
    words = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(words)) + words


BAD_ARRAYS = [
    (npy_header((10**12,)) + b"\0" * 80, "ends early at byte"),
    (npy_header((10**12, 0)), "rows of 1 to"),
    (npy_header((10**12,), "<U0"), "rows of 1 to"),
    (npy_header((1, 1 << 24)) + b"\0" * (8 << 24), "rows of 1 to"),
    (npy_header((-1, -1)) + b"\0" * 8, "shape (-1, -1)"),
    (npy_header((1,), "|O") + b"cposix\nsystem", "dtype object, which only unpickling"),
    (npy_header((1,), "<c16") + b"\0" * 16, "complex128"),
    (npy_header(()) + b"\0" * 8, "shape ()"),
    (npy_bytes(TEACHER) + b"more", "bytes"),
    (npy_bytes(TEACHER)[:-1], "ends early at byte"),
    (b"\x93NUMPY\x03\x00" + npy_bytes(TEACHER)[8:], "version (3, 0)"),
    (b"\x93NUMPY\x01", "npy"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("content", "word"), BAD_ARRAYS, ids=range(len(BAD_ARRAYS)))
def test_bad_arrays(tmp_path: Path, content: bytes, word: str) -> None:
    path = text(tmp_path / "teacher.npy", content)
    refused(FileError, lambda: read(path), str(path), word)
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("teacher.npy", content)
    refused(FileError, lambda: read(tmp_path / "x.npz"), "x.npz", "npz" if word == "npy" else word)


def test_bad_archives(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", teacher=TEACHER, label=LABEL[1:])
    refused(InputError, lambda: read(tmp_path / "a.npz"), "'label'", "49 rows", "50 rows, as in 'teacher'")
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("teacher.npy", npy_bytes(TEACHER))
        archive.writestr("teacher.npy", npy_bytes(TEACHER))
    refused(InputError, lambda: read(tmp_path / "b.npz"), "'teacher'", "same name")
    np.savez(tmp_path / "c.npz")
    text(tmp_path / "c.npz", b"PK\x03\x04" + (tmp_path / "c.npz").read_bytes())
    refused(FileError, lambda: read(tmp_path / "c.npz"), "no arrays")
    np.savez(tmp_path / "d.npz", teacher=TEACHER, id=np.array([b"a"] * N))
    refused(InputError, lambda: read(tmp_path / "d.npz"), "'id'", "binary")


def test_an_archive_that_declares_too_much(tmp_path: Path) -> None:
    """The entry's size in the table of contents is set to 4 GB: nothing of it is read."""
    np.savez_compressed(tmp_path / "x.npz", teacher=np.zeros(1000))
    data = bytearray((tmp_path / "x.npz").read_bytes())
    entry = data.index(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = struct.pack("<I", 0xFFFF_FFF0)
    refused(FileError, lambda: read(text(tmp_path / "x.npz", bytes(data))), "'teacher'", "4294967280 bytes declared")


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_that_changes_while_it_is_read(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / f"x.{name}")
    chunks = table(path).chunks(["teacher"], rows=20)
    next(chunks)
    with path.open("ab") as stream:
        stream.write(b"\n")
    refused(FileError, lambda: list(chunks), str(path), "changed while it was being read")
    opened = table(write(path))
    path.unlink()
    refused(FileError, lambda: read(path), "No such file")
    refused(FileError, lambda: list(opened.chunks()), "No such file")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FORMATS, "npy"])
def test_damage_is_an_error_or_harmless(tmp_path: Path, name: str) -> None:
    """Cut at many places, a file gives an error; with flipped bits it gives an error or a table."""
    path = tmp_path / ("teacher.npy" if name == "npy" else f"x.{name}")
    if name == "npy":
        np.save(path, TEACHER)
    else:
        write(path)
    whole, draw = path.read_bytes(), random.Random(0)
    good = repr(read(path))
    for _ in range(60):
        cut = draw.randrange(len(whole))
        try:
            assert repr(read(text(path, whole[:cut]))) == good or name in ("csv", "jsonl")
        except (InputError, FileError) as error:
            assert re.search(r"to do: \w.*\.$", str(error))
    for _ in range(100):
        damaged = bytearray(whole)
        damaged[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        try:
            assert repr(read(text(path, bytes(damaged)))) == good or name != "npz"
        except (InputError, FileError) as error:
            assert str(path) in str(error)


@pytest.mark.parametrize("name", ["parquet", "npz"])
def test_truncated_binary_files_say_where_they_end(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / f"x.{name}")
    size = path.stat().st_size - 30
    refused(FileError, lambda: read(text(path, path.read_bytes()[:size])), f"ends early at byte {size}", "Copy the file")


# Bounds


@pytest.mark.slow
def test_one_huge_row_group_is_read_piece_by_piece(tmp_path: Path) -> None:
    matrix = np.random.default_rng(0).random((400_000, 10), dtype=np.float32)
    data = pa.table({"id": np.arange(len(matrix)), "teacher": lists(matrix)})
    pq.write_table(data, tmp_path / "x", row_group_size=len(matrix))
    del data
    before, peak = pa.total_allocated_bytes(), 0
    for _ in table(tmp_path / "x").chunks(["teacher"], rows=4096):
        peak = max(peak, pa.total_allocated_bytes() - before)
    assert peak < matrix.nbytes / 2


@pytest.mark.slow
def test_many_shards_need_few_handles(tmp_path: Path) -> None:
    data = write(tmp_path / "0.parquet", slice(0, 2)).read_bytes()
    for number in range(1, 300):
        text(tmp_path / f"{number}.parquet", data)
    opened = table(tmp_path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert opened.rows == 600
    most = max(len(list(Path("/proc/self/fd").iterdir())) for _ in opened.chunks(["teacher"]))
    assert most <= before + 2


SLOWLY = """
import sys, time
from wdistill import cli
from wdistill.tables.formats import watched

begin = watched.Watched.__init__
watched.Watched.__init__ = lambda self, path, look, start=0: begin(
    self, path, lambda block: (time.sleep(0.15), look(block)), start
)
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("first, word", [("1,x,0.5,0.5,0.5", "a value"), ("", "label")])
def test_no_thread_of_arrow_outlives_an_error(tmp_path: Path, first: str, word: str) -> None:
    """A thread that still reads ahead when Python shuts down aborts the process."""
    names, row = ["id", "teacher_0", "teacher_1", "student_0", "student_1"], ",0.5,0.5,0.5,0.5\n"
    many = "".join(f"{i}{row}" for i in range(2, 120_000))
    (tmp_path / "u.csv").write_text(",".join(names) + "\n" + (first and f"{first}\n") + many)
    label = "label," if first else ""
    gold = "".join(f"{i},{i % 2}{row}" if first else f"{i}{row}" for i in range(200_000, 200_040))
    (tmp_path / "v.csv").write_text(",".join(names).replace(",", f",{label}", 1) + "\n" + gold)
    words = ["weigh", "--validation", tmp_path / "v.csv", "--unlabeled", tmp_path / "u.csv", "--output", tmp_path / "w.npz"]
    done = subprocess.run([sys.executable, "-c", SLOWLY, *words], capture_output=True, text=True)
    assert (done.returncode, word in done.stderr) == (2, True), done.stderr
