"""What the fuzzer damages: a small valid file of everything that users or others give us, and how it is read."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests import answer_forms
from tests.tables import columns, write
from wdistill import Evidence, compose, debiased, fidelity, load, save, threshold, weigh
from wdistill.answers.pool import open_pool
from wdistill.answers.request import AnswerOptions, Sources
from wdistill.cli import main
from wdistill.core import sealed
from wdistill.core.errors import FileError
from wdistill.datasets.prepared import ARRAYS, MANIFEST, Dataset, ImageSplit, load_prepared, save_prepared
from wdistill.methods.metric_text import metric_of
from wdistill.report.verify import verify
from wdistill.tables.formats.predictions import StoredPredictions
from wdistill.tables.formats.table import open_tables
from wdistill.tables.options import Options, Paths
from wdistill.tables.output import RECORD, read_batches, read_record
from wdistill.tables.parts import Part, open_folder
from wdistill.tables.weigh import weigh_files
from wdistill.weights.saved import to_bytes

ROWS, CLASSES = 12, 3

Packing = Callable[[bytes, Random], dict[str, bytes]]


@dataclass(frozen=True)
class Seed:
    """A small valid file, and whether checksums cover what is read, so that nothing else may come from it."""

    name: str
    file: str  # the one that is read
    content: bytes  # what is damaged
    covered: bool
    read: Callable[[Path], str]  # in words
    packed: Packing | None = None  # files made of what was damaged; else it is the file itself
    beside: Mapping[str, bytes] = field(default_factory=dict)  # files that are not damaged

    def files(self, damaged: bytes, draw: Random) -> dict[str, bytes]:
        """All files, with this in place of the content."""
        return {**self.beside, **(self.packed(damaged, draw) if self.packed else {self.file: damaged})}


@cache
def seeds(reader: str) -> tuple[Seed, ...]:
    """The files of one of the READERS."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return READERS[reader].make(Path(folder))


# tables ---------------------------------------------------------------------------------------------------------------


def rows_of_table(path: Path) -> str:
    (table,) = open_tables([str(path)], option="--unlabeled")
    bare = table.columns == ("teacher",)
    chunks = table.chunks(["teacher"]) if bare else table.chunks(["teacher", "student"], ["label"], rows=5)
    rows = []
    for chunk in chunks:
        columns = [[(values.dtype.str, row) for row in values.tolist()] for values in chunk.columns.values()]
        rows += list(zip(chunk.ids.to_pylist(), *columns, strict=True))
    return repr(rows)


def _tables(_: Path) -> tuple[Seed, ...]:
    draw = np.random.default_rng(0)
    teacher, student = draw.random((ROWS, CLASSES)), draw.random((ROWS, CLASSES)).astype(np.float32)
    ids, label = np.array([f"row {i}" for i in range(ROWS)]), np.arange(ROWS) % CLASSES
    arrays = {"id": ids, "teacher": teacher, "student": student, "label": label}
    fortran = {**arrays, "teacher": np.asfortranarray(teacher)}
    columns = {"id": ids, "teacher": teacher.tolist(), "student": student.tolist(), "label": label}
    names = ["id", *(f"{name}_{c}" for name in ("teacher", "student") for c in range(CLASSES)), "label"]
    rows = [[i, *t, *s, y] for i, t, s, y in zip(ids, teacher, student.tolist(), label, strict=True)]
    lines = [
        dict(zip(columns, row, strict=True))
        for row in zip(ids.tolist(), teacher.tolist(), student.tolist(), label.tolist(), strict=True)
    ]
    wide = dict(zip(names, zip(*rows, strict=True), strict=True))
    made = (
        ("parquet", "x.parquet", _parquet(columns, checksums=True), True),
        ("parquet, wide", "x.parquet", _parquet(wide, checksums=True), True),
        ("parquet without checksums", "x.parquet", _parquet(columns, checksums=False), False),
        ("csv", "x.csv", "".join(",".join(map(str, row)) + "\n" for row in [names, *rows]).encode(), False),
        ("jsonl", "x.jsonl", "".join(json.dumps(line) + "\n" for line in lines).encode(), False),
        ("npz", "x.npz", _saved(np.savez, **arrays), True),
        ("npz, compressed", "x.npz", _saved(np.savez_compressed, **arrays), True),
        ("npz, Fortran", "x.npz", _saved(np.savez, **fortran), True),
        ("npz, compressed, Fortran", "x.npz", _saved(np.savez_compressed, **fortran), True),
        ("npz, of damaged arrays", "x.npz", _saved(np.save, teacher), False),
        ("npy", "teacher.npy", _saved(np.save, teacher), False),
        ("npy, Fortran", "teacher.npy", _saved(np.save, np.asfortranarray(teacher)), False),
        ("parquet, the 2 largest", "x.parquet", _parquet(columns, checksums=True, top_k=2), False),
    )
    return tuple(Seed(*each, rows_of_table, _archived if "of damaged" in each[0] else None) for each in made)


