"""`wdistill label`: the teacher's predictions, the same bits whatever the files are, whole or not there at all."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.tables import columns, write
from tests.test_cli import fail, run, weighed
from tests.test_stored_predictions import by_hand
from wdistill import cli
from wdistill.datasets import image_folder, pictures
from wdistill.tables.formats.predictions import StoredPredictions
from wdistill.tables.label import LabelJob
from wdistill.tables.label_options import LabelOptions
from wdistill.tables.labeler import Labeler, Teacher
from wdistill.training.predict import GRID

NUMBERS = itertools.count()
SOFTMAX = """
import numpy as np
def softmax(z):
    p = np.exp(z - z.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)
"""
OF_BATCH = SOFTMAX + "def teacher(x): return softmax(x @ np.linspace(-2, 2, 20).reshape(4, 5) + x.mean())\n"
INPUTS = np.random.default_rng(0).normal(size=(1000, 4)).astype(np.float32)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def teacher(code: str, name: str = "teacher") -> str:
    """A module of the current folder with this code, and what is named in it."""
    module = f"teacher_{next(NUMBERS)}"
    Path(f"{module}.py").write_text(code)
    return f"{module}:{name}"


def table(path: str, rows: slice = slice(None), **more: Any) -> Path:
    return write(Path(path), {"id": np.arange(1000)[rows], "inputs": INPUTS[rows], **more})


def labeled(spec: str, unlabeled: object, *more: object, output: str = "p.parquet") -> pa.Table:
    words = ("label", "--teacher", spec, "--unlabeled", unlabeled, "--output", output, *more)
    assert cli.main([str(word) for word in words]) == 0
    assert not Path(f"{output}.parts").exists()
    return pq.read_table(output)


def refused(capsys: pytest.CaptureFixture[str], spec: str, unlabeled: object, *more: object) -> str:
    """The message of an error; nothing has been written."""
    message = fail(capsys, "label", "--teacher", spec, "--unlabeled", unlabeled, "--output", "p.parquet", *more)
    assert not Path("p.parquet").exists() and not Path("p.parquet.parts").exists(), message
    assert "found: " in message and "expected: " in message and "to do: " in message
    return message


def matrix(stored: pa.Table, column: str = "teacher") -> np.ndarray:
    return np.stack(stored[column].to_numpy())


def by_batches(function: Any, values: np.ndarray, size: int = GRID) -> np.ndarray:
    """The slow way: one call for every batch."""
    return np.concatenate([function(values[first : first + size]) for first in range(0, len(values), size)])


def of_batch(x: np.ndarray) -> np.ndarray:
    z = x @ np.linspace(-2, 2, 20).reshape(4, 5) + x.mean()
    powers = np.exp(z - z.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


# what is stored -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["float16", "float32"])
@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl", "npz"])
def test_predictions_are_those_of_the_function_rounded(kind: str, precision: str) -> None:
    found = labeled(teacher(OF_BATCH), table(f"u.{kind}"), "--precision", precision)
    assert found.column_names == ["id", "teacher"]
    assert [str(each) for each in found["id"].to_pylist()] == list(map(str, range(1000)))
    assert found["teacher"].type.value_type == pa.from_numpy_dtype(np.dtype(precision))
    wanted = by_batches(of_batch, INPUTS)
    assert np.abs(matrix(found) - wanted).max() <= {"float16": 2.0**-12, "float32": 1e-6}[precision]


def test_the_k_largest_are_those_of_the_rounded_predictions() -> None:
    dense, largest = (labeled(teacher(OF_BATCH), table("u.parquet"), *more) for more in ((), ("--top-k", 2)))
    for row, stored in zip(matrix(dense), largest["teacher"].to_pylist(), strict=True):
        assert list(zip(stored["classes"], stored["probabilities"], strict=True)) == by_hand(row, 2)
        assert stored["missing"] + sum(stored["probabilities"]) == pytest.approx(1, abs=2e-3)


def test_weights_come_from_what_label_wrote() -> None:
    unlabeled = columns(2, 500, first=1000)
    Path("p.npz").touch()
    write(Path("p.npz"), {"id": unlabeled["id"], "inputs": unlabeled["teacher"]})
    labeled(teacher("def teacher(x): return x"), "p.npz", "--precision", "float32", output="t.parquet")
    student = write(Path("s.parquet"), {"id": unlabeled["id"], "student": unlabeled["student"]})
    validation = write(Path("v.parquet"), columns(1, 200))
    found = weighed(validation, Path("t.parquet"), Path("w.parquet"), "--unlabeled", student)
    wanted = weighed(validation, write(Path("u.parquet"), unlabeled), Path("w2.parquet"))
    assert np.abs(found["weight"].to_numpy() - wanted["weight"].to_numpy()).max() < 1e-6


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        (
            "text",
            "def teacher(x):\n    assert type(x) is list\n    return [[len(t) / 10, 1 - len(t) / 10] for t in x]",
        ),
        (
            "age",
            "def teacher(ages):\n    assert ages.shape == (len(ages),)\n    return np.stack([ages / 10, 1 - ages / 10], 1)",
        ),
        (
            "text,age",
            "def teacher(x):\n    a = (x['age'] + [len(t) for t in x['text']]) / 20\n    return np.stack([a, 1 - a], 1)",
        ),
        ("pair", "def teacher(x):\n    x[:] = x / 10\n    return x[:, 0]"),
    ],
)
def test_one_input_comes_by_itself_and_several_by_name(inputs: str, code: str) -> None:
    ages = np.arange(9)
    rows = {"age": pa.array(ages), "text": pa.array(["x" * n for n in ages]), "name": pa.array([f"row {n}" for n in ages])}
    rows["pair"] = pa.array([[[float(n), 10 - n], [0, 0]] for n in ages])
    pq.write_table(pa.table(rows), "u.parquet")
    found = labeled(
        teacher(f"import numpy as np\n{code}"), "u.parquet", "--inputs", inputs, "--id", "name", "--column", "llm"
    )
    assert found["id"].to_pylist() == rows["name"].to_pylist()
    assert np.allclose(matrix(found, "llm"), np.stack([ages / 10, 1 - ages / 10], 1), atol=1e-3)


MODULE = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.norm, self.dropout = nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.9)
    def forward(self, inputs, more=None):
        assert inputs.dtype == torch.float32
        return self.dropout(self.norm(self.linear(inputs))) + (0 if more is None else more[:, None] * torch.eye(5)[0])
net = Net()
def make(): return net
def predict(x): return net(x)
def make_function(): return lambda x: net.eval()(torch.from_numpy(x)).detach()
"""


