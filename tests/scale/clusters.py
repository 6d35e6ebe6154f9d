"""What the tests of engines share: rows in many files, the same by one process, and workers that die."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.tables import columns, write
from wdistill.engines.local import run_here
from wdistill.engines.weigh import weigh_partitions
from wdistill.tables.options import Options, Paths
from wdistill.tables.weigh import weigh_files

FILES, ROWS = 6, 2_000


def rows_in_files(folder: Path) -> Paths:
    """Gold rows, and unlabeled rows in several files."""
    write(folder / "gold.parquet", columns(0, 200, first=10**6))
    for number in range(FILES):
        table = columns(number + 1, ROWS, first=number * ROWS)
        write(folder / "u" / f"{number}.parquet", {name: table[name] for name in ("id", "teacher", "student")})
    return Paths([str(folder / "gold.parquet")], [str(folder / "u")])


def one_process(given: Paths, folder: Path) -> str:
    """The digest of the rows that one process makes, as a file and as a folder."""
    weigh_files(given, folder / "w.parquet", Options())
    weigh_partitions(given, str(folder / "whole"), Options(), run_here)
    assert digest_of_rows(folder / "whole") == digest_of_rows(folder / "w.parquet")
    return digest_of_rows(folder / "w.parquet")


def digest_of_rows(path: Path) -> str:
    """SHA-256 of all rows, sorted by id."""
    table = pq.read_table(path).replace_schema_metadata(None).sort_by("id").combine_chunks()
    content = hashlib.sha256(str(table.schema).encode())
    for column in table.columns:
        content.update(column.to_numpy().tobytes())
    return content.hexdigest()


def bytes_of(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.iterdir()}


@dataclass(frozen=True)
class Dying:
    """Work whose process is killed in the middle of one partition, the first time it comes to it."""

    work: Any
    mark: str  # a file that says that it has happened
    victim: Callable[[], int] = os.getpid

    def __call__(self, question: str) -> str:
        if '"number": 3,' in question:
            try:
                os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                self.work(question)  # its file is there, its answer is lost
                os.kill(self.victim(), signal.SIGKILL)
        return str(self.work(question))