def _parquet(columns: dict[str, Any], *, checksums: bool, top_k: int | None = None) -> bytes:
    stream, table = io.BytesIO(), pa.table(columns)
    if top_k is not None:
        layout, teacher = StoredPredictions("float32", top_k), np.array(columns["teacher"])
        rows = layout.column(teacher / teacher.sum(axis=1, keepdims=True))
        table = table.set_column(1, layout.field("teacher", CLASSES), rows)
    pq.write_table(table, stream, row_group_size=7, write_page_checksum=checksums, use_dictionary=["id", "label"])
    return stream.getvalue()


def _saved(save: Callable[..., None], *arrays: Any, **named: Any) -> bytes:
    stream = io.BytesIO()
    save(stream, *arrays, **named)
    return stream.getvalue()


def _archived(array: bytes, draw: Random) -> dict[str, bytes]:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
        archive.writestr("teacher.npy", array)
    return {"x.npz": stream.getvalue()}


# training data --------------------------------------------------------------------------------------------------------


def split_of(path: Path) -> str:
    """The rows as training takes them, of a file or of a folder of npy files."""
    import torch

    from wdistill.training.data import check_split
    from wdistill.training.files import DesignColumn, read_data

    data = read_data(path if path.suffix != ".npy" else path.parent, groups=DesignColumn("group", needed=False))
    split = check_split("labeled", data, labels=True, folder=path.parent)
    (inputs,) = split.inputs.batches([torch.arange(len(split))])
    labels = None if split.labels is None else split.labels.tolist()
    groups = None if split.design.groups is None else split.design.groups.tolist()
    return repr([inputs.dtype, inputs.tolist(), labels, split.ids.tolist(), groups])


def _data(_: Path) -> tuple[Seed, ...]:
    draw = np.random.default_rng(0)
    arrays = {
        "inputs": draw.random((ROWS, 4)).astype(np.float32),
        "label": np.arange(ROWS) % CLASSES,
        "id": np.array([f"row {i}" for i in range(ROWS)]),
        "group": np.arange(ROWS) // 2,
    }
    files = {f"{name}.npy": _saved(np.save, values) for name, values in arrays.items()}
    table = {**arrays, "inputs": arrays["inputs"].tolist()}
    return (
        *(Seed(name, "inputs.npy", content, False, split_of, _as(name), files) for name, content in files.items()),
        Seed("npz", "x.npz", _saved(np.savez, **arrays), True, split_of),
        Seed("npz, compressed", "x.npz", _saved(np.savez_compressed, **arrays), True, split_of),
        Seed("parquet", "x.parquet", _parquet(table, checksums=True), True, split_of),
    )


def images_of(path: Path) -> str:
    """The prepared images and their labels."""
    data = load_prepared(path.parent)
    parts = [(split.inputs.tolist(), split.labels.tolist()) for split in (data.train, data.test)]
    return repr([data.metadata, data.classes, parts])


