"""Provocations C1 to E12 of the catalogue: settings, data sets and models that a run cannot, or can hardly, work with."""

from __future__ import annotations

import errno
import json
import math
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor, nn

import wdistill
from tests import official
from tests.distilling import QUICK, Dropping, failing, go, seeded, splits, student, teacher
from tests.reliability.bad_files import two_tables, weigh_tables
from tests.reliability.outcomes import contents, exits, fact, printed, quietly, refused, same, told
from tests.staging import MEASURED, RECIPE, N, Stopping, made, refreshed, rows, stage, whole
from tests.tables import Items, columns, write
from wdistill import (
    CheckpointError,
    ConfigError,
    Data,
    FileError,
    InputError,
    LeakError,
    NumericalError,
    Recipe,
    Report,
    StorageError,
    Streamed,
    UnfinishedError,
    debiased,
    unweighted,
)
from wdistill.core import sealed
from wdistill.datasets import prepare
from wdistill.datasets.originals import Original, download
from wdistill.runs.checkpoints import CheckpointStore, read_manifest
from wdistill.runs.recipe import check_recipe, read_recipe
from wdistill.training import identity
from wdistill.training.data import Split
from wdistill.training.inputs import InMemory
from wdistill.training.labels import by_module
from wdistill.training.loop import run_stage
from wdistill.training.losses import weighted_loss
from wdistill.training.passes import batches_of
from wdistill.training.stage import Callbacks, StoppedError
from wdistill.training.tensors import from_bytes, load_parameters


def run(*given: Any, **changes: Any) -> Report:
    """A small distillation without a page, and without a word."""
    report: Report = quietly(lambda: go(*given, **changes))
    return report


def begin(folder: Path, **changes: Any) -> Path:
    """A run that a full disk has stopped inside the teacher's training."""
    with failing(60, errno.ENOSPC):
        refused(StorageError, lambda: go(**changes, run=folder / "run"))
    return folder / "run"


# C: configuration -------------------------------------------------------------------------------------------------------


def unknown_keys(folder: Path) -> None:
    for typo, meant in (("epoch", "epochs"), ("batch-size", "batch_size")):
        path = folder / "recipe.toml"
        path.write_text(f"{typo} = 3")
        refused(ConfigError, lambda p=path: read_recipe([p], {}), str(path), repr(typo), f"did you mean {meant}?")
    exits(2, ["weigh", "--confidnce", "margin"], "--confidnce", "did you mean --confidence?", parts=False)
    refused(ConfigError, lambda: debiased(_evidence(), estimate="papr"), "estimate", "did you mean paper?")


def _evidence() -> wdistill.Evidence:
    return wdistill.Evidence(np.arange(4) % 2, *[np.full((4, 2), 0.5)] * 4)


def out_of_range(folder: Path) -> None:
    for k in (0, -1, 5, 2.0, 1.5, "3"):
        refused(ConfigError, lambda k=k: debiased(_evidence(), neighbors=k), "neighbors", repr(k), "1 to 4")
    for name, value in (("epochs", 0), ("rate", -0.1), ("batch_size", 0), ("neighbors", 0), ("neighbors", 2.5)):
        refused(ConfigError, lambda n=name, v=value: check_recipe(replace(Recipe(), **{n: v})), name, str(value))
    refused(ConfigError, lambda: go(recipe=replace(QUICK, neighbors=31)), "neighbors", "31", "at most 30")
    gold, pool = two_tables(folder)
    common = ["weigh", "--validation", gold, "--unlabeled", pool, "--output", folder / "w.parquet", "--neighbors"]
    exits(2, [*common, 0], "at least 1")
    exits(2, [*common, 81], "from 1 to 80")


def conflicts(folder: Path) -> None:
    for settings in ({"threshold": 0.5}, {"rule": ("unweighted",), "neighbors": 3}, {"momentum": 0.5}):
        error = refused(ConfigError, lambda s=settings: check_recipe(Recipe(**s)), " with ")
        fact(all(name in error.found for name in settings), "both settings are named")
    gold, pool = two_tables(folder)
    common = ["weigh", "--validation", gold, "--unlabeled", pool, "--output", folder / "w.parquet"]
    exits(2, [*common, "--threshold", 0.5], "--threshold", "needs --rule threshold")
    exits(2, [*common, "--kind", "logits", "--renormalize"], "--renormalize", "--kind logits")


