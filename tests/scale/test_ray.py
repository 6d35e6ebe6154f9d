"""Ray with two processes, one of them killed: the same bytes as one process makes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.scale.clusters import JOBS, Dying, Together, bytes_of, digest_of_rows, one_process, page_blocks, rows_in_files
from tests.scale.commands import mine, said_by, started
from tests.tables import columns, write
from wdistill.engines.local import run_here
from wdistill.engines.ray import run_on_ray
from wdistill.engines.weigh import weigh_partitions
from wdistill.tables.options import Options


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A cluster of its own, with two processors, whose processes this one has started."""
    ray, address = [sys.executable, "-m", "ray.scripts.scripts"], "127.0.0.1:6379"  # which nobody else has in this network
    flags = ["--head", "--node-ip-address=127.0.0.1", "--port=6379", "--num-cpus=2", "--include-dashboard=false"]
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        command = [*ray, "start", *flags, f"--temp-dir={folder}", "--disable-usage-stats", "--block"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                asked, end = [*ray, "health-check", "--address", address], time.monotonic() + 120
                while subprocess.run(asked, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
                    assert process.poll() is None and time.monotonic() < end, "Ray does not start"
                yield address
            finally:
                left = started(process.pid, folder.encode())
                process.terminate()
                process.wait(60)
                for pid in left:
                    if folder.encode() in said_by(pid, "cmdline"):
                        os.kill(pid, signal.SIGKILL)


@pytest.mark.filterwarnings("ignore")  # of Ray itself
@pytest.mark.parametrize("kind", JOBS)
def test_a_worker_that_dies_changes_no_byte(cluster: str, tmp_path: Path, kind: str) -> None:
    by_engine, mark = JOBS[kind](tmp_path), tmp_path / "died"
    by_engine(tmp_path / "whole", run_here)
    assert digest_of_rows(tmp_path / "whole") == digest_of_rows(tmp_path / "w.parquet")

    def engine(work: Any, questions: Any) -> Any:
        together.append(Together(work, str(tmp_path / "seen")))
        yield from run_on_ray(Dying(together[-1], str(mark)), [*questions, questions[0]], address=cluster)  # one twice

    together = list[Together]()
    by_engine(tmp_path / "o", engine)
    assert mark.exists(), "nothing was killed"
    assert together[-1].processes() >= 2
    assert bytes_of(tmp_path / "o") == bytes_of(tmp_path / "whole")


def test_the_command_gives_the_same_bytes_with_a_worker_killed(cluster: str, tmp_path: Path) -> None:
    given = rows_in_files(tmp_path)
    for number in range(6, 14):
        write(tmp_path / "u" / f"{number}.parquet", columns(number, 60_000, first=10**7 * number))
    one_process(given, tmp_path)
    flags = ["--validation", *given.validation, "--unlabeled", *given.unlabeled, "--output", str(tmp_path / "o")]
    command = [sys.executable, "-m", "wdistill", "weigh", *flags, "--engine", "ray", "--address", cluster]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        while not any((tmp_path / "o").glob("part-*")):
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.05)
        workers = [pid for pid in mine(b"Answers") if said_by(pid, "cmdline").startswith(b"ray::")]
        os.kill(workers[0], signal.SIGKILL)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert bytes_of(tmp_path / "o") == bytes_of(tmp_path / "whole")


def test_an_error_of_the_rows_is_one_clear_error(cluster: str, tmp_path: Path) -> None:
    given = rows_in_files(tmp_path)
    bad = columns(9, 10, first=10**8)
    bad["teacher"][4] = 7.0
    write(tmp_path / "u" / "3.parquet", bad)
    with pytest.raises(ValueError, match=r"u/3.parquet, column 'teacher'.*\n.*row 4"):
        weigh_partitions(given, str(tmp_path / "o"), Options(), partial(run_on_ray, address=cluster))


@pytest.mark.filterwarnings("ignore")  # of Ray itself
def test_the_block_of_the_page_for_ray_runs(cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    with ray.init(address=cluster, log_to_driver=False):
        exec(page_blocks("ray"), names)
    expected = names["weigh"].stream(pq.read_table("pool.parquet")).read_all().sort_by("id")
    assert len(expected) == 1000 and pq.read_table("weights-by-ray").sort_by("id").equals(expected)
