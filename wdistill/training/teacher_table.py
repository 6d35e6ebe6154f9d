"""A teacher given as stored predictions: arrays by split, or files joined by row id."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from wdistill.core import checks
from wdistill.core.errors import bad_input, unreadable
from wdistill.training.data import Split
from wdistill.weights.confidence import scan


def read_tables(
    teacher: Any, splits: Mapping[str, Split], named: Mapping[str, Split], classes: int, kind: str
) -> dict[str, NDArray[Any]]:
    """Stored predictions (n, K) by split, in the order of its rows; files are joined by id with `named` splits."""
    tables = dict(teacher) if isinstance(teacher, Mapping) else _joined(teacher, named, kind)
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


def _joined(teacher: Any, splits: Mapping[str, Split], kind: str) -> dict[str, NDArray[Any]]:
    """Predictions of every row, joined by id from one or more files."""
    from wdistill.tables.formats.table import check_held, check_top_k, open_tables

    paths = [str(teacher)] if isinstance(teacher, str | Path) else [str(path) for path in teacher]
    for name in ("validation", "unlabeled"):
        if name not in splits:
            what, expected = (
                "predictions in a file are joined by id, and these rows have none",
                "ids, the same as in the file",
            )
            remedy = f"pass {name}=Data(inputs, labels, ids), or the predictions as arrays in the order of the rows"
            raise bad_input(what, name, "inputs and labels alone", expected, remedy)
    rows: dict[Any, NDArray[Any]] = {}
    for table in open_tables(paths, option="teacher"):
        if table.counts_rows:
            found, remedy = f"arrays {', '.join(map(repr, table.columns))}", "save the ids with them, in an array named 'id'"
            raise bad_input("these predictions have no ids", f"teacher: {table.files[0]}", found, "ids to join by", remedy)
        check_top_k([table], kind)
        check_held(table, ["teacher"])
        for chunk in table.chunks(matrices=["teacher"]):
            for name, values in zip(chunk.ids.to_pylist(), chunk.columns["teacher"], strict=True):
                if name in rows:
                    where, remedy = f"teacher: {', '.join(paths)}", "leave out one of the two rows"
                    raise bad_input("an id occurs twice", where, repr(name), "every id once", remedy)
                rows[name] = values
    joined: dict[str, NDArray[Any]] = {}
    for name, split in splits.items():
        missing = [row_id for row_id in split.ids.tolist() if row_id not in rows]
        if missing and name in ("validation", "unlabeled"):
            what, where = "the teacher's predictions lack some rows", f"teacher: {', '.join(paths)}"
            found = f"{len(missing)} of {len(split)} {name} ids are not in it, first {', '.join(map(repr, missing[:5]))}"
            remedy = "add them, or leave those rows out of the split; ids must have the same type on both sides"
            raise unreadable(what, where, found, "a prediction for every row, by id", remedy)
        if not missing:
            joined[name] = np.stack([rows[row_id] for row_id in split.ids.tolist()])
    return joined