def changed_settings(folder: Path) -> None:
    place = begin(folder)
    before = contents(place)
    changed = replace(QUICK, epochs=3, rate=0.5)
    refused(ConfigError, lambda: go(recipe=changed, run=place), "epochs: 2 → 3", "rate: 0.01 → 0.5", "name another folder")
    same(contents(place), before)
    run(recipe=replace(QUICK, checkpoint_seconds=9.0), run=place)  # a setting that changes no bit
    fact(read_manifest(place).state["finished"], "the run went on")


def changed_runs(folder: Path) -> None:
    place = begin(folder)
    before = contents(place)
    inputs, labels = splits()["validation"]
    refused(ConfigError, lambda: go(recipe=replace(QUICK, seed=1), run=place), "seed: 0 → 1", "name another folder")
    refused(ConfigError, lambda: go(validation=(inputs, labels.flip(0)), run=place), "data validation labels", " → ")
    four = nn.Linear(6, 4), nn.Linear(6, 4)
    refused(ConfigError, lambda: go(*four, run=place), "student", " → ")
    with patch.object(wdistill, "__version__", "99.0.0"):
        refused(ConfigError, lambda: go(run=place), "version", "→ 99.0")
    same(contents(place), before)


def finished_runs(folder: Path) -> None:
    for name, (inputs, labels) in splits().items():
        np.savez(folder / f"{name}.npz", inputs=inputs.numpy(), label=labels.numpy())
    words = [word for name in splits() for word in (f"--{name}", folder / f"{name}.npz")]
    models = ["--teacher", "mlp:inputs=6,classes=3,hidden=8", "--student", "mlp:inputs=6,classes=3,hidden=4"]
    epochs = ["--epochs", 1, "--teacher-epochs", 1, "--student-epochs", 1, "--device", "cpu"]
    command = ["distill", *models, *words, *epochs, "--run", folder / "run"]
    printed(command)
    before, times = contents(folder / "run"), _times(folder / "run")
    fact("was finished before: nothing has changed" in " ".join(printed(command).split()), "it says that it is finished")
    same((contents(folder / "run"), _times(folder / "run")), (before, times))


def _times(folder: Path) -> dict[str, int]:
    return {name: (folder / name).stat().st_mtime_ns for name in contents(folder)}


def other_environment(folder: Path) -> None:
    place, known = begin(folder), identity.environment
    with patch.object(identity, "environment", lambda *where: {**known(*where), "torch": "1.0"}):
        report = run(run=place)
    told("\n".join(report.outcome.warnings), "torch", "→ 1.0", "the same bits are not promised")


def folder_of_others(folder: Path) -> None:
    (folder / "thesis.tex").write_text("years")
    refused(ConfigError, lambda: go(run=folder), str(folder), "thesis.tex", "nothing was touched")
    same(contents(folder), {"thesis.tex": b"years"})
    gold, pool = two_tables(folder / "in")
    parts = folder / "w.parquet.parts"
    parts.mkdir()
    (parts / "notes.txt").write_text("mine")
    refused(ConfigError, lambda: weigh_tables(gold, [pool], folder / "w.parquet"), "notes.txt", str(parts))
    same(contents(parts), {"notes.txt": b"mine"})


def yaml_tags(folder: Path) -> None:
    marker, path = folder / "marker", folder / "recipe.yaml"
    path.write_text(f'epochs: !!python/object/apply:os.system ["touch {marker}"]\n')
    refused(FileError, lambda: read_recipe([path], {}), str(path), "not a TOML file", "line 1")
    fact(not marker.exists(), "nothing was executed")


def numbers_that_are_none(folder: Path) -> None:
    for value in (math.nan, math.inf):
        refused(ConfigError, lambda v=value: check_recipe(replace(Recipe(), rate=v)), "rate", "finite")
        try:
            sealed.seal({"loss": value})
        except ValueError as error:
            fact("JSON" in str(error), "a number that is none is not stored")
    data = {name: part for name, part in splits().items() if name != "test"}
    run(**data, test=None, run=folder / "run")
    texts = [path.read_text() for path in (folder / "run").rglob("*.json*")]
    gold, pool = two_tables(folder)
    weigh_tables(gold, [pool], folder / "w.parquet", rule=("unweighted",))
    texts.append(pq.read_metadata(folder / "w.parquet").metadata[b"wdistill"].decode())
    found = [json.loads(line, parse_constant=_no_number) for text in texts for line in text.splitlines()]
    fact(len(found) > 5 and any(line.get("test", 0) is None for line in found), "what was not measured is null")


