"""Polars and DuckDB: their rows through the pure function, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.scale.clusters import digest_of_rows, one_process, page_blocks, rows_in_files
from wdistill.tables.batch_function import BatchFunction, prepare_batches


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Block after block, with the same names in all of them."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(page_blocks(), names)
    expected = names["weigh"].stream(pq.read_table("pool.parquet")).read_all().sort_by("id")
    assert pq.read_table("weights.parquet").sort_by("id").equals(expected)
    assert pa.table(names["weights"]).sort_by("id").equals(expected)
    assert names["predictions"]["id"].to_list() == list(range(1000))


def test_polars_and_duckdb_give_and_take_streams(tmp_path: Path) -> None:
    import duckdb
    import polars

    given = rows_in_files(tmp_path)
    expected = one_process(given, tmp_path)
    function = BatchFunction(prepare_batches(tmp_path / "gold.parquet", tmp_path / "u" / "0.parquet"))

    rows = duckdb.sql(f"select id, teacher, student from '{tmp_path}/u/*.parquet'")
    weighed = function.stream(rows.to_arrow_reader(1000))
    with duckdb.connect() as other:  # a connection reads one stream at a time
        again = other.from_arrow(weighed).filter("weight <= 1").to_arrow_table()
    pq.write_table(again, tmp_path / "duck.parquet")
    assert digest_of_rows(tmp_path / "duck.parquet") == expected

    frame = polars.read_parquet(f"{tmp_path}/u/*.parquet")
    pq.write_table(pa.table(polars.DataFrame(function.stream(frame))), tmp_path / "polars.parquet")
    assert digest_of_rows(tmp_path / "polars.parquet") == expected
