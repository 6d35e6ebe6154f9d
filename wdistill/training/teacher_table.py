"""A teacher given as stored predictions: arrays by split, or files joined by row id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from wdistill.core import checks, store
from wdistill.core.errors import bad_input, unreadable
from wdistill.training.data import Split
from wdistill.training.logits import is_held
from wdistill.weights.confidence import scan

if TYPE_CHECKING:
    from wdistill.tables.formats.table import Table

COLUMN = "teacher"  # that holds the predictions of a file


def read_tables(
    teacher: Any, splits: Mapping[str, Split], named: Mapping[str, Split], classes: int, kind: str, folder: Path
) -> dict[str, NDArray[Any]]:
    """Stored predictions (n, K) by split, in the order of its rows; files are joined by id with `named` splits.

    `folder`: on the disk where those that are too many to hold go, in files without a name.
    """
    tables = dict(teacher) if isinstance(teacher, Mapping) else _joined(teacher, named, classes, kind, folder)
    for name in ("validation", "unlabeled"):
        if name not in tables:
            found, expected = ", ".join(tables) or "nothing", "predictions on validation and unlabeled rows"
            raise bad_input("the teacher's predictions are missing", f"teacher: {name}", found, expected, "add them")
    checked: dict[str, NDArray[Any]] = {}
    for name, values in tables.items():
        if name not in splits:
            remedy = "name the predictions as their split is named, or leave them out"
            raise bad_input("no such split", f"teacher: {name}", name, ", ".join(splits), remedy)
        array = values.detach().cpu().numpy() if isinstance(values, Tensor) else values
        where = f"teacher: {name}"
        checked[name] = checks.matrix(array, where)
        checks.same_length({where: len(checked[name]), f"{name} rows": len(splits[name])})
        checks.same_classes({where: checked[name].shape[1], "student": classes})
        scan(checked[name], kind, name=where)  # type: ignore[arg-type]
    return checked


def _joined(teacher: Any, splits: Mapping[str, Split], classes: int, kind: str, folder: Path) -> dict[str, NDArray[Any]]:
    """Predictions of every row, joined by id from one or more files; those of many rows are in a file without a name."""
    from wdistill.tables.formats.predictions import class_count
    from wdistill.tables.formats.table import check_top_k, open_tables

    paths = [str(teacher)] if isinstance(teacher, str | Path) else [str(path) for path in teacher]
    for name in ("validation", "unlabeled"):
        if name not in splits:
            what, expected = (
                "predictions in a file are joined by id, and these rows have none",
                "ids, the same as in the file",
            )
            remedy = f"pass {name}=Data(inputs, labels, ids), or the predictions as arrays in the order of the rows"
            raise bad_input(what, name, "inputs and labels alone", expected, remedy)
    tables = open_tables(paths, option="teacher")
    for table in tables:
        if table.counts_rows:
            found, remedy = f"arrays {', '.join(map(repr, table.columns))}", "save the ids with them, in an array named 'id'"
            raise bad_input("these predictions have no ids", f"teacher: {table.files[0]}", found, "ids to join by", remedy)
        check_top_k([table], kind)
        largest = class_count(table.schema.field(COLUMN)) if COLUMN in table.columns else None
        checks.same_classes({f"teacher: {table.files[0]}": largest or classes, "student": classes})
    number = np.result_type(*(_number_of(table) for table in tables))
    place = {name: {row_id: row for row, row_id in enumerate(split.ids.tolist())} for name, split in splits.items()}
    joined = {name: _array_of((len(split), classes), number, folder) for name, split in splits.items()}
    known = {name: np.zeros(len(split), bool) for name, split in splits.items()}
    for row_ids, values in _rows_of(tables, paths, classes):
        for name in splits:
            rows = np.fromiter((place[name].get(row_id, -1) for row_id in row_ids), np.int64, len(row_ids))
            joined[name][rows[rows >= 0]] = values[rows >= 0]
            known[name][rows[rows >= 0]] = True
    for name, split in splits.items():
        missing = split.ids[~known[name]].tolist()
        if missing and name in ("validation", "unlabeled"):
            what, where = "the teacher's predictions lack some rows", f"teacher: {', '.join(paths)}"
            found = f"{len(missing)} of {len(split)} {name} ids are not in it, first {', '.join(map(repr, missing[:5]))}"
            remedy = "add them, or leave those rows out of the split; ids must have the same type on both sides"
            raise unreadable(what, where, found, "a prediction for every row, by id", remedy)
    return {name: values for name, values in joined.items() if known[name].all()}


def _rows_of(tables: Sequence[Table], paths: Sequence[str], classes: int) -> Iterator[tuple[list[Any], NDArray[Any]]]:
    """Ids and predictions (rows, K) of all files, a part at a time; an id that occurs twice is an error."""
    seen: set[Any] = set()
    for table in tables:
        for chunk in table.chunks(matrices=[COLUMN]):
            row_ids, values = chunk.ids.to_pylist(), chunk.columns[COLUMN]
            checks.same_classes({f"teacher: {table.files[0]}": values.shape[1], "student": classes})
            for row_id in row_ids:
                if row_id in seen:
                    where, remedy = f"teacher: {', '.join(paths)}", "leave out one of the two rows"
                    raise bad_input("an id occurs twice", where, repr(row_id), "every id once", remedy)
                seen.add(row_id)
            yield row_ids, values


def _number_of(table: Table) -> np.dtype[Any]:
    """The type of number that the predictions of a table have."""
    return next((chunk.columns[COLUMN].dtype for chunk in table.chunks(matrices=[COLUMN], rows=1)), np.dtype(np.float32))


def _array_of(shape: tuple[int, int], number: np.dtype[Any], folder: Path) -> NDArray[Any]:
    return np.empty(shape, number) if is_held(*shape) else store.unnamed_array(folder, shape, number)
