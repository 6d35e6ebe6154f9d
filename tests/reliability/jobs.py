"""Small jobs that write everything we ever write, and what they come to, compared byte by byte without times."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import scipy.optimize  # imported when first used, as some below: once, here, not in every child
import scipy.special
import scipy.stats  # noqa: F401
import sklearn.ensemble  # noqa: F401
import torch
import torch._dynamo

import wdistill.answers.targets
import wdistill.report.page
from tests import killing, official
from tests.tables import Items, columns, take, write
from wdistill import Evidence, WdistillError, cli, compose, debiased, fidelity, save
from wdistill.cli import digits
from wdistill.datasets import originals, pictures
from wdistill.datasets.catalog import prepare
from wdistill.datasets.prepared import Dataset, ImageSplit, save_prepared
from wdistill.methods import crossfit
from wdistill.methods.best import best
from wdistill.tables import job as table_job
from wdistill.training.distill import distill
from wdistill.training.export import export_student
from wdistill.training.models.networks import MLP

FILES, ROWS = 3, 60
BATCH = 25  # rows that a teacher is called on: batches begin in one file and end in the next


@dataclass(frozen=True)
class Job:
    """A job that writes into a folder, and can be started again there after any interruption."""

    name: str
    run: Callable[[Path], None]
    fingerprint: Callable[[Path], dict[str, str]] = killing.fingerprint
    every: int = 1  # every so many of its operations is tried in the short harness; all of them nightly


@cache
def inputs() -> Path:
    """Tables: gold rows; teacher and student in three files, also with ids in no order; both apart; and a published file."""
    folder = Path(mkdtemp(prefix="reliability-"))
    gold, pool = columns(1, 80), columns(2, FILES * ROWS, first=1000)
    write(folder / "v.parquet", gold)
    for i, rows in enumerate(np.array_split(np.arange(FILES * ROWS), FILES)):
        write(folder / "u" / f"{i}.parquet", take(pool, rows, "id", "teacher", "student"))
        write(folder / "t" / f"{i}.parquet", take(pool, rows, "id", "teacher"))
    order = np.random.default_rng(0).permutation(FILES * ROWS)
    write(folder / "s.parquet", take(pool, order, "id", "student"))
    for i, rows in enumerate(np.array_split(order, FILES)):
        write(folder / "mixed" / f"{i}.parquet", take(pool, rows, "id", "teacher", "student"))
    (folder / "published.bin").write_bytes(np.random.default_rng(2).bytes(5000))
    ids, classes = range(FILES * ROWS), np.random.default_rng(1).integers(0, 2, (2, FILES * ROWS))
    official.write_imagenet(folder / "imagenet", 5, 3)
    lines = [f"{row},{label}\n" for row, label in zip(ids, classes[0], strict=True)]
    (folder / "answers.csv").write_text("id,answer\n" + "".join(lines))
    (folder / "gold.csv").write_text("id,label\n" + "".join(f"{row},{classes[1][row]}\n" for row in range(40)))
    return folder


def prepare_process() -> None:
    """What every job of this process shares: one thread, parts of one file, small forests, and a page that costs nothing."""
    torch.set_num_threads(1)
    table_job.PART, crossfit.TREES = 1, 5
    wdistill.report.page.page = lambda groups, title: "the page is drawn from the run, and tested elsewhere"
    inputs()


def command(*words: object) -> None:
    code = cli.main([str(word) for word in words])
    if code:
        raise SystemExit(code)


def _weigh(*more: object, output: str = "w.parquet") -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        tables = [inputs() / word if isinstance(word, str) and not word.startswith("--") else word for word in more]
        words = [str(word).removeprefix("=") for word in tables]
        command("weigh", "--validation", inputs() / "v.parquet", *words, "--output", folder / output)

    return run


def of_batch(predictions: np.ndarray) -> np.ndarray:
    """A teacher for `label`: what it says of a row depends on all rows of its batch."""
    return np.asarray((predictions + predictions.mean(axis=0)) / 2)


def _label(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    words = ("--unlabeled", inputs() / "t", "--inputs", "teacher", "--top-k", 2, "--batch-rows", BATCH)
    command("label", "--teacher", f"{__name__}:of_batch", *words, "--output", folder / "w.parquet")


def _engine(folder: Path) -> None:
    """Partitions into a folder; what an engine copies to a machine meanwhile goes into a folder of the job, to be seen."""
    tables = ("--validation", inputs() / "v.parquet", "--unlabeled", inputs() / "mixed")
    _by_engine(folder, "weigh", *tables)


def _correct_by_engine(folder: Path) -> None:
    _by_engine(folder, "correct", "--answers", inputs() / "answers.csv", "--gold", inputs() / "gold.csv")


def _by_engine(folder: Path, *words: object) -> None:
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    tempfile.tempdir = str(folder / "tmp")
    command(*words, "--engine", "local", "--output", folder / "w")


def _weights_folder(folder: Path) -> dict[str, str]:
    """A digest for every file of the output; what a killed process left elsewhere is not read."""
    return killing.fingerprint(folder / "w")


def _best(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    tables = ("--validation", inputs() / "v.parquet", "--unlabeled", inputs() / "u")
    command("weigh", "--method", "best", *tables, "--output", folder / "w.parquet")


def _correct(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    sources = ("--answers", inputs() / "answers.csv", "--gold", inputs() / "gold.csv")
    command("correct", *sources, "--output", folder / "w.parquet")


def _distill_best(folder: Path) -> None:
    torch.manual_seed(0)
    recipe = replace(killing.RECIPE, epochs=2, refresh=None)
    distill(MLP(6, 3, (8,)), MLP(6, 3, (4,)), **killing.splits(), rule=best, recipe=recipe, run=folder)


def _two_workers(folder: Path) -> None:
    torch.manual_seed(0)
    recipe = replace(killing.RECIPE, teacher_epochs=1, student_epochs=1, epochs=2, workers=2)
    models = MLP(6, 3, (8,)), MLP(6, 3, (4,))
    distill(*models, **killing.splits(), rule=[debiased, fidelity], recipe=recipe, run=folder)


def _of_datasets(folder: Path) -> None:
    """A short run whose inputs are copied into its folder."""
    torch.manual_seed(0)
    splits = {name: Items(*data) for name, data in killing.splits().items()}
    recipe = replace(killing.RECIPE, teacher_epochs=1, student_epochs=1, epochs=1)
    distill(MLP(6, 3, (8,)), MLP(6, 3, (4,)), **splits, rule=fidelity, recipe=recipe, run=folder)


def _data(folder: Path) -> None:
    images = [ImageSplit(np.arange(n * 12, dtype=np.uint8).reshape(n, 3, 2, 2), np.arange(n) % 2) for n in (6, 4)]
    save_prepared(folder / "data", Dataset("mnist", 2, *images, official=False, source="made up"))


def _export(folder: Path) -> None:
    torch.manual_seed(0)
    folder.mkdir(exist_ok=True)
    export_student(MLP(6, 3, (4,)), torch.zeros(1, 6), folder / "student", None)


def _advise(output: str) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        tables = ("--validation", inputs() / "v.parquet", "--unlabeled", inputs() / "u")
        command("advise", *tables, "--plan", folder / output)

    return run


def _inspect(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    tables = ("--validation", inputs() / "v.parquet", "--unlabeled", inputs() / "u")
    command("inspect", *tables, "--picture", folder / "w.svg")


def _save(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    gold, pool = columns(1, 80), columns(2, ROWS, first=1000)
    known = (gold["label"], gold["teacher"], gold["student"], pool["teacher"], pool["student"])
    evidence = Evidence(*known, labeled_teacher=gold["teacher"])
    save(compose(debiased, fidelity).fit(evidence), folder / "rule.npz")


def _download(folder: Path) -> None:
    """A published file, from where it is to the folder of a data set."""
    published = inputs() / "published.bin"
    md5 = hashlib.md5(published.read_bytes(), usedforsecurity=False).hexdigest()
    wanted = [originals.Original("published.bin", md5, published.as_uri())]
    if absent := originals.missing(folder / "originals", wanted):
        originals.download(folder / "originals", absent)
    originals.read_original(folder / "originals", wanted[0], unofficial=False)


def _originals(folder: Path) -> dict[str, str]:
    """A digest for every file that was downloaded, but not for the lock beside them."""
    return killing.fingerprint(folder / "originals")


def _report(folder: Path) -> None:
    """A page of a run that is asked for."""
    _of_datasets(folder)
    command("report", folder, "--output", folder / "page.html")


class _Here:
    """A pool of processes that is none."""

    def submit(self, work: Callable[..., Any], *given: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(work(*given))
        return future


@contextmanager
def _here(*_: Any) -> Iterator[_Here]:
    yield _Here()


def _demo(folder: Path) -> None:
    """Two short trials of the demo, in this process."""
    digits.process_pool, digits.TRIALS = _here, 2  # type: ignore[assignment]
    digits.RECIPE = replace(digits.RECIPE, teacher_epochs=1, student_epochs=1, epochs=1)
    digits.page = lambda groups, title: "the page is drawn from the runs, and tested elsewhere"
    folder.mkdir(exist_ok=True)
    command("demo", "--run", folder / "demo")


def _reproduce(folder: Path) -> None:
    """One trial of a tiny experiment of the repository: its run, its line, and the tables and figures of the lines."""
    from tests.reproducing import TINY, catalogue, make_data, reproduce

    with catalogue(TINY), tempfile.TemporaryDirectory(prefix="reproduce-") as root:
        if code := reproduce(make_data(Path(root), "fashion"), folder, TINY.name, "--trials", "1"):
            raise SystemExit(code)


def _but_for_locks(folder: Path) -> dict[str, str]:
    """A digest for every file, but for the empty ones that are locked, and that nothing has to keep."""
    return {name: digest for name, digest in killing.fingerprint(folder).items() if not name.endswith(".lock")}


def _theory(folder: Path) -> None:
    command("theory", "squares", "--scale", 0.05, "--out", folder)


def _prepared(folder: Path) -> dict[str, str]:
    """A digest for every file that was made of images; they themselves are inputs."""
    return killing.fingerprint(folder / "imagenet" / "prepared-9")


def _decode(folder: Path) -> None:
    """Images in class folders to arrays, three images at a time."""
    pictures.CHUNK = 3
    (folder / "imagenet").mkdir(parents=True, exist_ok=True)
    for part in ("train", "val"):
        if not (folder / "imagenet" / part).exists():
            (folder / "imagenet" / part).symlink_to(inputs() / "imagenet" / part)
    prepare("imagenet", folder, 9, unofficial=True)


JOBS = {
    job.name: job
    for job in (
        Job("weigh", _weigh("--unlabeled", "u"), every=2),
        Job("joined weigh", _weigh("--unlabeled", "t", "--unlabeled", "s.parquet"), every=13),
        Job("weigh best", _best, every=6),
        Job("correct", _correct, every=7),
        Job("label", _label, every=5),
        Job("weigh by an engine", _engine, _weights_folder, every=5),
        Job("distill", killing.run, every=5),
        Job("distill best", _distill_best, every=40),
        Job("data", _data),
        Job("data of images", _decode, _prepared, every=5),
        Job("download", _download, _originals),
        Job("export", _export, every=7),
    )
}

OTHERS = {  # whose operations are those of the jobs above, but which write other files
    job.name: job
    for job in (
        Job("weigh to npz", _weigh("--unlabeled", "u", output="w.npz")),
        Job("weigh to csv", _weigh("--unlabeled", "u", output="w.csv")),
        Job("weigh to pq", _weigh("--unlabeled", "u", output="w.pq")),
        Job("correct by an engine", _correct_by_engine, _weights_folder),
        Job("plan", _advise("next.parquet")),
        Job("plan in csv", _advise("next.csv")),
        Job("inspect", _inspect),
        Job("save", _save),
        Job("distill of Datasets", _of_datasets),
        Job("report", _report),
        Job("demo", _demo),
        Job("reproduce", _reproduce, _but_for_locks),
        Job("theory", _theory),
    )
}
TWO_WORKERS = Job("distill with two workers", _two_workers)  # in several processes: see workers.py


def as_command(run: Callable[[Path], None]) -> Callable[[Path], None]:
    """The same, in a child: as a command, with nothing on standard output, and an error of ours told on standard error."""

    def quiet(folder: Path) -> None:
        sys.stdout = open("/dev/null", "w")  # noqa: PTH123, SIM115  (a child that ends at once)
        try:
            run(folder)
        except SystemExit as end:
            os._exit(int(end.code or 0))
        except WdistillError as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
            os._exit(error.exit_code)

    return quiet
