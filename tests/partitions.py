"""What the tests of engines share: rows in five files, and the job that weighs them into a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.tables import columns, take, write
from wdistill.core.errors import UnfinishedError
from wdistill.engines.local import run_here
from wdistill.engines.weigh import weigh_partitions
from wdistill.tables.options import Paths, read_options

FILES, ROWS = 5, 60


def rows_in_files(folder: Path, files: int = FILES) -> Path:
    """Gold rows, and unlabeled rows in some files whose ids overlap in range."""
    write(folder / "gold.parquet", columns(0, 50, first=10_000))
    table = columns(1, files * ROWS)
    order = np.random.default_rng(2).permutation(files * ROWS)
    for number in range(files):
        rows = order[number * ROWS : (number + 1) * ROWS]
        write(folder / "u" / f"{number}.parquet", take(table, rows, "id", "teacher", "student"))
    return folder


def paths(folder: Path, *unlabeled: str) -> Paths:
    return Paths([str(folder / "gold.parquet")], [str(folder / name) for name in unlabeled or ("u",)])


def weigh(folder: Path, output: str = "o", engine: Any = run_here, **options: Any) -> dict[str, Any]:
    return weigh_partitions(paths(folder), str(folder / output), read_options(options), engine)


def failing_after(count: int) -> Callable[[Any, Sequence[str]], Iterable[str]]:
    """An engine that fails once so many files are made."""

    def engine(work: Any, questions: Sequence[str]) -> Iterator[str]:
        for question in questions[:count]:
            yield work(question)
        raise UnfinishedError("the engine failed")

    return engine


def rows_of(path: Path) -> pa.Table:
    """All rows by id; readers of folders leave the manifest out."""
    return pq.read_table(path).replace_schema_metadata(None).sort_by("id")


def bytes_of(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.iterdir()}
