"""Signals to real processes: a run that is asked to stop saves and leaves, and one that is killed leaves nobody behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.distilling import splits, undrawn, unlike
from wdistill import cli
from wdistill.core.signals import stopping
from wdistill.runs.checkpoints import read_manifest
from wdistill.runs.folder import state_of

pytestmark = pytest.mark.kill
LONG = ["--epochs", "200", "--teacher-epochs", "2", "--student-epochs", "2", "--batch-size", "16", "--device", "cpu"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for name, (inputs, labels) in splits().items():
        np.savez(folder / f"{name}.npz", inputs=inputs.numpy(), label=labels.numpy())
    return folder


def command(data: Path, run: Path, *more: str) -> list[str]:
    names = ("labeled", "validation", "unlabeled", "test")
    files = [word for name in names for word in (f"--{name}", str(data / f"{name}.npz"))]
    models = ["--teacher", "mlp:inputs=6,classes=3,hidden=8", "--student", "mlp:inputs=6,classes=3,hidden=4"]
    return ["distill", *models, *files, "--run", str(run), "--rule", "debiased", "--rule", "unweighted", *LONG, *more]


class Running:
    """The command in a process of its own, in a group of its own."""

    def __init__(self, words: list[str], folder: Path) -> None:
        self.said = folder / "said"
        with self.said.open("w") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "wdistill", *words], stdout=said, stderr=said, cwd=folder, start_new_session=True
            )

    def until(self, *texts: str, seconds: float = 90) -> None:
        """Wait until it has said all of them."""
        wait_for(lambda: all(text in self.said.read_text() for text in texts) or self.process.poll() is not None, seconds)
        assert self.process.poll() is None, self.said.read_text()

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def ends(self, seconds: float = 20) -> int:
        found = self.process.wait(seconds)
        assert "Traceback" not in self.said.read_text(), self.said.read_text()
        return found

    def children(self) -> list[int]:
        """Processes it has started that do its work: those that import wdistill.training."""
        task = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [pid for pid in map(int, task.read_text().split()) if "spawn_main" in command_line(pid)]


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(happens: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


@pytest.fixture
def start(data: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def begin(*words: str) -> Running:
        started.append(Running(list(words), data))
        return started[-1]

    yield begin
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()


@pytest.fixture(scope="module")
def reference(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The run that nobody disturbed, in this process; so are the others ended, since starting one takes seconds."""
    folder = tmp_path_factory.mktemp("runs") / "reference"
    with undrawn():
        assert cli.main(command(data, folder)) == 0
        yield folder


def goes_on(data: Path, folder: Path, reference: Path) -> None:
    assert state_of(folder) == "interrupted"
    assert cli.main(command(data, folder)) == 0
    assert unlike(folder, reference, warned=True) == []
    records = [read_manifest(each).state for each in (folder, reference)]
    assert records[0]["warnings"] == records[1]["warnings"] and records[0]["finished"]


TRAINING = "debiased: weights estimated"
BOTH = (TRAINING, "unweighted: weights estimated")


def test_sigterm_saves_and_the_run_goes_on(
    data: Path, tmp_path: Path, reference: Path, start: Callable[..., Running], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    running = start(*command(data, folder))
    running.until(TRAINING)
    assert cli.main(command(data, folder)) == 5  # meanwhile, nobody else may
    assert f"process {running.process.pid} on {os.uname().nodename}" in capsys.readouterr().err
    assert state_of(folder) == "running"
    running.send(signal.SIGTERM)
    assert running.ends() == 143
    saved = read_manifest(folder / "arms" / "debiased").state
    assert "checkpoint" in saved and saved["epoch"] * 6 + saved["step"] > 0
    goes_on(data, folder, reference)


def test_ctrl_c_says_how_to_go_on(data: Path, tmp_path: Path, start: Callable[..., Running]) -> None:
    running = start(*command(data, tmp_path / "run"))
    running.until("student: epoch 2/2")
    running.send(signal.SIGINT)
    assert running.ends() == 130
    assert "the same command resumes there" in running.said.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_does_not_wait(number: int) -> None:
    child = os.fork()
    if child == 0:
        with stopping() as stop:
            os.kill(os.getpid(), number)
            while not stop():
                pass
            try:
                os.kill(os.getpid(), number)
                time.sleep(60)
            except KeyboardInterrupt:
                os._exit(130)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 128 + number


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with stopping():
        assert signal.getsignal(signal.SIGTERM) != before[0]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


@pytest.mark.proof
def test_workers_save_and_die_as_they_should(
    data: Path, tmp_path: Path, reference: Path, start: Callable[..., Running]
) -> None:
    """One run, three ends: its whole group is asked to stop, one worker is killed, the parent is killed."""
    folder = tmp_path / "run"
    running = start(*command(data, folder, "--workers", "2"))
    running.until("teacher: epoch 2/2", "student: epoch 2/2")
    workers = running.children()
    assert len(workers) == 2
    running.send(signal.SIGKILL)
    assert running.ends() == -signal.SIGKILL
    wait_for(lambda: not any(map(is_alive, workers)), 5)

    running = start(*command(data, folder, "--workers", "2"))  # the lock has died with its owner
    running.until(*BOTH)
    workers = running.children()
    os.killpg(running.process.pid, signal.SIGTERM)  # as timeout, systemd and batch systems do
    assert running.ends() == 143
    assert not any(map(is_alive, workers))
    saved = {arm: read_manifest(folder / "arms" / arm).state for arm in ("debiased", "unweighted")}
    assert all(each["epoch"] + each["step"] > 0 for each in saved.values()), saved

    running = start(*command(data, folder, "--workers", "2"))
    wait_for(lambda: len(running.children()) == 2, 60)
    workers = running.children()
    os.kill(workers[0], signal.SIGKILL)
    assert running.ends(60) == 75
    said = running.said.read_text()
    assert "a worker process died" in said and "run again" in said and '__name__ == "__main__"' in said
    assert not any(map(is_alive, workers))
    goes_on(data, folder, reference)