def test_a_module_is_in_eval_mode_and_may_be_named_made_or_called() -> None:
    spec = teacher(MODULE, "net")
    found = [matrix(labeled(spec, table("u.parquet"), "--kind", "logits"))]
    found += [
        matrix(labeled(spec.replace("net", name), "u.parquet", "--kind", "logits"))
        for name in ("make", "Net", "make_function")
    ]
    assert all((each == found[0]).all() for each in found) and found[0].std() > 0.05
    assert np.abs(found[0].sum(axis=1) - 1).max() < 2e-3


def test_a_module_gets_several_inputs_as_keyword_arguments() -> None:
    more = np.arange(1000.0)
    first = labeled(teacher(MODULE, "net"), table("u.parquet", more=more), "--kind", "logits", "--inputs", "inputs,more")
    second = labeled(teacher(MODULE, "net"), "u.parquet", "--kind", "logits")
    assert (matrix(first)[500:, 0] > 0.99).all() and (matrix(second)[500:, 0] < 0.99).all()
    assert (matrix(first)[0] == matrix(second)[0]).all()


# the same bits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cuts", [[500], [1, 2, 3, 130, 131, 700], [100, 200, 300, 999]], ids=str)
def test_neither_files_nor_their_number_change_a_bit(cuts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = labeled(spec := teacher(OF_BATCH), table("u.parquet"), output="whole.parquet")
    monkeypatch.setattr("wdistill.tables.label.PART", 1)
    monkeypatch.setattr("wdistill.tables.label_inputs.ROWS", 77)
    monkeypatch.setattr("wdistill.tables.rows.ENTRIES", 2000)
    for number, (a, b) in enumerate(itertools.pairwise([0, *cuts, 1000])):
        table(f"u/{number}.parquet", slice(a, b))
    assert labeled(spec, "u").equals(whole)


class Numbered:
    """Rows 0, 1, 2 … in files of these lengths, read some at a time."""

    where = "numbers"

    def __init__(self, lengths: Sequence[int], rows: int) -> None:
        self.lengths, self.at_once = lengths, rows
        self.files = [Path(str(number)) for number in range(len(lengths))]
        self.stamps = [(0, 0)] * len(lengths)
        self.rows = sum(lengths)

    def rows_from(self, file: int, position: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        assert position == sum(self.lengths[:file])
        for number in range(file, len(self.lengths)):
            ids = np.arange(position, position := position + self.lengths[number])
            for first in range(0, len(ids), self.at_once):
                part = pa.array(ids[first : first + self.at_once])
                yield number, pa.RecordBatch.from_pydict({"id": part, "inputs": part})


def sums_of_batch(numbers: Any) -> np.ndarray:
    """A teacher that answers every row with all that it sees."""
    chance = float(np.sum(numbers**2) % 1009) / 1009
    return np.tile([chance, 1 - chance], (len(numbers), 1))


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=8).filter(any),
    st.integers(1, 12),
    st.integers(1, 7),
    st.data(),
)
def test_every_row_is_predicted_in_the_batch_of_its_number(
    lengths: list[int], batch: int, rows: int, data: st.DataObject
) -> None:
    """Whatever parts are there already, and whatever rows are read or held at once."""
    labeler = Labeler(Teacher("sums", sums_of_batch, ""), LabelOptions(batch_rows=batch, precision="float32"))
    job = LabelJob(Numbered(lengths, rows), labeler)
    start = data.draw(st.integers(0, len(lengths) - 1))
    stop = data.draw(st.integers(start + 1, len(lengths)))
    parts = [SimpleNamespace(start=file, seen=lengths[file]) for file in range(start)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wdistill.tables.label.HELD", data.draw(st.sampled_from([0, 50, 1 << 20])))
        patch.setattr("wdistill.tables.label.chunk_rows", lambda classes: data.draw(st.integers(1, 20)))
        pieces = list(job.pieces(SimpleNamespace(parts=parts), start, stop))  # type: ignore[arg-type]
    begin, end = sum(lengths[:start]), sum(lengths[:stop])
    wanted = by_batches(sums_of_batch, np.arange(sum(lengths)), batch)[begin:end].astype(np.float32)
    ids = [each for piece in pieces for each in piece.rows["id"].to_pylist()]
    found = [each for piece in pieces for each in piece.rows["teacher"].to_pylist()]
    assert ids == list(range(begin, end)) and np.array_equal(np.array(found).reshape(-1, 2), wanted)
    files = [file for file in range(start, stop) for _ in range(lengths[file])]
    assert [piece.file for piece in pieces for _ in range(piece.seen)] == files


@given(st.integers(1, 40), st.integers(1, 7), st.integers(1, 4), st.sampled_from([None, 2]))
def test_the_function_of_batches_gives_the_same_rows_in_pieces_of_whole_batches(
    rows: int, batch: int, pieces: int, top_k: int | None
) -> None:
    def three_classes(numbers: Any) -> np.ndarray:
        return np.column_stack([sums_of_batch(numbers) / 2, np.full(len(numbers), 0.5)])

    labeler = Labeler(Teacher("sums", three_classes, ""), LabelOptions(batch_rows=batch, top_k=top_k))
    numbers = pa.array(np.arange(rows))
    given_rows = pa.RecordBatch.from_pydict({"id": numbers, "inputs": numbers})
    found = [labeler(given_rows.slice(first, batch * pieces)) for first in range(0, rows, batch * pieces)]
    assert (
        pa.Table.from_batches(found).combine_chunks().equals(pa.Table.from_batches([labeler(given_rows)]).combine_chunks())
    )


def test_the_length_of_a_batch_is_that_of_training() -> None:
    assert LabelOptions().batch_rows == GRID


KILLED = """
import os, signal, sys
from wdistill import cli
from wdistill.core import store
from wdistill.tables import label
label.PART = 1
def stopping(real):
    def writing(path, **more):
        if path.name.startswith(sys.argv[1]):
            os.kill(os.getpid(), signal.SIGKILL)
        return real(path, **more)
    return writing
store.writing, store.synced = stopping(store.writing), stopping(store.synced)
sys.exit(cli.main(sys.argv[2:]))
"""


@pytest.mark.kill
@pytest.mark.parametrize("stop_at", ["part-000000", "part-000003", "p.parquet"])
def test_a_killed_job_ends_with_the_same_bits(stop_at: str, capsys: pytest.CaptureFixture[str]) -> None:
    for number, rows in enumerate(np.array_split(np.arange(1000), 6)):
        table(f"u/{number}.parquet", slice(rows[0], rows[-1] + 1))
    spec = teacher(OF_BATCH)
    command = ["label", "--teacher", spec, "--unlabeled", "u", "--output", "p.parquet"]
    killed = subprocess.run([sys.executable, "-c", KILLED, stop_at, *command], capture_output=True)
    assert killed.returncode == -signal.SIGKILL and not Path("p.parquet").exists(), killed.stderr
    assert len(list(Path("p.parquet.parts").glob("part-*"))) == {"part-000000": 0, "part-000003": 3, "p.parquet": 6}[stop_at]
    if stop_at == "part-000003":
        assert cli.main(["verify", "p.parquet.parts"]) == 0
        message = fail(capsys, *command, "--top-k", 2)
        assert "another job for this output" in message and "--top-k" in message
        other = Path(f"{spec.partition(':')[0]}.py")
        code = other.read_text()
        other.write_text(f"{code}# another version\n")
        done = subprocess.run(
            [sys.executable, "-m", "wdistill", *command], capture_output=True, text=True, env=dict(os.environ)
        )
        assert done.returncode == 2 and "other teacher" in done.stderr
        other.write_text(code)
    found = labeled(spec, "u")
    assert found.equals(labeled(spec, "u", output="fresh.parquet"))


@pytest.mark.kill
def test_once_a_file_has_changed_batches_that_end_in_it_are_predicted_again() -> None:
    for number, rows in enumerate(np.array_split(np.arange(1000), 6)):
        table(f"u/{number}.parquet", slice(rows[0], rows[-1] + 1))
    command = ["label", "--teacher", (spec := teacher(OF_BATCH)), "--unlabeled", "u", "--output", "p.parquet"]
    subprocess.run([sys.executable, "-c", KILLED, "part-000004", *command], capture_output=True)
    write(Path("u/2.parquet"), {"id": np.arange(2000, 2100), "inputs": INPUTS[:100] + 1})
    assert labeled(spec, "u").equals(labeled(spec, "u", output="fresh.parquet"))


def test_a_stored_table_is_verified(capsys: pytest.CaptureFixture[str]) -> None:
    for more in ((), ("--top-k", 3)):
        wanted = labeled(teacher(OF_BATCH), table("u.parquet"), *more)
        assert cli.main(["verify", "p.parquet"]) == 0
        whole, codes = Path("p.parquet").read_bytes(), list[int]()
        for at in range(200, len(whole), len(whole) // 23):
            Path("q.parquet").write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
            codes.append(cli.main(["verify", "q.parquet"]))
            assert codes[-1] in (2, 3) or pq.read_table("q.parquet").equals(wanted), at  # statistics are no content
        assert codes.count(3) > 10


def test_another_number_of_classes_is_another_content() -> None:
    """The k largest are the same; only the metadata differs."""
    from wdistill.tables.content import ContentDigest

    digests = set()
    for classes in (5, 6):
        layout = StoredPredictions("float32", 2)
        values = np.zeros((1, classes))
        values[0, :2] = 0.75, 0.25
        schema = pa.schema([layout.field("teacher", classes)])
        digest = ContentDigest()
        digest.add(pa.RecordBatch.from_arrays([layout.column(values)], schema=schema))
        digests.add(digest.hexdigest())
    assert len(digests) == 2


# pictures -------------------------------------------------------------------------------------------------------------

MEANS = """
import numpy as np
def teacher(images):
    assert images.shape[1:] == (3, 8, 8) and images.dtype == np.uint8
    red = images[:, 0].mean(axis=(1, 2)) / 255
    return np.stack([red, 1 - red], 1)
"""


@pytest.fixture
def folder() -> Path:
    """Pictures of several sizes and kinds, in folders."""
    for number, name in enumerate(["b.png", "a/2.JPG", "a/10.jpeg", "c/d/e.png", "grey.png"]):
        path = Path("pictures") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        size, red = (10 + number, 9 + 2 * number), 50 * number
        picture = Image.new("L", size, red) if name == "grey.png" else Image.new("RGB", size, (red, 0, 0))
        picture.save(path, quality=95) if "." in name and not name.endswith("png") else picture.save(path)
    Path("pictures/.hidden.png").touch()
    Path("pictures/notes.txt").touch()
    return Path("pictures")


def test_pictures_are_labeled_by_their_paths(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = teacher(MEANS)
    found = labeled(spec, folder, "--size", 8, "--batch-rows", 2)
    assert found["id"].to_pylist() == ["a/10.jpeg", "a/2.JPG", "b.png", "c/d/e.png", "grey.png"]
    assert np.abs(matrix(found)[:, 0] * 255 - [100, 50, 0, 150, 200]).max() < 2
    assert "1 other files are left out, such as notes.txt" in capsys.readouterr().err
    monkeypatch.setattr(image_folder, "GROUP", 2)
    monkeypatch.setattr(image_folder, "CHUNK", 2)
    monkeypatch.setattr("wdistill.tables.label.PART", 1)
    assert labeled(spec, folder, "--size", 8, "--batch-rows", 2).equals(found)


def test_a_picture_that_cannot_be_read_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "c" / "d" / "e.png").write_bytes(b"no picture")
    message = refused(capsys, teacher(MEANS), folder, "--size", 8)
    assert "cannot be decoded" in message and "c/d/e.png" in message


def test_pictures_and_tables_have_flags_of_their_own(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--inputs" in refused(capsys, teacher(MEANS), folder, "--inputs", "x")
    assert "--size" in refused(capsys, teacher(MEANS), table("u.parquet"), "--size", 8)


def test_pictures_are_cut_as_imagenet_is(folder: Path) -> None:
    (batch,) = [batch for _, batch in image_folder.open_image_folder(folder, 8).rows_from(0, 0)]
    wanted = pictures.decode(folder, pictures.short_side, 8, batch["id"].to_pylist())
    assert np.array_equal(np.array(batch["image"].to_pylist(), np.uint8), wanted)


# what is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def teacher(x): return 1 / 0", ["the teacher fails", "ZeroDivisionError: division by zero", "ids 0, 1, 2"]),
        ("def teacher(x): return x[:-1]", ["another number of rows", "127 rows", "128"]),
        ("def teacher(x): return x[:, 0]", ["not one row of class scores"]),
        ("def teacher(x): return x", ["--kind logits"]),
        ("def teacher(x): return x * float('nan')", ["NaN or infinite", "512 such entries"]),
        ("def teacher(x): return None", ["Python objects instead of numbers"]),
        ("def teacher(x): return x.astype(str)", ["dtype"]),
        ("def teacher(x): return np.eye(4)[[0] * len(x)] * 0.9", ["sum to 1"]),
        (
            "def teacher(x): return np.full((len(x), 2 + int(x[0, 0] > 0.2)), 1 / (2 + int(x[0, 0] > 0.2)))",
            ["another number of classes"],
        ),
    ],
)
def test_bad_answers_are_one_error_that_names_rows(code: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, teacher(f"import numpy as np\n{code}"), table("u.parquet"))
    for word in words:
        assert word in message, message


def test_a_bad_row_is_named_by_its_id(capsys: pytest.CaptureFixture[str]) -> None:
    code = OF_BATCH + "def bad(x):\n    p = teacher(x)\n    p[x[:, 0] == x[:, 0].max()] = np.nan\n    return p"
    message = refused(capsys, teacher(code, "bad"), table("u.parquet"), "--batch-rows", 1000)
    assert f"id {INPUTS[:, 0].argmax()}" in message


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ("nowhere:teacher", "no such module"),
        ("mlp:inputs=4,classes=2", "not the name of a teacher"),
        ("teacher", "not the name of a teacher"),
        (":", "not the name of a teacher"),
    ],
)
def test_names_that_lead_to_no_teacher_are_refused(spec: str, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert word in refused(capsys, spec, table("u.parquet"))


@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("teacher = 3", "not a teacher"),
        ("def teacher(): return 3", "not a teacher"),
        ("def teacher(): raise OSError('no parameters')", "OSError: no parameters"),
        ("def other(x): return x", "no such name"),
        ("import nothing_of_that_name", "cannot be imported"),
    ],
)
def test_code_that_makes_no_teacher_is_refused(code: str, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert word in refused(capsys, teacher(code), table("u.parquet"))


def test_tables_and_options_that_do_not_fit_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    spec = teacher(OF_BATCH)
    assert "no column 'text'" in refused(capsys, spec, table("u.parquet"), "--inputs", "text")
    assert "no column 'key'" in refused(capsys, spec, "u.parquet", "--id", "key")
    assert "at most 4, of 5 classes" in refused(capsys, spec, "u.parquet", "--top-k", 5)
    assert "--column" in refused(capsys, spec, "u.parquet", "--column", "id")
    assert "out of range" in refused(capsys, spec, "u.parquet", "--top-k", 1)
    pq.write_table(pa.table({"id": [1, 1], "inputs": [[1.0] * 4] * 2}), "twice.parquet")
    assert "twice" in refused(capsys, spec, "twice.parquet").replace("more than once", "twice")
    pq.write_table(pa.table({"id": [7, 8], "inputs": [[1.0] * 4, [1.0, 2.0, None, 3.0]]}), "null.parquet")
    message = refused(capsys, spec, "null.parquet")
    assert "values are missing" in message and "id 8" in message
    pq.write_table(pa.table({"id": [7, 8], "inputs": [[1.0] * 4, [1.0]]}), "short.parquet")
    assert "different lengths" in refused(capsys, spec, "short.parquet")
    pq.write_table(
        pa.table({"id": pa.array([], pa.int64()), "inputs": pa.array([], pa.list_(pa.float64()))}), "empty.parquet"
    )
    assert "0 rows" in refused(capsys, spec, "empty.parquet")
    table("d/0.parquet", slice(0, 10))
    pq.write_table(pa.table({"id": ["a"], "inputs": [[1.0] * 4]}), "d/1.parquet")
    assert "differ in column" in refused(capsys, spec, "d")
    message = fail(capsys, "label", "--teacher", spec, "--unlabeled", "u.parquet", "--output", "u.parquet")
    assert "among the inputs" in message
    message = fail(capsys, "label", "--teacher", spec, "--unlabeled", "u.parquet", "--output", "p.csv")
    assert "unknown kind of output" in message


def test_a_module_reads_no_texts(capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"id": [1], "text": ["one"]}), "u.parquet")
    assert "a module reads numbers" in refused(capsys, teacher(MODULE, "net"), "u.parquet", "--inputs", "text")