def _no_number(text: str) -> None:
    raise AssertionError(f"{text} is not JSON")


# D: data sets -----------------------------------------------------------------------------------------------------------


def leaks(folder: Path) -> None:
    (inputs, labels), (known, truth) = splits()["validation"], splits()["labeled"]
    leaking = torch.cat([inputs, known[3:5]]), torch.cat([labels, truth[3:5]])
    refused(LeakError, lambda: go(validation=leaking, run=folder / "run"), "2 of 32 rows, first ids 30, 31")
    by_id = {
        "labeled": Data(known, truth, [f"a{row}" for row in range(29)] + ["c"]),
        "validation": Data(inputs, labels, ["c"] + [f"b{row}" for row in range(29)]),
    }
    refused(LeakError, lambda: go(**by_id, run=folder / "run"), "1 of 30 rows, first ids c")
    fact(not list((folder / "run").glob("generation-*")), "no run was begun")


def near_duplicates(folder: Path) -> None:
    gold, pool = columns(1, 200), columns(2, 500, first=1000)
    gold["teacher"] = np.eye(4, dtype=np.float32)[gold["label"]]  # as if trained on rows that are nearly these
    paths = write(folder / "v.parquet", gold), write(folder / "u.parquet", pool)
    record = weigh_tables(paths[0], [paths[1]], folder / "w.parquet")
    told("\n".join(record["warnings"]), "the teacher is surer on gold than elsewhere", "was it trained on gold rows?")


def gold_in_the_pool(folder: Path) -> None:
    (inputs, _), (pool, _) = splits()["validation"], splits()["unlabeled"]
    report = run(unlabeled=torch.cat([pool, inputs[:4]]), rule=unweighted, run=folder / "run")
    told("\n".join(report.outcome.warnings), "4 validation rows are also among the unlabeled rows: allowed")
    same(wdistill.read_run(folder / "run").warnings, report.outcome.warnings)


def repeated_rows(folder: Path) -> None:
    pool, _ = splits()["unlabeled"]
    report = run(unlabeled=torch.cat([pool, pool[:10]]), rule=debiased, run=folder / "run")
    same((report.outcome.rows["unlabeled"], report.outcome.arms["debiased"].epochs[0].examples), (70, 100))
    weights = pq.read_table(folder / "run" / "arms" / "debiased" / "weights" / "00000.parquet")["weight"].to_numpy()
    same(weights[60:], weights[:10])


class _Broken(Items):
    def __getitem__(self, row: int) -> Any:
        if row == 17:
            raise OSError("a torn image")
        return self.inputs[row]


def broken_items(folder: Path) -> None:
    inputs, _ = splits()["unlabeled"]
    for way in (lambda dataset: dataset, Streamed):
        refused(InputError, lambda w=way: go(unlabeled=w(_Broken(inputs))), "item 17", "a torn image")


def gold_from_elsewhere(folder: Path) -> None:
    gold, pool = columns(1, 600), columns(2, 3000, first=1000)
    easy = np.flatnonzero((gold["label"] < 2) | (np.arange(600) % 4 == 0))  # classes at other rates
    paths = (
        write(folder / "v.parquet", {name: values[easy] for name, values in gold.items()}),
        write(folder / "u.parquet", pool),
    )
    record = weigh_tables(paths[0], [paths[1]], folder / "w.parquet", method="best")
    told("\n".join(record["warnings"]), "gold does not look like the unlabeled rows", "the teacher's classes")


class _Random(Items):
    def __getitem__(self, row: int) -> Any:
        return self.inputs[row] + torch.rand(6)


def random_items(folder: Path) -> None:
    report = run(unlabeled=_Random(splits()["unlabeled"][0]), rule=unweighted)
    told("\n".join(report.outcome.warnings), "drawing an item twice")


class _Growing(Items):
    grown = 0

    def __len__(self) -> int:
        return len(self.inputs) - 10 + self.grown

    def __getitem__(self, row: int) -> Any:
        self.grown = min(10, self.grown + (row > 5))
        return self.inputs[row]


def growing_datasets(folder: Path) -> None:
    refused(
        InputError, lambda: go(unlabeled=_Growing(splits()["unlabeled"][0])), "changed its length", "60 items", "50 items"
    )


def few_rows(folder: Path) -> None:
    inputs, labels = splits()["labeled"]
    for rows_ in (3, 1):
        same(run(labeled=(inputs[:rows_], labels[:rows_])).outcome.rows["labeled"], rows_)
    same([len(batch) for batch in batches_of(torch.arange(33), 16)], [16, 17])  # no batch of one row for a batch norm
    one = inputs[:1], labels[:1]
    refused(ConfigError, lambda: go(teacher, Dropping, labeled=one), "the student cannot read its input", "shape (1, 6)")


