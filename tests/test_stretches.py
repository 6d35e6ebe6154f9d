"""Rows are put together until there are enough of them; what becomes of a row does not depend on that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.tables import columns, take, write
from wdistill.tables import rows
from wdistill.tables.options import Options, Paths, read_options
from wdistill.tables.weigh import prepare_job, weigh_files

FILES, ROWS = 3, 700  # rows of a file
CHUNK = 256  # the fewest that are read at once


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """Gold rows, and three files, each read in three chunks."""
    monkeypatch.setattr(rows, "ENTRIES", 1)
    whole = columns(4, FILES * ROWS, first=1000)
    write(tmp_path / "gold.parquet", columns(5, 60))
    for number, part in enumerate(np.array_split(np.arange(FILES * ROWS), FILES)):
        write(tmp_path / "u" / f"{number}.parquet", take(whole, part, "id", "teacher", "student"))
    return Paths([str(tmp_path / "gold.parquet")], [str(tmp_path / "u")])


def lengths(paths: Paths) -> list[tuple[int, int]]:
    """File and rows of every stretch."""
    return [(each.file, len(each.ids)) for each in rows.stretches(prepare_job(paths, Options()), 0, FILES)]


def test_chunks_of_a_file_are_put_together_and_never_those_of_two(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lengths(paths) == [(file, ROWS) for file in range(FILES)]
    monkeypatch.setattr(rows, "TOGETHER", CHUNK + 1)
    assert lengths(paths) == [(file, n) for file in range(FILES) for n in (2 * CHUNK, ROWS - 2 * CHUNK)]


def test_chunks_whose_numbers_take_much_memory_stay_apart(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "HELD", 1)
    assert lengths(paths) == [(file, n) for file in range(FILES) for n in (CHUNK, CHUNK, ROWS - 2 * CHUNK)]


def test_a_file_that_is_not_asked_for_ends_the_rows(paths: Paths) -> None:
    job = prepare_job(paths, Options())
    assert [each.file for each in rows.stretches(job, 1, 2)] == [1]


@pytest.mark.parametrize("options", [{}, {"method": "best"}], ids=str)
@pytest.mark.filterwarnings("ignore::wdistill.WdistillWarning")
def test_no_bit_of_the_output_depends_on_what_is_put_together(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    outputs = []
    for together, held in ((1, 1), (CHUNK + 1, 1 << 30), (1 << 20, 1 << 30)):
        monkeypatch.setattr(rows, "TOGETHER", together)
        monkeypatch.setattr(rows, "HELD", held)
        weigh_files(paths, tmp_path / "w.parquet", read_options(options))
        outputs.append((tmp_path / "w.parquet").read_bytes())
    assert len(set(outputs)) == 1


def test_rows_are_counted_whatever_is_left_of_them(paths: Paths, tmp_path: Path) -> None:
    """A second table lacks every other row: pieces tell how many rows were read, and hold those that all tables have."""
    kept = np.arange(0, FILES * ROWS, 2)
    other = take(columns(4, FILES * ROWS, first=1000), kept, "id", "student")
    write(tmp_path / "s.parquet", other)
    for number in range(FILES):
        part = np.arange(number * ROWS, (number + 1) * ROWS)
        write(tmp_path / "t" / f"{number}.parquet", take(columns(4, FILES * ROWS, first=1000), part, "id", "teacher"))
    given = Paths(paths.validation, [str(tmp_path / "t"), str(tmp_path / "s.parquet")])
    record = weigh_files(given, tmp_path / "w.parquet", Options(allow_subset=True))
    assert record["rows"] == len(kept) and "these rows are left out" in record["warnings"][0]
    assert np.array_equal(pq.read_table(tmp_path / "w.parquet")["id"].to_numpy(), other["id"])