@pytest.mark.slow
def test_torch_is_loaded_only_for_modules() -> None:
    code = "import sys\nassert 'torch' not in sys.modules\ndef teacher(x): return x**2 / (x**2).sum(1, keepdims=True)"
    done = run("label", "--teacher", teacher(code), "--unlabeled", table("u.parquet"), "--output", "p.parquet")
    assert "1,000 rows, all of 4 classes as float32" in done.stdout


def test_large_inputs_are_not_held_until_a_stretch_of_small_predictions_is_full() -> None:
    """A hundred rows of 1 MB, and two classes, of which many rows would fit."""
    held = list[int]()

    class Large(Numbered):
        def rows_from(self, file: int, position: int) -> Iterator[tuple[int, pa.RecordBatch]]:
            for number, batch in super().rows_from(file, position):
                pixels = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(batch.num_rows << 20, np.uint8)), 1 << 20)
                held.append(pa.total_allocated_bytes())
                yield number, pa.RecordBatch.from_pydict({"id": batch["id"], "inputs": pixels})

    even = Teacher("even", lambda pixels: np.full((len(pixels), 2), 0.5), "")
    job = LabelJob(Large([100], 5), Labeler(even, LabelOptions(batch_rows=10)))
    before = pa.total_allocated_bytes()
    assert sum(piece.rows.num_rows for piece in job.pieces(SimpleNamespace(parts=[]), 0, 1)) == 100  # type: ignore[arg-type]
    assert max(held) - before < 200 << 20