def _prepared(folder: Path) -> tuple[Seed, ...]:
    draw = np.random.default_rng(0)
    train, test = (
        ImageSplit(draw.integers(0, 255, (rows, 1, 2, 2), np.uint8), np.arange(rows) % CLASSES) for rows in (ROWS, 4)
    )
    save_prepared(folder, Dataset("made", CLASSES, train, test, official=False, source="drawn"))
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    manifest = whole.pop(MANIFEST)
    rest = {**whole, MANIFEST: manifest}
    listed = partial(_listed, json.loads(manifest))
    return (
        Seed("dataset.json", MANIFEST, manifest, True, images_of, beside=whole),
        Seed(
            "dataset.json with its digest", MANIFEST, manifest, False, images_of, partial(_described, name=MANIFEST), whole
        ),
        *(Seed(name, MANIFEST, whole[name], True, images_of, _as(name), rest) for name in ARRAYS),
        *(Seed(f"{name}, listed", MANIFEST, whole[name], False, images_of, partial(listed, name), rest) for name in ARRAYS),
    )


def _listed(manifest: dict[str, Any], name: str, damaged: bytes, _: Random) -> dict[str, bytes]:
    """An array that was damaged before its digest was taken."""
    changed = {**manifest, "sha256": {**manifest["sha256"], name: hashlib.sha256(damaged).hexdigest()}}
    changed["digest"] = sealed.digest_of(changed)
    return {name: damaged, MANIFEST: json.dumps(changed).encode()}


# answers and gold labels ----------------------------------------------------------------------------------------------


def rows_of_answers(answers: Path, gold: Path) -> str:
    """What all rows say, and the gold labels."""
    pool = open_pool(Sources([str(answers)], str(gold), None), AnswerOptions(classes=answer_forms.CLASSES))
    batches = [batch.parsed for batch in pool.batches()]
    said = [(each.ids.to_pylist(), each.probabilities.tolist(), sorted(each.refused.items())) for each in batches]
    return repr([said, sorted(pool.numbers.items()), pool.gold.said()])


def _answers(folder: Path) -> tuple[Seed, ...]:
    rows = answer_forms.make(ROWS)
    beside = {"gold.csv": answer_forms.gold_csv(rows, folder).read_bytes()}
    read = lambda path: rows_of_answers(path, path.parent / "gold.csv")  # noqa: E731
    paths = [(name, form(rows, folder)) for name, form in answer_forms.ANSWERS.items()]
    return tuple(Seed(name, path.name, path.read_bytes(), False, read, beside=beside) for name, path in paths)


def _gold(folder: Path) -> tuple[Seed, ...]:
    rows = answer_forms.make(ROWS)
    beside = {"label.csv": answer_forms.label(rows, folder).read_bytes()}
    read = lambda path: rows_of_answers(path.parent / "label.csv", path)  # noqa: E731
    paths = [(name, form(rows, folder)) for name, form in answer_forms.GOLD.items()]
    return tuple(Seed(name, path.name, path.read_bytes(), False, read, beside=beside) for name, path in paths)


# costs ----------------------------------------------------------------------------------------------------------------


def costs_of(path: Path) -> str:
    metric = metric_of(f"cost:{path}", "abc")
    rng = np.random.default_rng(0)
    with np.errstate(all="raise"):
        metric(rng.dirichlet(np.ones(3), 9), np.arange(9) % 3)
    return repr(None if metric.costs is None else metric.costs.tolist())


def _costs(_: Path) -> tuple[Seed, ...]:
    costs = np.array([[0, 1, 2.5], [1, 0, 3], [40, 5, 0]])
    text = "".join(",".join(map(str, row)) + "\n" for row in costs.tolist())
    made = {
        "c.json": json.dumps(costs.tolist()).encode(),
        "c.npy": _saved(np.save, costs),
        "c.csv": text.encode(),
    }
    return tuple(Seed(name, name, content, False, costs_of) for name, content in made.items())


# saved rules ----------------------------------------------------------------------------------------------------------


