"""Training under torchrun: the same bits on any number of processes, whichever of them dies."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch

from tests.distilling import undrawn, unlike
from tests.scale.commands import distilling, started
from tests.scale.ranked import KINDS
from wdistill.runs.checkpoints import CheckpointStore
from wdistill.training.tensors import from_bytes

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of runs that are as small as these


@pytest.fixture(scope="module", autouse=True)
def no_page() -> Iterator[None]:
    with undrawn():
        yield


def torchrun_command(processes: int, *program: object) -> list[str]:
    launched = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m", "--"]
    return [sys.executable, *launched, *map(str, program)]


def environment(**variables: str) -> dict[str, str]:
    return {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", **variables}


def torchrun(processes: int, *program: object, **variables: str) -> subprocess.CompletedProcess[str]:
    command, here = torchrun_command(processes, *program), environment(**variables)
    done = subprocess.run(command, env=here, capture_output=True, text=True, timeout=240)
    assert "Traceback" not in re.sub(r"(?s)Traceback .*ChildFailedError.*", "", done.stderr), done.stderr[-4000:]
    return done


def ranked(processes: int, kind: str, folder: Path, parts: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    return torchrun(processes, "tests.scale.ranked", kind, folder, parts, **variables)


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Runs of every kind by one process alone, with three parts of every batch."""
    folder = tmp_path_factory.mktemp("wanted")
    for kind, run in KINDS.items():
        run(folder / kind, 3)
    yield {kind: folder / kind for kind in KINDS}


@pytest.mark.parametrize(
    "kind, processes",
    [("rules", 2), ("rules", 3), ("stored", 2), ("features", 2), ("spread", 2), ("stacked", 2), ("streamed", 2)],
)
def test_the_number_of_processes_changes_no_bit(wanted: dict[str, Path], tmp_path: Path, kind: str, processes: int) -> None:
    done = ranked(processes, kind, tmp_path / "run", 3)
    assert done.returncode == 0, done.stderr[-4000:]
    assert unlike(tmp_path / "run", wanted[kind]) == []
    assert len(re.findall(r"^\d has ", done.stdout, re.MULTILINE)) == processes  # every process has the report


@pytest.fixture(scope="module")
def by_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """By two processes, with as many parts."""
    folder = tmp_path_factory.mktemp("by-two") / "run"
    assert ranked(2, "rules", folder).returncode == 0
    return folder


@pytest.mark.parametrize("processes", [2, 3])
def test_by_default_labels_and_first_weights_are_those_of_one_process_and_parameters_nearly(
    tmp_path: Path, processes: int
) -> None:
    KINDS["plain"](tmp_path / "one", None)
    assert ranked(processes, "plain", tmp_path / "several").returncode == 0
    check_near(tmp_path / "several", tmp_path / "one")


def check_near(several: Path, one: Path) -> None:
    """Labels, first weights and all before the arms have the same bits; the parameters of the arm are nearly the same."""
    apart = unlike(several, one)
    assert "arms/debiased/parameters.safetensors" in apart
    assert not [name for name in apart if name.startswith(("labels", "teacher", "student", "initial"))]
    assert "arms/debiased/weights/00000.parquet" not in apart
    stores = [CheckpointStore(folder / "arms" / "debiased") for folder in (one, several)]
    first, other = (from_bytes(store.read("parameters.safetensors"), "debiased") for store in stores)
    torch.testing.assert_close(other, first, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "dies, resumed",
    [("1 step 9", 1), ("0 step 12", 3), ("1 predict 6", 2), ("1 jobs 2", 2)],
)
def test_a_killed_process_ends_all_and_any_number_of_processes_resumes(
    by_two: Path, tmp_path: Path, dies: str, resumed: int
) -> None:
    done = ranked(2, "rules", tmp_path / "run", DIES=dies)
    assert done.returncode != 0 and "SIGKILL" in done.stderr
    assert "another process of this run is gone" in done.stderr and seconds_since_the_signal(done) < 30
    again = ranked(resumed, "rules", tmp_path / "run")
    assert again.returncode == 0, again.stderr[-4000:]
    assert unlike(tmp_path / "run", by_two) == []


@pytest.mark.parametrize("stops", ["1 step 9", "0 step 9"])
def test_a_process_that_is_asked_to_stop_stops_all_with_what_was_done(by_two: Path, tmp_path: Path, stops: str) -> None:
    done = ranked(2, "rules", tmp_path / "run", STOPS=stops)
    assert done.returncode != 0
    assert list((tmp_path / "run" / "arms" / "debiased").glob("checkpoint-*.safetensors"))
    assert ranked(2, "rules", tmp_path / "run").returncode == 0
    assert unlike(tmp_path / "run", by_two) == []


