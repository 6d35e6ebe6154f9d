"""Tables are joined by id, or refused, whatever their formats, orders and files; more cases in `make reliability`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import wdistill
from tests.reliability.joins import Join, Side, attempt, joined, joins
from wdistill.tables import join

WITHOUT = Side("npz", "", False, 0, 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::wdistill.WdistillWarning")
@settings(max_examples=max(30, settings().max_examples // 3))
@given(joins())
@example(Join(WITHOUT, replace(WITHOUT, order=1), WITHOUT, swapped=False))
@example(Join(replace(WITHOUT, column="ids"), replace(WITHOUT, column="ids", order=1), WITHOUT, swapped=False))
def test_tables_are_joined_by_id_or_refused(case: Join) -> None:
    assert attempt(case) == ""


def test_a_case_that_must_work_does() -> None:
    side = Side("npz", "id", False, 2, 3)
    case = Join(Side("jsonl", "id", False, 1, 1), side, side, swapped=True)
    assert case.must_work and attempt(case) == "" and len({*joined().values()}) > 10


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 40), max_size=60), st.integers(1, 20), st.integers(1, 9))
def test_an_id_that_occurs_twice_is_found_however_few_are_held(ids: list[int], held: int, block: int) -> None:
    """Whether the two lie in one block, or in files that were begun before and grew."""
    chunks = [pa.array(ids[first : first + 7], pa.int64()) for first in range(0, len(ids), 7)]
    repeated = len({*ids}) < len(ids)
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(join, "BLOCK", block):
        check = join.IdCheck(Path(folder), len(ids), held)
        for chunk in chunks:
            check.add(chunk)
        with pytest.raises(wdistill.InputError, match="more than once") if repeated else nullcontext():
            check.finish(lambda: iter(chunks), "the table")


COMPARING = """
import re, sys, tempfile
from pathlib import Path
import numpy as np
import pyarrow as pa
from wdistill.tables.join import IdCheck
rows = int(sys.argv[1])
with tempfile.TemporaryDirectory() as folder:
    check = IdCheck(Path(folder), rows)
    for first in range(0, rows, 1 << 16):
        check.add(pa.array(np.arange(first, min(first + (1 << 16), rows))))
    check.finish(lambda: iter(()), "the table")
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_ids_that_are_compared() -> None:
    """30 million ids more are 240 MB; those that are held, and a block that is dealt to the files, are 100 MB."""

    def peak(rows: int) -> float:
        command = [sys.executable, "-c", COMPARING, str(rows)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) / 1024

    few, many, most = map(peak, (100_000, 10_000_000, 40_000_000))
    assert most - many < 30 and most - few < 130