def rule_of(path: Path) -> str:
    """The rule itself, once it has weighed some rows."""
    fitted, pool = load(path), columns(2, 5, CLASSES)
    weigh(fitted, pool["teacher"], pool["student"])
    return hashlib.sha256(to_bytes(fitted)).hexdigest()


def _evidence() -> Evidence:
    gold, pool = columns(1, 40, CLASSES), columns(2, 5, CLASSES)
    return Evidence(gold["label"], gold["teacher"], gold["student"], pool["teacher"], pool["student"])


def _rules(folder: Path) -> tuple[Seed, ...]:
    rules = {
        "debiased": debiased,
        "product": compose(debiased.using(estimate="ratio"), fidelity),
        "threshold": threshold.using(threshold=0.3),
    }
    made = []
    for name, rule in rules.items():
        save(rule.fit(_evidence()), folder / "rule.npz")
        content = (folder / "rule.npz").read_bytes()
        made.append(Seed(name, "rule.npz", content, True, rule_of))
        with np.load(folder / "rule.npz") as arrays:
            members = {key: _saved(np.save, value) for key, value in arrays.items()}
        for key, array in members.items():
            if key == "rule.json" or name == "debiased":
                others = {other: value for other, value in members.items() if other != key}
                damaged = array[128:] if key == "rule.json" else array
                made.append(Seed(f"{name}, {key}", "rule.npz", damaged, False, rule_of, partial(_repacked, key, others)))
    return tuple(made)


def _repacked(key: str, others: Mapping[str, bytes], damaged: bytes, _: Random) -> dict[str, bytes]:
    """An archive with right checksums; a text is damaged without the header of its array."""
    array = _saved(np.save, np.frombuffer(damaged, np.uint8)) if key == "rule.json" else damaged
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in {**others, key: array}.items():
            archive.writestr(f"{name}.npy", content)
    return {"rule.npz": stream.getvalue()}


# files of weights -----------------------------------------------------------------------------------------------------


def verified(path: Path) -> str:
    """The record and the rows of a file that `wdistill verify` calls whole."""
    kind, states = verify(path)
    if any(state.is_bad for state in states):
        raise FileError("damaged", where=str(path))
    return repr([kind, read_record(path), [batch.to_pydict() for batch in read_batches(path)]])


def inspected(path: Path) -> str:
    """What `wdistill inspect` prints; the picture is not drawn."""
    printed = io.StringIO()
    with patch("wdistill.report.inspect.picture", return_value=b"drawn"), contextlib.redirect_stdout(printed):
        code = main(["inspect", str(path), "--picture", str(path.parent / "picture.png")])
    if code in (2, 3):
        raise FileError("refused", where=str(path))
    if code:
        raise RuntimeError(f"exit code {code}")
    return printed.getvalue()


def _records(folder: Path) -> tuple[Seed, ...]:
    gold, pool = write(folder / "v.parquet", columns(1, 40)), write(folder / "u.parquet", columns(2, ROWS, first=1000))
    made = []
    for kind in ("parquet", "npz"):
        path = folder / f"w.{kind}"
        weigh_files(Paths([str(gold)], [str(pool)]), path, Options())
        made.append(Seed(f"{kind}, verified", path.name, path.read_bytes(), True, verified))
        made.append(Seed(f"{kind}, inspected", path.name, path.read_bytes(), False, inspected))
    table, record = pq.read_table(folder / "w.parquet"), read_record(folder / "w.parquet")
    text = json.dumps({**record, "warnings": ["a warning"]}).encode() if record else b""
    short = json.dumps({key: value for key, value in (record or {}).items() if key != "state"}).encode()
    for name, content in {"record": text, "record without state": short}.items():
        for word, read in {"inspected": inspected, "verified": verified}.items():
            made.append(Seed(f"{name}, {word}", "w.parquet", content, False, read, partial(_resealed, table)))
    return tuple(made)


def _resealed(table: pa.Table, text: bytes, _: Random) -> dict[str, bytes]:
    """A file of weights whose record was damaged before it was sealed."""
    digest = hashlib.sha256(text).hexdigest().encode()
    record = sealed.HEAD + digest + sealed.MIDDLE + text + b"}\n"
    stream = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({RECORD: record}), stream)
    return {"w.parquet": stream.getvalue()}


