"""Where tables of targets come from: what `correct` and `weigh` wrote (files, folders, globs), and frames, with gold rows.

from wdistill.adapters.table import read_targets
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from wdistill.adapters.target_table import TARGETS, WEIGHT, TargetTable, check_ids
from wdistill.answers.frames import as_files, uses_index
from wdistill.core import checks
from wdistill.core.errors import bad_input, unreadable, wrong_shape
from wdistill.core.places import LocalPlace
from wdistill.methods.context import one_hot
from wdistill.tables.formats.table import Table, open_tables
from wdistill.tables.manifest import is_finished, read_manifest
from wdistill.tables.output import read_record

__all__ = ["TargetTable", "read_targets"]


def read_targets(source: Any, *, teacher: Any = None, gold: Any = None) -> TargetTable:
    """The table of a file or a frame: `id`, `targets` (n, K) and `weight`.

    A file of `wdistill correct` has the gold rows and the names of the classes; a frame has no names.
    `source`: what `wdistill correct` and `wdistill weigh` wrote (a file, a folder or a glob), the result of
    `wdistill.correct`, a frame, a dict of columns, or a table that was read already. `teacher`: a file or frame with `id`
    and `teacher`, whose predictions are the targets where the source has weights alone. `gold`: one with `id` and `label`:
    its rows get their label as target, and weight 1, whatever else is said of them.
    """
    table = source if isinstance(source, TargetTable) else _read(source, teacher)
    return table if gold is None else _with_gold(table, gold)


def _read(source: Any, teacher: Any) -> TargetTable:
    frame = getattr(source, "table", source)  # the result of `correct`
    uses_index({"source": frame})
    with as_files(source=frame, teacher=teacher) as path:
        (table,) = open_tables([str(path("source"))], option="source")
        names = getattr(source, "classes", None) or _class_names(table, Path(str(path("source"))))
        ids, columns = _columns(table, [TARGETS] * table.has(TARGETS), [WEIGHT] * table.has(WEIGHT))
        if TARGETS in columns:
            named = _named(names or table.classes(TARGETS))
            return TargetTable(ids, columns[TARGETS], columns.get(WEIGHT), named)  # type: ignore[arg-type]
        if WEIGHT not in columns:
            found, expected = f"columns {', '.join(table.columns)}", "id, targets and weight"
            raise bad_input("no targets and no weights", "source", found, expected, "name the output of `wdistill correct`")
        if teacher is None:
            found, expected = "weights, no column 'targets'", "targets beside them"
            remedy = "pass teacher=FILE, with the predictions that were weighed"
            raise bad_input("it is not said what to teach", "source", found, expected, remedy)
        (said,) = open_tables([str(path("teacher"))], option="teacher")
        theirs, predictions = _columns(said, ["teacher"], [])
        named = _named(said.classes("teacher") or names)
        seen = TargetTable(theirs, predictions["teacher"], np.ones(len(theirs)), named)
    return TargetTable(ids, seen.targets[seen.rows(ids)], columns[WEIGHT], seen.classes)


def _with_gold(table: TargetTable, gold: Any) -> TargetTable:
    with as_files(gold=gold) as path:
        (file,) = open_tables([str(path("gold"))], option="gold")
        ids, columns = _columns(file, [], ["label"])
    labels = one_hot(_class_numbers(columns["label"], table), table.targets.shape[1])
    check_ids(ids)
    known = {str(key) for key in ids.tolist()}
    others = np.array([str(key) not in known for key in table.ids.tolist()], bool)
    both = pa.concat_arrays([pa.array(each.astype(str)) for each in (table.ids[others], ids)])
    same = table.ids.dtype.kind == ids.dtype.kind
    return TargetTable(
        np.concatenate([table.ids[others], ids]) if same else both.to_numpy(zero_copy_only=False),
        np.concatenate([table.targets[others], labels]),
        np.concatenate([table.weight[others], np.ones(len(ids))]),
        table.classes,
    )


def _class_numbers(labels: NDArray[Any], table: TargetTable) -> NDArray[np.int64]:
    """Labels as class numbers. Where the classes have names, a label is a name, also if it is a number.

    So it is in `wdistill correct`. Numbers stand for class numbers where no name is a number.
    """
    named = table.classes is not None and any(name.strip().lstrip("+-").isdigit() for name in table.classes)
    if named and labels.dtype.kind in "iuf" and (labels == np.rint(labels)).all():
        labels = labels.astype(np.int64).astype(str)
    return checks.labels(labels, table.targets.shape[1], "gold, column 'label'", table.classes)


def _columns(table: Table, matrices: Sequence[str], vectors: Sequence[str]) -> tuple[NDArray[Any], dict[str, Any]]:
    """Ids and whole columns of a file."""
    chunks = list(table.chunks(matrices, vectors))
    if not chunks:
        raise wrong_shape("no rows", table.option, "0 rows", "at least 1 row", "name another file")
    ids = pa.concat_arrays([chunk.ids for chunk in chunks]).to_numpy(zero_copy_only=False)
    return ids, {name: np.concatenate([chunk.columns[name] for chunk in chunks]) for name in (*matrices, *vectors)}


def _class_names(table: Table, path: Path) -> tuple[str, ...] | None:
    """The names of the classes, as the records of the files tell them, or the manifest of their folder."""
    if path.is_dir() or all(file.name.startswith("part-") for file in table.files):
        manifest = _manifest(table, table.files[0].parent, whole=path.is_dir())
        if manifest is not None:
            return _names_in(manifest)
    found = {_names_in(read_record(file) or {}): file for file in reversed(table.files)}
    if len(found) > 1:
        (others, other), (names, first) = [*found.items()][-2:]
        told, expected = (", ".join(each or ("no names",)) for each in (others, names))
        remedy = "correct or weigh all rows with one list of classes"
        raise bad_input("the files of this table name other classes", str(other), told, f"{expected}, as in {first}", remedy)
    return next(iter(found))


def _manifest(table: Table, folder: Path, *, whole: bool) -> dict[str, Any] | None:
    """Of a folder that `weigh --engine` wrote; `whole`: all its files are read, so that all have to be there."""
    manifest = read_manifest(LocalPlace(folder), str(folder)) if is_finished(folder) else None
    listed = {part["file"] for part in manifest["parts"] if part["file"]} if manifest else set[str]()
    missing = sorted(listed - {file.name for file in table.files}) if whole else []
    if missing or (manifest is None and any(folder.glob("_part-*.json"))):
        found = f"no {missing[0]}, which its manifest lists" if missing else "records of parts, and no manifest"
        remedy = "copy the folder again" if missing else "run the command again: it goes on where it was"
        raise unreadable("the folder is not whole", folder, found, "what `wdistill weigh --engine` wrote, finished", remedy)
    return manifest


def _names_in(record: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Of `correct`, or as `weigh` was told them."""
    names = record.get("class_names") or record.get("options", {}).get("classes")
    return tuple(names) if isinstance(names, list) else None


def _named(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)