def bad_downloads(folder: Path) -> None:
    (folder / "far").write_bytes(b"x" * 3000)
    wanted = Original("a", "0" * 32, (folder / "far").as_uri())
    refused(FileError, lambda: download(folder / "near", [wanted]), "not the published file", "3,000 bytes")
    same(list((folder / "near").iterdir()), [])
    secret = folder / "secret"
    secret.write_bytes(bytes(3073))
    link, device = tarfile.TarInfo("data_batch_1.bin"), tarfile.TarInfo("test_batch.bin")
    link.type, link.linkname, device.type = tarfile.SYMTYPE, str(secret), tarfile.CHRTYPE
    files = {f"../../data_batch_{i}.bin": b"\x01" * 3073 for i in range(2, 6)} | {"/test_batch.bin": b"\x02" * 3073}
    place = folder / "root" / "cifar10"
    place.mkdir(parents=True)
    (place / "cifar-10-binary.tar.gz").write_bytes(official.tar_gz(files, (link, device)))
    refused(FileError, lambda: prepare("cifar10", folder / "root", unofficial=True), "no data_batch_1.bin")
    same(sorted(path.name for path in folder.iterdir()), ["far", "near", "root", "secret"])


# E: models --------------------------------------------------------------------------------------------------------------


def loss_that_is_no_number(folder: Path) -> None:
    def weights(model: nn.Module, after: int) -> Tensor:
        return torch.ones(N) if after == 0 else torch.full((N,), float("nan"))

    model = seeded(student)
    there = stage(folder, 3, every=1, **refreshed(weights))
    refused(
        NumericalError,
        lambda: run_stage(there, model, RECIPE, MEASURED),
        "epoch 2, step 1",
        "ids of the batch",
        "weights from",
    )
    checkpoints = CheckpointStore(folder)
    stored = from_bytes(checkpoints.read(checkpoints.state["checkpoint"]), "")
    fact(checkpoints.state["epoch"] == 1, "the last good state is kept")
    fact(all(torch.equal(stored[f"model/{name}"], value) for name, value in model.state_dict().items()), "no step was made")


def parameters_that_are_no_numbers(folder: Path) -> None:
    recipe = replace(RECIPE, optimizer="sgd", rate=1e38, batch_size=N)
    refused(
        NumericalError, lambda: run_stage(stage(folder, scale=1e6), seeded(student), recipe, {}), "parameters of student"
    )
    fact(not read_manifest(folder).state, "no checkpoint counts")


def teachers_in_train_mode(folder: Path) -> None:
    model, (inputs, labels) = seeded(Dropping).train(), rows()
    predicted, split = by_module(model, "float32", Callbacks()), Split("unlabeled", InMemory(inputs), labels, np.arange(N))
    same(predicted(split, slice(0, N)), predicted(split, slice(0, N)))
    fact(model.training, "the model is left as it was")


