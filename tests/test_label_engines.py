"""`label --engine`: the teacher's predictions in a folder, the same bits by any engine, loaded once in a process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.partitions import bytes_of, rows_of
from tests.tables import write
from tests.test_cli import fail
from tests.test_label import MEANS, NUMBERS, OF_BATCH, by_batches, labeled, matrix, of_batch, table, teacher
from tests.test_label import folder as folder
from wdistill import Labeler, cli, labeler
from wdistill.core.errors import ConfigError, InputError
from wdistill.core.named import importable
from wdistill.datasets import image_folder
from wdistill.engines.inputs import has_pictures
from wdistill.engines.label import LabelFile
from wdistill.tables.label_options import LabelOptions
from wdistill.tables.manifest import MANIFEST

LENGTHS = (300, 1, 299, 400)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def tables() -> list[slice]:
    """A thousand rows in four files."""
    ends = np.cumsum((0, *LENGTHS))
    slices = [slice(first, last) for first, last in pairwise(ends)]
    for number, rows in enumerate(slices):
        table(f"u/{number}.parquet", rows)
    return slices


def by_engine(spec: str, unlabeled: str, *more: object, output: str = "o", engine: str = "local") -> pa.Table:
    words = ("label", "--teacher", spec, "--unlabeled", unlabeled, "--output", output, "--engine", engine, *more)
    assert cli.main([str(word) for word in words]) == 0
    return rows_of(Path(output))


def test_batches_are_counted_from_the_first_row_of_every_file() -> None:
    slices, spec = tables(), teacher(OF_BATCH)
    found = by_engine(spec, "u")
    assert found["id"].to_pylist() == list(range(1000))
    inputs = np.stack(pq.read_table("u").sort_by("id")["inputs"].to_numpy())
    wanted = np.concatenate([by_batches(of_batch, inputs[rows]) for rows in slices])
    assert np.abs(matrix(found) - wanted).max() <= 1e-6
    for number in range(len(LENGTHS)):
        alone = labeled(spec, f"u/{number}.parquet", output="alone.parquet").replace_schema_metadata(None)
        (part,) = Path("o").glob(f"part-{number:06d}-*")
        assert pq.read_table(part).replace_schema_metadata(None).equals(alone)
    assert cli.main(["verify", "o"]) == 0


@pytest.mark.parametrize("more", [(), ("--top-k", 2, "--precision", "float16"), ("--batch-rows", 7)], ids=str)
def test_more_workers_make_the_same_bytes(more: tuple[object, ...]) -> None:
    tables()
    spec = teacher(OF_BATCH)
    by_engine(spec, "u", *more)
    by_engine(spec, "u", *more, "--workers", 2, output="two")
    assert bytes_of(Path("o")) == bytes_of(Path("two"))


def test_a_module_is_loaded_once_in_every_process_and_answers_by_one_thread() -> None:
    tables()
    code = """
import os, torch
from torch import nn
def make():
    with open("loads", "a") as file:
        file.write(f"{os.getpid()}\\n")
    torch.manual_seed(0)
    return Net(4, 5)
class Net(nn.Linear):
    def forward(self, inputs):
        assert torch.get_num_threads() == 1
        return super().forward(inputs)
