"""Spark with two executors of their own, one of them killed: the same bytes as one process makes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.scale.clusters import JOBS, Dying, Together, bytes_of, digest_of_rows, one_process, page_blocks, rows_in_files
from tests.scale.commands import started
from tests.tables import columns, write
from wdistill.core.errors import ConfigError
from wdistill.engines.failures import check_java
from wdistill.engines.local import run_here
from wdistill.engines.spark import ON_THIS_MACHINE, run_on_spark
from wdistill.engines.weigh import weigh_partitions
from wdistill.tables.options import Options

MASTER = "local-cluster[2,1,1024]"  # two executors of one core each, in processes of their own

pytestmark = pytest.mark.filterwarnings("ignore")  # of Spark itself


def executor() -> int:
    """The process of the executor (Java) that this worker (Python) belongs to: the parent of its parent."""
    return _parent(os.getppid())


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("kind", JOBS)
def test_an_executor_that_dies_changes_no_byte(tmp_path: Path, kind: str) -> None:
    by_engine, mark = JOBS[kind](tmp_path), tmp_path / "died"
    by_engine(tmp_path / "whole", run_here)
    assert digest_of_rows(tmp_path / "whole") == digest_of_rows(tmp_path / "w.parquet")

    def engine(work: Any, questions: Any) -> Any:
        together.append(Together(work, str(tmp_path / "seen")))
        return run_on_spark(Dying(together[-1], str(mark), executor), [*questions, questions[0]], master=MASTER)  # one twice

    together = list[Together]()
    by_engine(tmp_path / "o", engine)
    assert mark.exists(), "nothing was killed"
    assert together[-1].processes() >= 2
    assert bytes_of(tmp_path / "o") == bytes_of(tmp_path / "whole")


def test_the_command_gives_the_same_bytes_with_a_worker_killed(tmp_path: Path) -> None:
    given = rows_in_files(tmp_path)
    for number in range(6, 14):
        write(tmp_path / "u" / f"{number}.parquet", columns(number, 60_000, first=10**7 * number))
    one_process(given, tmp_path)
    flags = ["--validation", *given.validation, "--unlabeled", *given.unlabeled, "--output", str(tmp_path / "o")]
    command = [sys.executable, "-m", "wdistill", "weigh", *flags, "--engine", "spark", "--master", MASTER]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        while not any((tmp_path / "o").glob("part-*")):
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.05)
        executors = started(process.pid, b"CoarseGrainedExecutorBackend")
        assert len(executors) == 2
        os.kill(executors[0], signal.SIGKILL)
        _, said = process.communicate(timeout=180)
    assert process.returncode == 0, said
    assert bytes_of(tmp_path / "o") == bytes_of(tmp_path / "whole")


def test_an_error_of_the_rows_is_one_clear_error(tmp_path: Path) -> None:
    given = rows_in_files(tmp_path)
    bad = columns(9, 10, first=10**8)
    bad["teacher"][4] = 7.0
    write(tmp_path / "u" / "3.parquet", bad)
    with pytest.raises(ValueError, match=r"u/3.parquet, column 'teacher'.*\n.*row 4"):
        weigh_partitions(given, str(tmp_path / "o"), Options(), partial(run_on_spark, master="local[1]"))


def test_the_block_of_the_page_for_spark_runs(tmp_path: Path) -> None:
    """In a process of its own: Java finds relative paths from the folder that it was started in."""
    session = 'SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()'
    begin = f"from pyspark.sql import SparkSession\n{session}\n"
    end = '\npq.write_table(weigh.stream(pq.read_table("pool.parquet")).read_all(), "expected.parquet")\n'
    (tmp_path / "page.py").write_text(begin + page_blocks("pyspark") + end)
    here = {**os.environ, **ON_THIS_MACHINE}
    done = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, env=here, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    expected, found = (pq.read_table(tmp_path / name) for name in ("expected.parquet", "weights-by-spark"))
    found = found.replace_schema_metadata(None).sort_by("id")
    assert len(expected) == 1000 and found.equals(expected.replace_schema_metadata(None).sort_by("id"))


@pytest.mark.parametrize("version", [None, "1.8.0_292", "11.0.2"])
def test_another_java_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str | None) -> None:
    (tmp_path / "bin").mkdir()
    if version is not None:
        (tmp_path / "bin" / "java").write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        (tmp_path / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="Java 17 or newer"):
        check_java()