class _Wrong(nn.Module):
    """Returns what a function makes of the logits."""

    def __init__(self, change: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.inner, self.change = student(), change

    def forward(self, inputs: Tensor) -> Any:
        return self.change(self.inner(inputs))


def outputs_of_another_kind(folder: Path) -> None:
    for change, words in (
        (lambda logits: (logits, None), ("a tuple",)),
        (lambda logits: logits.softmax(1), ("probabilities", "before the softmax")),
        (lambda logits: logits[:, 0], ("shape (2,)",)),
    ):
        refused(ConfigError, lambda c=change: go(teacher, lambda: _Wrong(c), run=folder / "run"), "the student", *words)
    fact(not list((folder / "run").glob("generation-*")), "no run was begun")


def outputs_of_another_width(folder: Path) -> None:
    refused(InputError, lambda: go(teacher, lambda: nn.Linear(6, 4)), "teacher and student", "3 and 4", "classes")
    inputs, labels = splits()["validation"]
    refused(InputError, lambda: go(validation=(inputs, labels + 1)), "validation labels", "3 classes")


class _Hungry(nn.Module):
    """Runs out of memory in its forward or backward pass, in training."""

    def __init__(self, backward: bool) -> None:
        super().__init__()
        self.inner, self.backward = student(), backward

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.inner(inputs)
        if self.training and not self.backward:
            raise torch.OutOfMemoryError("CUDA out of memory")
        if self.training:
            logits.register_hook(_out_of_memory)
        return logits


def _out_of_memory(gradient: Tensor) -> Tensor:
    raise torch.OutOfMemoryError("CUDA out of memory")


def out_of_memory(folder: Path) -> None:
    for backward in (False, True):
        place = folder / str(backward)
        words = ("out of memory", "a batch of 16 rows (6,)", "smaller batch_size", "run again to resume")
        refused(UnfinishedError, lambda b=backward, p=place: go(teacher, _Hungry(b), run=p), *words)
        fact(list(place.glob("generation-*")), "the run can resume")


def another_type_after_resuming(folder: Path) -> None:
    place = begin(folder)
    refused(ConfigError, lambda: go(teacher, lambda: student().double(), run=place), "call .float()")
    if not torch.cuda.is_available():
        refused(ConfigError, lambda: go(recipe=replace(QUICK, device="cuda"), run=place), "no such device here", "cuda")
    run(teacher, lambda: student().requires_grad_(), run=place)
    fact(read_manifest(place).state["finished"], "the run went on")


def parameters_of_another_model(folder: Path) -> None:
    state = {**student().state_dict(), "layers.3.bias": torch.zeros(7)}
    model = student()
    model.layers[1].bias = None
    model.extra = nn.Linear(1, 1, bias=False)
    refused(
        ConfigError,
        lambda: load_parameters(model, state, "student"),
        *("not in the file: extra.weight", "not in the network: layers.1.bias", "layers.3.bias (7,) instead of (3,)"),
    )
    refused(CheckpointError, lambda: from_bytes(b"no tensors", "student"), "not a safetensors file")


def optimizers_without_state(folder: Path) -> None:
    place = folder / "run"
    refused(ConfigError, lambda: go(recipe=replace(QUICK, optimizer="lion"), run=place), "optimizer", "'lion'", "adam")
    fact(not place.exists(), "it is said at the start")


def weights_of_zero(folder: Path) -> None:
    logits = torch.randn(4, 3, requires_grad=True)
    loss = weighted_loss(logits, torch.tensor([0, 1, 2, 0]), torch.zeros(4), 1.0)
    loss.backward()
    same((loss.item(), bool(torch.isfinite(logits.grad).all())), (0.0, True))  # type: ignore[union-attr]
    half = torch.tensor([1.0, 1.0, 0.0, 0.0])
    kept = nn.functional.cross_entropy(logits[:2], torch.tensor([0, 1]), reduction="sum") / 4
    found = weighted_loss(logits, torch.tensor([0, 1, 2, 0]), half, 1.0)
    fact(torch.isclose(found, kept), "the denominator is the number of rows, not the sum of the weights")
    one = torch.zeros(N)
    one[0] = 1.0  # all weights of nearly every batch are 0
    run_stage(stage(folder, 2, made(weights=one)), seeded(student), RECIPE, {})
    fact(all(math.isfinite(epoch["loss"]) for epoch in read_manifest(folder).state["epochs"]), "the losses are finite")


def epochs_of_weights(folder: Path) -> None:
    report = run(recipe=replace(QUICK, refresh=1), run=folder / "run")
    refreshes = report.outcome.arms["debiased"].refreshes
    same([(each.after, each.file) for each in refreshes], [(0, "weights/00000.parquet"), (1, "weights/00001.parquet")])
    stored = wdistill.read_run(folder / "run").arms["debiased"].refreshes
    same([each.after for each in stored], [0, 1])


def overflow_of_the_scale(folder: Path) -> None:
    recipe = replace(RECIPE, precision="float16", checkpoint_seconds=1e9)
    scale = 2.0**40  # gradients overflow in the first steps, which are left out

    def train(place: Path, callbacks: Callbacks | None = None) -> None:
        with patch.object(torch.amp, "GradScaler", _scaler(torch.amp.GradScaler, scale)):
            run_stage(stage(place, 4), seeded(student), recipe, {}, callbacks)

    train(folder / "whole")
    fact(CheckpointStore(folder / "whole").state["skipped"] > 2, "steps that were left out are counted")
    for at in (1, 2):
        place = folder / str(at)
        try:
            train(place, Callbacks(Stopping(at)))
        except StoppedError:
            train(place)
        same(whole(place), whole(folder / "whole"))


def _scaler(kind: Any, scale: float) -> Callable[..., Any]:
    return lambda *given, **more: kind(*given, init_scale=scale, **more)