# runs and unfinished jobs ---------------------------------------------------------------------------------------------


def looked_at(path: Path) -> str:
    """What the results of the run are that a manifest is of, as `wdistill show` and `runs` say them."""
    run = path.parent if path.parent.name == "run" else path.parent.parent.parent
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        codes = {main([command, str(run)]) for command in ("runs", "show")}
    if codes & {2, 3}:
        raise FileError("refused", where=str(path))
    if codes != {0}:
        raise RuntimeError(f"exit codes {codes}")
    verify(run)
    return printed.getvalue()


def _manifests(folder: Path) -> tuple[Seed, ...]:
    """Manifests of a run whose seal is right, and their content is not."""
    import torch

    from wdistill import MLP, Recipe, distill

    draw = torch.Generator().manual_seed(0)
    splits = {
        name: torch.randn(rows, 6, generator=draw) for name, rows in {"labeled": 9, "validation": 12, "test": 6}.items()
    }
    labeled, validation, test = ((inputs, torch.arange(len(inputs)) % CLASSES) for inputs in splits.values())
    rules = ("debiased", "unweighted")
    recipe = Recipe(teacher_epochs=1, student_epochs=1, epochs=2, refresh=1, rule=rules, metric="macro-f1", threads=1)
    pool, models = torch.randn(ROWS, 6, generator=draw), [MLP(6, CLASSES, (4,)) for _ in range(2)]
    with contextlib.redirect_stderr(io.StringIO()):
        distill(*models, labeled, validation, pool, test, recipe=recipe, run=folder / "run")
    run = folder / "run"
    (run / "report.html").unlink()
    newest = [
        max(str(path.relative_to(folder)) for path in (run / name).glob("generation-*.json"))
        for name in (".", "arms/debiased", "teacher")
    ]
    for name in newest:  # the one before would be read where this one is damaged
        for path in (folder / name).parent.glob("generation-*.json"):
            if path != folder / name:
                path.unlink()
    whole = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}
    return tuple(
        Seed(name, name, json.dumps(sealed.unseal(whole[name])).encode(), False, looked_at, _sealed_as(name), whole)
        for name in newest
    )


def _sealed_as(*names: str) -> Packing:
    """Records with the digest of what they say."""

    def packed(text: bytes, _: Random) -> dict[str, bytes]:
        record = sealed.HEAD + hashlib.sha256(text).hexdigest().encode() + sealed.MIDDLE + text + b"}\n"
        return dict.fromkeys(names, record)

    return packed


def resumed(path: Path) -> str:
    """What a job that starts again takes from the record of the one before."""
    _, states = verify(path.parent)
    job = open_folder(path.parent, {"options": {"rule": "debiased"}, "files": ["u.parquet"]})
    return repr([[state.is_bad for state in states], job.parts, sorted(job.aligned.items()), job.warnings])


def _jobs(folder: Path) -> tuple[Seed, ...]:
    """The record of an unfinished job whose seal is right, and its content is not."""
    token, name, stamps = "0123456789abcdef", "part-000000.0123456789abcdef.parquet", [[10, 20], [30, 40]]
    rows = {"rows-000000": [4, hashlib.sha256(b"rows").hexdigest()]}
    record = {
        "identity": {"options": {"rule": "debiased"}, "files": ["u.parquet"]},
        "token": token,
        "parts": [Part(0, 2, stamps, 5, 5, {"clipped": 1}, name, 4, hashlib.sha256(b"part").hexdigest())],
        "aligned": {"1": {"order": "u.parquet", "columns": ["student"], "files": rows}},
        "warnings": ["a warning"],
    }
    text = json.dumps({**record, "parts": [vars(part) for part in record["parts"]]}).encode()  # type: ignore[attr-defined]
    beside = {f"job/{name}": b"part", f"job/aligned-1.{token}/rows-000000": b"rows"}
    packed = _sealed_as("job/job.json", "job/job.copy.json")
    return (Seed("job.json", "job/job.json", text, False, resumed, packed, beside),)


