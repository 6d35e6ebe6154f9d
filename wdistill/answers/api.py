"""Answers in Python: read them, correct them, and ask what they are worth, from files or from frames in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from wdistill.answers.classes import make_classes
from wdistill.answers.frames import as_files
from wdistill.answers.parsed import SOURCES
from wdistill.answers.pool import names_in
from wdistill.answers.read import Columns, open_answers
from wdistill.answers.request import AnswerOptions, Sources
from wdistill.answers.targets import correct_files
from wdistill.answers.verdict import AnswersAdvice
from wdistill.answers.verdict import advise_answers as advise_files
from wdistill.core.errors import empty
from wdistill.core.settings import from_json
from wdistill.methods.costs import Prices
from wdistill.methods.questions import WITHIN, Questions
from wdistill.tables.formats.parquet import parquet_file
from wdistill.weights.confidence import Floats


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers that were read: a distribution over the classes for every row that has one."""

    form: str
    classes: tuple[str, ...]
    ids: NDArray[Any]  # (n,) strings
    probabilities: Floats  # (n, K); zeros where there is no usable answer
    source: NDArray[Any]  # (n,) of each confidence: measured, stated or none
    outside: Floats  # (n,) probability that went to no class
    refused: Mapping[str, str]  # by id, why there is no usable answer

    def __len__(self) -> int:
        return len(self.ids)

    def __str__(self) -> str:
        counts = Counter(self.source[self.probabilities.any(axis=1)].tolist())
        confidence = " and ".join(f"{name} confidence" if name != "none" else "no confidence" for name in counts)
        refused = f"{len(self.refused):,} refusals" if self.refused else "no refusals"
        return f"{len(self):,} answers: {self.form}, {confidence}, {len(self.classes)} classes, {refused}"


def read_answers(
    source: Any,
    *,
    classes: Sequence[str] | None = None,
    aliases: Mapping[str, str] | None = None,
    id: str | None = None,  # noqa: A002
    answer: str | None = None,
    stated: str | None = None,
) -> Answers:
    """Answers of a file or a frame, whatever form they have.

    `classes`: their names; those that the answers name themselves, if left out. `aliases`: other names for classes. `id`,
    `answer`, `stated`: columns of ids, answers and stated confidences, where they are not recognised.
    """
    with as_files(answers=source) as path:
        name = path("answers") or ""
        file = open_answers(name, Columns(id, answer, stated), "answers")
        known = make_classes(classes or file.names or names_in([name]), aliases, "classes")
        batches = [batch.parsed for batch in file.read(known, ())]
    if not batches:
        raise empty("no answers", file.where, "at least 1 row", "name another file")
    ids = pa.concat_arrays([batch.ids for batch in batches]).to_numpy(zero_copy_only=False)
    refused = {batch.ids[row].as_py(): why for batch in batches for row, why in batch.refused.items()}
    return Answers(
        file.form,
        known.names,
        ids,
        np.concatenate([batch.probabilities for batch in batches]),
        np.array(SOURCES)[np.concatenate([batch.source for batch in batches])],
        np.concatenate([batch.outside for batch in batches]),
        refused,
    )


@dataclass(frozen=True, eq=False)
class Corrected:
    """One table to train on, and how it was made."""

    table: pa.Table  # id, targets (lists of K), label, weight, source
    classes: tuple[str, ...]
    why: str  # these targets
    record: Mapping[str, Any]

    def to_pandas(self) -> Any:
        """The table as a frame of pandas."""
        return self.table.to_pandas()

    def __arrow_c_stream__(self, requested: Any = None) -> Any:
        """For polars, DuckDB and all that read Arrow: polars.DataFrame(corrected)."""
        return self.table.__arrow_c_stream__(requested)


def correct(answers: Any, gold: Any = None, *, rows: Any = None, **options: Any) -> Corrected:
    """One table to train on, gold rows included, from answers and gold labels: paths, or frames in memory.

    `rows`: the rows themselves, where the answers do not carry them. `options`: those of `wdistill correct`, such as
    text="text", inputs=["age", "town"], label="truth", classes=["yes", "no"], refusals="uniform".
    """
    with as_files(answers=answers, gold=gold, rows=rows) as path, TemporaryDirectory(prefix="wdistill-") as folder:
        output = Path(folder) / "targets.parquet"
        record = correct_files(Sources([path("answers") or ""], path("gold"), path("rows")), output, options_of(options))
        with output.open("rb") as file:
            table = parquet_file(file).read().replace_schema_metadata()
    return Corrected(table, tuple(record["class_names"]), record["why"], record)


def advise_answers(
    answers: Any,
    gold: Any = None,
    *,
    rows: Any = None,
    metric: str | NDArray[Any] | None = None,
    within: float = WITHIN,
    prices: Prices | None = None,
    serve: int | None = None,
    **options: Any,
) -> AnswersAdvice:
    """The verdict on answers and gold labels; the arguments are those of `correct`, and a `metric` such as macro-f1,
    or an array of costs.

    `within`: gold rows are counted for ± so many points. `prices`, `serve`: what it costs to serve so many rows.
    """
    questions = Questions(within, prices, serve)
    with as_files(answers=answers, gold=gold, rows=rows) as path:
        sources = Sources([path("answers") or ""], path("gold"), path("rows"))
        return advise_files(sources, options_of(options), metric, questions)


def options_of(options: Mapping[str, Any]) -> AnswerOptions:
    """Options as they are named in Python: a single column of inputs may be a string, aliases a dict."""
    given = dict(options)
    if isinstance(given.get("inputs"), str):
        given["inputs"] = [given["inputs"]]
    if isinstance(given.get("alias"), Mapping):
        given["alias"] = [f"{name}={target}" for name, target in given["alias"].items()]
    return from_json(AnswerOptions, given, "options")
