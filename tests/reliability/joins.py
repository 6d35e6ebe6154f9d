"""Tables in any format, order and number of files, with and without ids: joined by id, or refused, and never otherwise.

A case is a job `weigh` whose teacher's and student's predictions are in two tables. It must give the weights that the two
give as one table, id by id, where all tables have ids, of one type; else an error of ours may say what is missing.

python -m tests.reliability.joins '{"teacher": …}'      replays one
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from tests.killing import MEMORY
from tests.tables import columns, take, write
from wdistill import cli

FORMATS = ("npz", "parquet", "csv", "jsonl")
NAMES = ("id", "", "ids", "ID", "Id", "idx", "index", "row_id", "uid", "key")  # of the column with ids; "": there is none
ROWS, GOLD = 24, 120
DECLARED = (2, 3)


@dataclass(frozen=True)
class Side:
    """One of the two tables."""

    format: str
    column: str  # the name of its ids
    text: bool  # ids that are strings
    order: int  # the seed of the order of its rows; 0: as they come
    files: int

    @property
    def text_ids(self) -> bool:
        return self.text or self.format == "csv"  # whose ids are always read as strings


@dataclass(frozen=True)
class Join:
    teacher: Side
    student: Side
    gold: Side  # with both predictions, and the labels
    swapped: bool  # the student's table is named first

    @property
    def must_work(self) -> bool:
        """Whether all tables have ids, of one type in those that are joined."""
        named = all(side.column == "id" for side in (self.teacher, self.student, self.gold))
        return named and self.teacher.text_ids == self.student.text_ids


formats, names = st.sampled_from(FORMATS), st.just("id") | st.just("") | st.sampled_from(NAMES)
sides = st.builds(Side, formats, names, st.booleans(), st.integers(0, 3), st.integers(1, 3))


@st.composite
def joins(draw: st.DrawFn) -> Join:
    """Two tables of any kinds, or of one kind: in the same format, their ids under the same name."""
    teacher, student, gold = draw(sides), draw(sides), draw(sides)
    if draw(st.booleans()):
        student = replace(student, format=teacher.format, column=teacher.column, text=teacher.text)
    return Join(teacher, student, gold, draw(st.booleans()))


def tables() -> tuple[dict[str, Any], dict[str, Any]]:
    """Gold rows and unlabeled rows, of a teacher that often errs; ids that are neither row numbers nor sorted."""
    rng, made = np.random.default_rng(0), [columns(1, GOLD), columns(2, ROWS)]
    gold, pool = ({**each, "teacher": each["student"], "student": each["teacher"]} for each in made)
    return {**gold, "id": rng.permutation(1000)[:GOLD] + 5000}, {**pool, "id": rng.permutation(1000)[:ROWS]}


def put(folder: Path, name: str, table: dict[str, Any], side: Side) -> Path:
    """Write a table as a side says; returns what the command names."""
    rows = np.random.default_rng(side.order).permutation(len(table["id"])) if side.order else np.arange(len(table["id"]))
    ids = table["id"].astype(str) if side.text else table["id"]
    others = {key: values for key, values in table.items() if key != "id"}
    named = {**({side.column: ids} if side.column else {}), **others}
    for i, some in enumerate(np.array_split(rows, side.files)):
        write(folder / name / f"{i}.{side.format}", take(named, some))
    return folder / name if side.files > 1 else folder / name / f"0.{side.format}"


def weigh(output: Path, gold: Path, *unlabeled: Path) -> int:
    words = ["weigh", "--validation", str(gold), "--output", str(output)]
    for path in unlabeled:
        words += ["--unlabeled", str(path)]
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        return cli.main(words)


def weights(path: Path) -> dict[str, tuple[float, ...]]:
    """The numbers of every row by its id, as text."""
    rows = pq.read_table(path).to_pylist()
    return {str(row["id"]): tuple(row[name] for name in ("weight", "error", "distortion")) for row in rows}


@cache
def joined() -> dict[str, tuple[float, ...]]:
    """The weights of the table that was joined beforehand."""
    with tempfile.TemporaryDirectory() as name:
        folder, plain = Path(name), Side("parquet", "id", False, 0, 1)
        gold, pool = tables()
        code = weigh(folder / "w.parquet", put(folder, "v", gold, plain), put(folder, "u", pool, plain))
        assert code == 0
        return weights(folder / "w.parquet")


def attempt(case: Join) -> str:
    """What is wrong; nothing if the weights are those of the joined table, or an error says why there are none."""
    folder = Path(tempfile.mkdtemp(prefix="joins-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    try:
        gold, pool = tables()
        every = np.arange(ROWS)
        teacher = put(folder, "t", take(pool, every, "id", "teacher"), case.teacher)
        student = put(folder, "s", take(pool, every, "id", "student"), case.student)
        both = (student, teacher) if case.swapped else (teacher, student)
        code = weigh(folder / "w.parquet", put(folder, "v", gold, case.gold), *both)
        if code:
            refused = code in DECLARED and not case.must_work and not (folder / "w.parquet").exists()
            return "" if refused else f"ended with {code}"
        found, wanted = weights(folder / "w.parquet"), joined()
        other = [name for name in {*found, *wanted} if found.get(name) != wanted.get(name)]
        return f"other weights of {len(other)} ids, such as {other[0]}" if other else ""
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def prove(number: int, seed: int) -> tuple[int, list[str]]:
    """So many cases: how many were tried, and what went wrong, with the command that replays it."""
    failures, tried = [], 0

    @seeded(seed)
    @settings(
        max_examples=number, phases=[Phase.generate], database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(joins())
    def each(case: Join) -> None:
        nonlocal tried
        tried += 1
        if wrong := attempt(case):
            failures.append(f"{wrong}: python -m tests.reliability.joins '{json.dumps(asdict(case))}'")

    each()
    return tried, failures


def main() -> int:
    parser = argparse.ArgumentParser(description="Replay one case.")
    parser.add_argument("case", help="as JSON")
    given = json.loads(parser.parse_args().case)
    read = {name: Side(**given[name]) for name in ("teacher", "student", "gold")}
    wrong = attempt(Join(**read, swapped=given["swapped"]))
    print(wrong or "joined by id, or refused")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