def seconds_since_the_signal(done: subprocess.CompletedProcess[str]) -> float:
    """From the moment when a process was killed or stopped; called as soon as all have ended."""
    return time.time() - float(re.findall(r"signal at ([\d.]+)", done.stderr)[0])


def test_ctrl_c_saves_what_was_done_and_the_same_command_resumes(by_two: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        torchrun_command(2, "tests.scale.ranked", "rules", tmp_path / "run", 0),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    arm, end = tmp_path / "run" / "arms" / "debiased", time.monotonic() + 120
    while not list(arm.glob("checkpoint-*")) and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    started = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)  # as a terminal sends it
    _, said = process.communicate(timeout=60)
    assert process.returncode != 0 and time.monotonic() - started < 30
    assert "another process" not in said and list(arm.glob("checkpoint-*.safetensors"))
    assert ranked(2, "rules", tmp_path / "run").returncode == 0
    assert unlike(tmp_path / "run", by_two) == []


@pytest.mark.parametrize("unpacks", ["1 jobs 1", "1 predict 2", "1 train 1"])
def test_what_a_process_cannot_unpack_is_an_error_that_all_end_with(tmp_path: Path, unpacks: str) -> None:
    done = ranked(2, "rules", tmp_path / "run", UNPACKS=unpacks)
    assert done.returncode != 0 and "No module named 'elsewhere'" in told_by_the_first(done)


@pytest.mark.parametrize("kind", ["streamed", "sharded"])
def test_an_item_that_one_process_cannot_read_is_an_error_that_all_end_with(tmp_path: Path, kind: str) -> None:
    done = ranked(2, kind, tmp_path / "run", READS="1 20")
    assert done.returncode != 0 and "is on a disk that is not here" in told_by_the_first(done)


def told_by_the_first(done: subprocess.CompletedProcess[str]) -> str:
    """What the leader said at its end: the error, and not that another process is gone."""
    said = "".join(line for line in done.stderr.splitlines(keepends=True) if line.startswith("[rank0]"))
    assert "another process of this run is gone" not in said
    return said


def test_an_error_of_one_process_is_told_by_the_first(by_two: Path, tmp_path: Path) -> None:
    done = ranked(2, "rules", tmp_path / "run", RUNS_OUT="1 7")
    assert done.returncode != 0 and "out of memory" in done.stderr
    assert ranked(2, "rules", tmp_path / "run").returncode == 0
    assert unlike(tmp_path / "run", by_two) == []


def test_the_command_trains_with_two_processes_resumes_with_one_and_prints_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its networks are those of a module of the current folder."""
    monkeypatch.chdir(tmp_path)
    words = ["wdistill", *distilling(tmp_path), "--run", tmp_path / "run", "--epochs", 2]
    done = torchrun(2, *words)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("report.html") == 1 and (tmp_path / "run" / "report.html").is_file()
    again = subprocess.run([sys.executable, "-m", *map(str, words)], capture_output=True, text=True)
    assert again.returncode == 0 and "was finished before" in again.stdout
    wrong = torchrun(2, *words, "--gold", "none.csv")
    assert wrong.returncode != 0 and wrong.stderr.count("error: ") == 1, wrong.stderr[-3000:]


def test_a_command_of_which_one_process_is_killed_is_resumed_by_the_same_command_on_three_and_on_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the bits of a run by two that nobody killed; labels, first weights and all before the arms are those of one."""
    monkeypatch.chdir(tmp_path)
    words = ["wdistill", *distilling(tmp_path), "--epochs", 60, "--batch-size", 13, "--refresh", 20]
    words += ["--checkpoint-seconds", 0]
    finish(words, tmp_path / "wanted", 2)
    finish(words, tmp_path / "one", 1)

    command = torchrun_command(2, *words, "--run", tmp_path / "run")
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    arm, end = tmp_path / "run" / "arms" / "debiased", time.monotonic() + 120
    while not list(arm.glob("checkpoint-*")) and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    try:
        os.kill(min(started(process.pid, b"\0RANK=1\0", "environ")), signal.SIGKILL)  # not one that it has started
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode != 0 and "SIGKILL" in said
    assert "another process of this run is gone" in said and not (arm / "parameters.safetensors").exists()

    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    for name, processes in (("run", 3), ("copy", 1)):
        finish(words, tmp_path / name, processes)
        assert unlike(tmp_path / name, tmp_path / "wanted") == []
    check_near(tmp_path / "run", tmp_path / "one")


def finish(words: Sequence[object], run: Path, processes: int) -> None:
    """Run a command by so many processes, without torchrun by one."""
    command = [sys.executable, "-m", *map(str, words)] if processes == 1 else torchrun_command(processes, *words)
    done = subprocess.run([*command, "--run", str(run)], env=environment(), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-4000:]
