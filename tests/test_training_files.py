"""Training data from files that are damaged, or no data at all: each is an error of ours that names the file."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.hostile import gold_labels, harmless, outcome
from wdistill.core import npy
from wdistill.core.errors import FileError, InputError, WdistillError
from wdistill.datasets import prepared
from wdistill.datasets.prepared import Dataset, ImageSplit, load_prepared, save_prepared
from wdistill.training.data import check_split
from wdistill.training.files import read_data

COLUMNS = ["id", "inputs", "label"]
ROWS = np.random.default_rng(0).random((6, 4)).astype(np.float32)


def folder_of(folder: Path, **columns: np.ndarray) -> Path:
    folder.mkdir(exist_ok=True)
    for name, values in {"inputs": ROWS, "label": np.arange(6) % 2, **columns}.items():
        np.save(folder / f"{name}.npy", values)
    return folder


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("name", ["inputs", "label", "id"])
def test_a_flipped_bit_in_the_header_of_an_array_is_an_error_that_names_the_file(tmp_path: Path, name: str) -> None:
    folder = folder_of(tmp_path / "d", id=np.array(list("abcdef")))
    path = folder / f"{name}.npy"
    whole = path.read_bytes()
    refused = 0
    for bit in range(8 * (len(whole) - np.load(path).nbytes)):
        path.write_bytes(flipped(whole, bit))
        try:
            check_split("labeled", read_data(folder), labels=True, folder=tmp_path)
        except FileError as error:
            refused += 1
            assert error.where == str(path) and error.found and error.expected and error.remedy
        except InputError:  # an array of other numbers, such as labels of another type
            refused += 1
    assert refused > 500


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (ROWS.astype(">f4"), "dtype >f4"),
        (ROWS.astype(np.longdouble), "dtype longdouble"),
        (ROWS.astype(complex), "complex128"),
        (ROWS.astype("U4"), "<U4"),
        (np.float32(1), "shape ()"),
    ],
)
def test_inputs_that_a_tensor_cannot_hold_are_refused(tmp_path: Path, values: np.ndarray, words: str) -> None:
    with pytest.raises(WdistillError, match=r"inputs\.npy") as caught:
        read_data(folder_of(tmp_path / "d", inputs=values))
    assert words in str(caught.value) or "float128" in str(caught.value)


def test_ids_with_characters_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    bad = np.frombuffer(np.full(6, 1 << 30, np.uint32).tobytes(), "<U1")
    with pytest.raises(FileError, match=r"id\.npy"):
        read_data(folder_of(tmp_path / "d", id=bad))
    np.savez(tmp_path / "d.npz", inputs=ROWS, label=np.arange(6), id=bad)
    with pytest.raises(FileError, match=r"d\.npz"):
        read_data(tmp_path / "d.npz")


def test_a_pipe_in_the_place_of_an_array_is_not_read(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "d")
    (folder / "label.npy").unlink()
    os.mkfifo(folder / "label.npy")
    with pytest.raises(FileError, match="no file"):
        read_data(folder)


def read_whole(paths: list[str]) -> int:
    return len(npy.read(Path(paths[0]), "save it again"))


def test_an_array_whose_header_is_longer_than_any_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    with path.open("wb") as file:
        file.write(b"\x93NUMPY\2\0\xff\xff\xff\x7f")
        file.truncate(1 << 31)
    result = outcome([path], read_whole)
    assert "FileError" in result.error and "2147483647 bytes" in result.error and result.memory < 64 << 20


def read_training(paths: list[str]) -> int:
    return len(read_data(Path(paths[0])).labels)


def test_a_table_that_grows_without_end_is_refused_before_it_is_held(tmp_path: Path) -> None:
    """A small file of which 100,000 rows of 1,000 zeros would be made, 0.4 GB."""
    path = tmp_path / "x.parquet"
    zeros = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(1_000_000, np.float32)), 1000)
    rows = pa.RecordBatch.from_arrays([pa.array(np.zeros(1000, int)), zeros, pa.array(np.zeros(1000, int))], COLUMNS)
    with pq.ParquetWriter(path, rows.schema, compression="zstd") as writer:
        for _ in range(100):
            writer.write_batch(rows)
    assert path.stat().st_size < 150_000
    got = harmless(path, words=["the rows grow too much", "folder of npy files"], read=read_training)
    assert got.memory < 256 << 20


def test_sparse_rows_that_are_packed_well_are_read(tmp_path: Path) -> None:
    path, rows = tmp_path / "x.parquet", np.zeros((3000, 2000), np.float32)
    rows[np.arange(3000), np.arange(3000) % 2000] = 1
    values = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), 2000)
    table = pa.table([pa.array(np.arange(3000)), values, pa.array(np.arange(3000) % 2)], COLUMNS)
    pq.write_table(table, path, compression="zstd")
    assert path.stat().st_size * 100 < rows.nbytes and np.array_equal(read_data(path).inputs, rows)


def test_gold_labels_of_nothing_but_brackets_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "gold.json"
    path.write_bytes(b"[" + b"[]," * 9_000_000 + b"[]]")
    harmless(path, words=["too many values"], read=gold_labels)


def test_prepared_arrays_that_are_none_name_the_file(tmp_path: Path) -> None:
    images = ImageSplit(np.zeros((3, 1, 2, 2), np.uint8), np.arange(3))
    save_prepared(tmp_path, Dataset("made", 3, images, images, official=False, source="drawn"))
    buffer = io.BytesIO()
    np.save(buffer, images.inputs)
    bad = buffer.getvalue().replace(b"'shape'", b"'shape(")
    digests = prepared.read_manifest(tmp_path)["sha256"]
    digests["train.inputs.npy"] = prepared.write_digested(tmp_path / "train.inputs.npy", bad)
    prepared.write_manifest(tmp_path, Dataset("made", 3, images, images, official=False, source="drawn"), digests)
    with pytest.raises(FileError, match=r"train\.inputs\.npy: not an npy file"):
        load_prepared(tmp_path)