"""
    spec = teacher(code, "make")
    by_engine(spec, "u", "--kind", "logits", "--workers", 2)
    loads = Path("loads").read_text().split()
    assert loads.count(str(os.getpid())) == 1 and len(loads) == len(set(loads)) <= 3


def test_pictures_are_labeled_in_groups(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_folder, "GROUP", 2)
    spec = teacher(MEANS)
    whole = labeled(spec, folder, "--size", 8, "--batch-rows", 2)
    found = by_engine(spec, str(folder), "--size", 8, "--batch-rows", 2)
    assert len(list(Path("o").glob("part-*"))) == 3
    assert found.equals(whole.replace_schema_metadata(None))


@pytest.fixture
def memory() -> Iterator[Any]:
    """A remote store in this process."""
    import fsspec

    yield fsspec.filesystem("memory")
    fsspec.filesystem("memory").store.clear()


def test_pictures_may_be_remote(folder: Path, memory: Any, capsys: pytest.CaptureFixture[str]) -> None:
    memory.put(str(folder), "/pictures", recursive=True)
    assert has_pictures("memory://pictures") and not has_pictures("memory://pictures/none")
    spec = teacher(MEANS)
    words = ["label", "--teacher", spec, "--size", "8", "--engine", "local", "--output"]
    assert cli.main([*words, "memory://there/o", "--unlabeled", "memory://pictures"]) == 0
    memory.get("/there/o", "o", recursive=True)
    assert rows_of(Path("o")).equals(labeled(spec, folder, "--size", 8).replace_schema_metadata(None))
    memory.pipe_file("/pictures/c/d/e.png", b"no picture")
    message = fail(capsys, *words, "x", "--unlabeled", "memory://pictures")
    assert "cannot be decoded" in message and "memory://pictures/c/d/e.png" in message


def test_what_differs_between_files_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    write(Path("u/0.parquet"), {"id": np.arange(3), "inputs": np.eye(3)})
    write(Path("u/1.parquet"), {"id": np.array(["a", "b"]), "inputs": np.eye(3)[:2]})

    def message(code: str, unlabeled: str = "u", *more: str) -> str:
        words = ("--unlabeled", unlabeled, "--engine", "local", "--output", f"o{next(NUMBERS)}", *more)
        return fail(capsys, "label", "--teacher", teacher(code), *words)

    said = message("def teacher(x): return x")
    assert "the files of this table differ" in said and "u/1.parquet" in said and "id: string" in said
    write(Path("u/1.parquet"), {"id": np.arange(3, 5), "inputs": np.eye(3)[:2]})
    said = message("def teacher(x): return x[:, :len(x)] + 0.1", "u", "--kind", "logits")
    assert "the files of this table differ" in said
    np.savez("u.npz", inputs=np.eye(3))
    assert "there are no ids in this file" in message("def teacher(x): return x", "u.npz")


def test_another_teacher_does_not_go_on_with_the_parts_of_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    tables()
    spec = teacher(OF_BATCH)
    by_engine(spec, "u")
    before = bytes_of(Path("o"))
    message = fail(capsys, "label", "--unlabeled", "u", "--output", "o", "--engine", "local", "--teacher", teacher(OF_BATCH))
    assert "holds another result" in message and bytes_of(Path("o")) == before
    (Path("o") / MANIFEST).unlink()
    work = LabelFile(spec, "0" * 64, str(Path.cwd()), LabelOptions(), None)
    with pytest.raises(Exception, match=r"(?s)the teacher is another one in a process of the engine.*torch\.manual_seed"):
        _ = work._loaded


def test_errors_of_a_teacher_name_the_file_or_the_rows(capsys: pytest.CaptureFixture[str]) -> None:
    tables()
    spec = teacher(
        "def teacher(x):\n    assert len(x) > 1, 'one row'\n    return abs(x) / abs(x).sum(axis=1, keepdims=True)"
    )
    message = fail(capsys, "label", "--unlabeled", "u", "--output", "o", "--engine", "local", "--teacher", spec)
    assert "the teacher fails" in message and "called on ids 300" in message


# the pure function ----------------------------------------------------------------------------------------------------


def test_the_function_of_batches_gives_what_the_command_stores(tmp_path: Path) -> None:
    whole = labeled(teacher(OF_BATCH), table("u.parquet"), "--top-k", 2).replace_schema_metadata(None)
    rows = pq.read_table("u.parquet")
    label = labeler(of_batch, top_k=2)
    assert isinstance(label, Labeler) and pa.Table.from_batches([label(rows.to_batches()[0])]).equals(whole)
    for size in (1, 77, 128, 1000):
        reader = pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(size))
        assert label.stream(reader).read_all().combine_chunks().equals(whole)
    assert label.stream(rows.slice(0, 256)).read_all().combine_chunks().equals(whole.slice(0, 256).combine_chunks())


def test_a_teacher_of_batches_may_be_named_a_module_or_a_function() -> None:
    torch.manual_seed(0)
    module = torch.nn.Linear(4, 3)
    rows = pq.read_table(table("u.parquet")).rename_columns(["id", "x"]).to_batches()[0]
    found = labeler(module, inputs="x", kind="logits")(rows)
    again = labeler(lambda x: module(torch.from_numpy(x)).detach(), inputs=["x"], kind="logits")(rows)
    assert found.equals(again) and not module.training
    with importable(str(Path.cwd())):
        assert labeler(teacher(OF_BATCH), inputs="x")(rows)["teacher"].type.list_size == 5


def test_a_batch_for_a_teacher_is_checked() -> None:
    rows = pq.read_table(table("u.parquet"))
    for given, words in (
        (rows, "not a batch"),
        (rows.drop_columns(["inputs"]).to_batches()[0], "no column 'inputs'"),
        (rows.drop_columns(["id"]).to_batches()[0], "no column 'id'"),
        (rows.to_batches()[0].slice(0, 0), "no rows"),
    ):
        with pytest.raises((ConfigError, InputError), match=words):
            labeler(of_batch)(given)
    with pytest.raises(InputError, match="no rows"):
        labeler(of_batch).stream(rows.slice(0, 0))
    for wrong, options in ((of_batch, {"top": 2}), (of_batch, {"column": "id"}), (7, {}), ("nets", {})):
        with pytest.raises(ConfigError):
            labeler(wrong, **options)  # type: ignore[arg-type]
