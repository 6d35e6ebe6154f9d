"""What a user may choose who has answers and gold labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from wdistill.core.settings import Settings, setting
from wdistill.tables.options import read_class_names


@dataclass(frozen=True)
class Sources:
    """The files of a job, as the command line names them."""

    answers: Sequence[str]
    gold: str | None
    rows: str | None  # the rows themselves, where they do not stand in the answers
    settings: Sequence[str] = ()  # files that options name: class names, costs

    @property
    def all(self) -> list[str]:
        return [*self.answers, *filter(None, (self.gold, self.rows))]

    @property
    def stamps(self) -> list[list[Any]]:
        """Name, size and time of change of every file."""
        from wdistill.tables.formats.table import files_of

        stats = [(path, path.stat()) for name in self.all for path in files_of(name, "--answers")]
        return [[str(path), status.st_size, status.st_mtime_ns] for path, status in stats]


@dataclass(frozen=True)
class AnswerOptions(Settings):
    """How answers are read; the flags of the commands are these fields."""

    text: str | None = setting(None, "column with the texts: models of them are trained on gold", metavar="COLUMN")
    inputs: tuple[str, ...] = setting(
        (), "columns of numbers, categories or vectors: models of them are trained on gold", metavar="COLUMN[,COLUMN…]"
    )
    label: str | None = setting(
        None, "column of the gold labels: in --gold, or in the answers, blank on most rows", metavar="COLUMN"
    )
    id: str | None = setting(None, "column of the ids, where it is not 'id'", metavar="COLUMN")
    gold_id: str | None = setting(None, "column of the ids in --gold, where it has another name there", metavar="COLUMN")
    answer: str | None = setting(None, "column of the answers, where it is not recognised", metavar="COLUMN")
    stated: str | None = setting(None, "column of confidences that the answers state", metavar="COLUMN")
    classes: tuple[str, ...] | None = setting(
        None,
        "the classes, in the order of lists of probabilities: a list, or a file, one a line",
        parse=read_class_names,
        metavar="A,B,… | FILE",
    )
    alias: tuple[str, ...] = setting((), "another name for a class", metavar="NAME=CLASS", repeat=True)
    refusals: Literal["drop", "uniform"] = setting("drop", "rows without a usable answer: left out, or all classes alike")
    targets: Literal["soft", "hard"] = setting("soft", "targets: distributions, or their largest class")
    group: str | None = setting(
        None,
        "documents, users or queries whose rows belong together: a column of --gold, of the answers or of --pool; by "
        "default 'group', where --gold has it",
        metavar="COLUMN",
    )
    inclusion: str | None = setting(
        None,
        "column of --gold with the probability with which a row was drawn; by default 'inclusion', where --gold has it",
        metavar="COLUMN",
    )
    escape_formulas: bool = setting(False, "in a .csv output: ' before text that a spreadsheet would run as formulas")
    targets_from: str = setting(
        "average",
        "what is taught: average, posterior, or an expert such as teacher or trees, also with -recalibrated",
    )
    metric: str | None = setting(
        None,
        "say what the targets gain by it too (they are the same): macro-f1, log-loss, f1:CLASS, cost:FILE, …",
        metavar="NAME",
    )