# exported students ----------------------------------------------------------------------------------------------------


def student_of(path: Path) -> str:
    """What the student says of some rows, and what it decides."""
    import torch

    from wdistill.training.export import load_student

    student = load_student(path.parent)
    with torch.no_grad(), np.errstate(all="ignore"):
        probabilities = student(torch.linspace(-1, 1, 24).reshape(4, 6)).softmax(1).nan_to_num(0.5)
    return repr([probabilities.tolist(), student.decide(probabilities.numpy()).tolist()])  # type: ignore[operator]


def _students(folder: Path) -> tuple[Seed, ...]:
    import torch

    from wdistill.training import export
    from wdistill.training.models.networks import MLP

    torch.manual_seed(0)
    decision = {"metric": "cost", "offsets": [0.0, -0.5, -1.0], "costs": [[0, 1, 1], [1, 0, 1], [9, 9, 0]]}
    with patch.object(export, "torch_program", return_value="not made"):
        export.export_student(MLP(6, CLASSES, (4,)), torch.zeros(1, 6), folder / "s", None, {"decision": decision})
    description, parameters = ((folder / "s" / name).read_bytes() for name in (export.DESCRIPTION, export.PARAMETERS))
    whole = {export.DESCRIPTION: description, export.PARAMETERS: parameters}
    return (
        Seed("student.json", export.DESCRIPTION, description, True, student_of, beside=whole),
        Seed("student.safetensors", export.DESCRIPTION, parameters, True, student_of, _as(export.PARAMETERS), whole),
        Seed("student.json with its digest", export.DESCRIPTION, description, False, student_of, _described, whole),
        Seed(
            "student.safetensors with its digest",
            export.DESCRIPTION,
            parameters,
            False,
            student_of,
            partial(_digested, json.loads(description)),
        ),
    )


def _as(name: str) -> Packing:
    return lambda damaged, _: {name: damaged}


def _described(damaged: bytes, _: Random, name: str = "student.json") -> dict[str, bytes]:
    """A description with the digest of what it says, where it still is one."""
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(damaged)
        if isinstance(value, dict):
            damaged = json.dumps({**value, "digest": sealed.digest_of(value)}).encode()
    return {name: damaged}


def _digested(description: dict[str, Any], damaged: bytes, _: Random) -> dict[str, bytes]:
    """Parameters that a description belongs to."""
    changed = {**description, "sha256": {"student.safetensors": hashlib.sha256(damaged).hexdigest()}}
    changed["digest"] = sealed.digest_of(changed)
    return {"student.json": json.dumps(changed).encode(), "student.safetensors": damaged}


@dataclass(frozen=True)
class Reader:
    """What is damaged, in words, and the valid files."""

    words: str
    make: Callable[[Path], tuple[Seed, ...]]
    mutants: int = 300  # in the short run
    nightly: int = 100_000


READERS = {
    "tables": Reader("tables: parquet, npz, npy, csv, jsonl", _tables, 1_200, 389_000),
    "data": Reader("training data: folders of npy files, npz, parquet", _data, 300, 60_000),
    "prepared": Reader("prepared data: dataset.json and its arrays", _prepared, 300, 40_000),
    "answers": Reader("answers, in every form: tables, votes, batch outputs", _answers),
    "gold": Reader("gold labels, in every form: tables, Label Studio, doccano, Argilla", _gold),
    "costs": Reader("matrices of costs: json, npy, csv", _costs),
    "rules": Reader("saved rules, whole and array by array", _rules),
    "records": Reader("files of weights and their records, verified and inspected", _records, 150, 20_000),
    "manifests": Reader("manifests of runs with right digests, in show, runs and verify", _manifests, 100, 1_000),
    "jobs": Reader("records of unfinished jobs with right digests", _jobs, 150, 10_000),
    "students": Reader("exported students: student.json, student.safetensors", _students, 300, 80_000),
}
