"""The tasks of the leaderboard: teachers whose errors are their own, students that are small, and rows of pools.py.

Tuning tasks are there to choose settings by, confirmation tasks to confirm them. The 14 tasks of FORMER were the board
before: seven of them confirmed it, have been looked at since, and are for tuning now. The confirmation tasks of this board
and all their settings were written down before any method was run on them. All of them but one have data that no tuning
task has; CIFAR-10 is in both halves, with a teacher, splits and test rows of its own. That teachers are no weaker than
their students was looked at on a split that is not among the trials (1000), no method's result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from experiments.leaderboard.models import Maker, Model, boosting, kernel, linear, networks, perceptrons, stacked, stored
from experiments.leaderboard.pools import (
    Pool,
    answers,
    cifar10_lite0,
    embeddings,
    images,
    imdb,
    keel,
    texts,
    zero_shot,
)

Half = Literal["tuning", "confirmation"]
FORMER_SPLITS = {"tuning": 7_000, "confirmation": 17_000}  # seeds: tasks of one data set share no split across the halves
SPLITS = 27_000  # the same of the confirmation tasks


@dataclass(frozen=True, eq=False)
class Task:
    """One task: where its rows come from, who teaches, who learns."""

    name: str
    half: Half
    pool: Callable[[Path | None], Pool]
    labeled: int  # rows that teacher and student learn from first
    unlabeled: int  # rows at most
    teacher: Model
    student: Maker
    pretraining: int  # epochs of the student on the labeled rows, and of an auxiliary model of its kind
    epochs: int  # of the second stage
    rate: float = 1e-3
    external: int = 0  # rows that the teacher alone learns from
    all_methods: bool = True  # or those that are run everywhere
    splits: int = FORMER_SPLITS["tuning"]  # seed of the split of trial 0
    most_gold: int = 2000  # rows of the largest gold set that leaves enough of the others
    trials: int = 5  # of every size
    metrics: tuple[Literal["accuracy", "macro_f1"], ...] = ("accuracy",)  # that it is judged by

    @property
    def data(self) -> str:
        """The data set."""
        return data_of(self.name)

    @property
    def frozen(self) -> bool:
        """Whether the teacher is a table, which nobody can retrain: it learned from rows of its own, or elsewhere."""
        return self.external > 0 or self.teacher is stored

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

    def cells(self, tasks: Iterable[Task]) -> list[tuple[Task, int]]:
        """Tasks with the sizes that their rows suffice for."""
        return [(task, gold) for task in tasks for gold in self.gold if gold <= task.most_gold]

    def half(self, half: str) -> list[Task]:
        return [task for task in self.tasks if task.half == half]

    @property
    def middle(self) -> int:
        """The size that goals are about."""
        return self.gold[len(self.gold) // 2]


def data_of(task: str) -> str:
    """The data set of a task, by its name."""
    return task.partition("-")[0]


def pictures(name: str, half: Half, labeled: int) -> Task:
    """A task on images in colour, with small convolutional networks on both sides."""
    teacher = stacked(networks(16), 20, rate=3e-3)
    return Task(name, half, images(name), labeled, 5000, teacher, networks(8), 20, 8, rate=3e-3, all_methods=False)


WIDE = perceptrons(256, 256)
FASHION, LETTER = images("fashion"), keel("letter")
OTHER_FASHION, OTHER_LETTER = images("fashion", first=4000), keel("letter", part=1)
FORMER = tuple(  # the board before, with its halves
    replace(task, splits=FORMER_SPLITS[task.half])
    for task in (
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
)


# ------------------------------------------------------------------------------------------------------ confirmation tasks


def confirming(
    name: str,
    pool: Callable[[Path | None], Pool],
    rows: tuple[int, int],
    models: tuple[Model, Maker],
    epochs: tuple[int, int],
    *,
    rate: float = 1e-3,
    external: int = 0,
    all_methods: bool = True,
    most_gold: int = 2000,
    uneven: bool = False,
) -> Task:
    """A confirmation task: labeled and unlabeled rows, teacher and student, epochs of the first and the second stage.

    Where classes are of uneven size it is judged by macro-F1 too.
    """
    return Task(
        *(name, "confirmation", pool, *rows, *models, *epochs),
        rate=rate,
        external=external,
        all_methods=all_methods,
        splits=SPLITS,
        most_gold=most_gold,
        trials=8,
        metrics=("accuracy", "macro_f1") if uneven else ("accuracy",),
    )


CONFIRMING = (
    confirming("rotten-head", texts("rotten", embeddings, 2000), (200, 6000), (linear, perceptrons(32)), (20, 10)),
    confirming("rotten-zero", texts("rotten", zero_shot, 2000), (200, 6000), (stored, perceptrons(32)), (20, 10)),
    confirming(
        *("reuters-head", texts("reuters", embeddings, 2000), (200, 6000), (linear, perceptrons(32)), (40, 20)),
        uneven=True,
    ),
    confirming(
        *("reuters-zero", texts("reuters", zero_shot, 2000), (200, 6000), (stored, perceptrons(32)), (40, 20)),
        uneven=True,
    ),
    confirming(
        *("spam-head", texts("spam", embeddings, 1500), (100, 4000), (linear, perceptrons(32)), (20, 10)),
        uneven=True,
    ),
    confirming(
        *("tweets-llm", texts("tweets", answers, 1000), (200, 2000), (stored, perceptrons(32)), (20, 10)),
        most_gold=500,
    ),
    confirming("mnist", images("mnist"), (200, 6000), (kernel, perceptrons(32)), (40, 10)),
    confirming(
        *("cifar10-lite0", cifar10_lite0, (1000, 5000), (stored, networks(8)), (20, 8)),
        rate=3e-3,
        all_methods=False,
    ),
    confirming(
        *("kr_vs_k", keel("kr-vs-k", package="common"), (1000, 8000), (stacked(WIDE, 40), perceptrons(64)), (60, 20)),
        uneven=True,
    ),
    confirming(
        *("fars", keel("fars", package="common"), (500, 8000), (boosting, perceptrons(32)), (40, 15)),
        external=4000,
        uneven=True,
    ),
    confirming(
        *("page_blocks", keel("page-blocks", package="common"), (200, 3000), (boosting, perceptrons(32)), (60, 30)),
        most_gold=500,
        uneven=True,
    ),
    confirming(
        *("spambase", keel("spambase"), (100, 3000), (stacked(WIDE, 60), perceptrons(32)), (60, 30)),
        most_gold=500,
    ),
    confirming(
        *("phoneme", keel("phoneme"), (200, 3000), (kernel, perceptrons(32)), (60, 30)),
        most_gold=500,
        uneven=True,
    ),
)
TASKS = (*(replace(task, half="tuning") for task in FORMER), *CONFIRMING)
