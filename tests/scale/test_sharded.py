"""A student in shards (FSDP2): what it becomes is what a whole one becomes, whichever process dies."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from torch import Tensor, nn

from tests.distilling import QUICK, Dropping, go, teacher, undrawn, unlike
from tests.killing import splits
from tests.scale.ranked import KINDS
from tests.scale.test_ranks import ranked, seconds_since_the_signal, told_by_the_first, torchrun
from wdistill.core.errors import ConfigError
from wdistill.runs.checkpoints import CheckpointStore
from wdistill.training.placed import blocks_of, check_shards
from wdistill.training.tensors import from_bytes

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of runs that are as small as these
TRAINED = ("student", "auxiliary/second-0", "arms/debiased", "arms/best")  # in shards
PARTS = 3  # of a batch: of two processes one has a part that counts for nothing
MEASURED = 53  # the order to predict that the first accuracy of the first arm begins with


@pytest.fixture(scope="module", autouse=True)
def no_page() -> Iterator[None]:
    with undrawn():
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one process, whose students are not in shards."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    KINDS["whole"](folder, PARTS)
    return folder


@pytest.fixture(scope="module")
def by_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same by two processes, in shards."""
    folder = tmp_path_factory.mktemp("by-two") / "run"
    done = ranked(2, "sharded", folder, PARTS)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def parameters(run: Path, name: str) -> dict[str, Tensor]:
    return from_bytes(CheckpointStore(run / name).read("parameters.safetensors"), name)


def losses(run: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def weights(run: Path) -> NDArray[np.float64]:
    """The first of an arm."""
    return pq.read_table(run / "arms" / "debiased" / "weights" / "00000.parquet")["weight"].to_numpy()


def assert_nearly(run: Path, wanted: Path) -> None:
    """Labels to the bit, the rest nearly."""
    apart = unlike(run, wanted)
    assert not [name for name in apart if name.startswith(("labels", "teacher", "initial"))]
    for name in TRAINED:
        torch.testing.assert_close(parameters(run, name), parameters(wanted, name), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(losses(run), losses(wanted), rtol=1e-5)
    np.testing.assert_allclose(weights(run), weights(wanted), rtol=1e-5)


def test_students_in_shards_become_what_whole_ones_become(by_two: Path, whole: Path) -> None:
    assert_nearly(by_two, whole)


def test_one_process_trains_them_whole_with_the_same_bits(whole: Path, tmp_path: Path) -> None:
    KINDS["sharded"](tmp_path / "run", PARTS)
    assert unlike(tmp_path / "run", whole) == [". state"]  # where the recipe is


def test_each_process_keeps_its_shard_of_every_tensor(by_two: Path) -> None:
    shards = sorted((by_two / "arms" / "debiased").glob("checkpoint-*.safetensors"))
    assert [path.name.rpartition(".")[0].partition(".")[2] for path in shards] == ["1-of-2", "2-of-2"]
    wanted, rows = parameters(by_two, "arms/debiased"), dict[str, list[int]]()
    for path in shards:
        with safe_open(path, "pt") as file:
            for key in file.keys():  # noqa: SIM118 (it is no mapping)
                kind, _, name = key.rpartition("@")[0].partition("/")
                if kind == "model" and wanted[name].ndim and not name.endswith(("running_mean", "running_var")):
                    rows.setdefault(name, []).append(file.get_slice(key).get_shape()[0])
    assert {name: sum(each) for name, each in rows.items()} == {name: len(wanted[name]) for name in rows}
    assert rows and all(len(each) == 2 and max(each) <= -(-len(wanted[name]) // 2) for name, each in rows.items())


@pytest.mark.parametrize("dies", ["1 step 9", "1 shards 9", "0 predict 9"])
def test_a_killed_process_ends_all_and_as_many_resume_with_the_same_bits(by_two: Path, tmp_path: Path, dies: str) -> None:
    done = ranked(2, "sharded", tmp_path / "run", PARTS, DIES=dies)
    assert done.returncode != 0 and "SIGKILL" in done.stderr
    assert "another process of this run is gone" in done.stderr and seconds_since_the_signal(done) < 30
    again = ranked(2, "sharded", tmp_path / "run", PARTS)
    assert again.returncode == 0, again.stderr[-4000:]
    assert unlike(tmp_path / "run", by_two) == []


def test_a_shard_that_was_damaged_is_named_and_an_older_checkpoint_taken(by_two: Path, tmp_path: Path) -> None:
    assert ranked(2, "sharded", tmp_path / "run", PARTS, STOPS="1 step 60").returncode != 0
    shards = (tmp_path / "run").rglob("checkpoint-*.2-of-2.safetensors")
    shard = max(shards, key=lambda path: path.stat().st_mtime_ns)  # of the newest checkpoint
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    again = ranked(2, "sharded", tmp_path / "run", PARTS)
    assert again.returncode == 0, again.stderr[-4000:]
    assert f"{shard.name} damaged or missing: resuming from the snapshot before" in again.stderr
    assert unlike(tmp_path / "run", by_two) == [". state"]  # it has the warning


@pytest.mark.parametrize("resumed", [1, 3])
def test_another_number_of_processes_resumes(whole: Path, tmp_path: Path, resumed: int) -> None:
    assert ranked(2, "sharded", tmp_path / "run", PARTS, STOPS="1 step 50").returncode != 0
    assert list((tmp_path / "run").rglob("checkpoint-*.2-of-2.safetensors"))
    again = ranked(resumed, "sharded", tmp_path / "run", PARTS)
    assert again.returncode == 0, again.stderr[-4000:]
    assert_nearly(tmp_path / "run", whole)


def test_a_process_that_is_asked_to_stop_while_it_predicts_stops_all_with_what_was_done(
    by_two: Path, tmp_path: Path
) -> None:
    """The other process has no signal: it is told why there are no predictions of an epoch whose steps are done."""
    done = ranked(2, "sharded", tmp_path / "run", PARTS, STOPS=f"1 predict {MEASURED}")
    assert "StoppedError" in told_by_the_first(done)
    assert list((tmp_path / "run" / "arms" / "debiased").glob("checkpoint-00000-*.2-of-2.safetensors"))
    assert ranked(2, "sharded", tmp_path / "run", PARTS).returncode == 0
    assert unlike(tmp_path / "run", by_two) == []


@pytest.mark.parametrize("unpacks", ["1 shard 1", "1 train-shards 1"])
def test_what_a_process_cannot_unpack_is_an_error_that_all_end_with(tmp_path: Path, unpacks: str) -> None:
    done = ranked(2, "sharded", tmp_path / "run", PARTS, UNPACKS=unpacks)
    assert done.returncode != 0 and "No module named 'elsewhere'" in told_by_the_first(done)


def test_a_process_that_runs_out_of_memory_in_a_pass_says_so_and_the_same_command_resumes(
    by_two: Path, tmp_path: Path
) -> None:
    done = ranked(2, "sharded", tmp_path / "run", PARTS, RUNS_OUT="1 90")
    assert done.returncode != 0 and "the debiased: out of memory" in done.stderr
    assert ranked(2, "sharded", tmp_path / "run", PARTS).returncode == 0
    assert unlike(tmp_path / "run", by_two) == []


def test_the_command_trains_in_shards_and_exports_the_student(tmp_path: Path) -> None:
    for name, (inputs, labels) in splits().items():
        np.savez(tmp_path / f"{name}.npz", inputs=inputs.numpy(), label=labels.numpy())
    network = "mlp:inputs=6,classes=3,hidden="
    words = ["wdistill", "distill", "--teacher", f"{network}8", "--student", f"{network}4x4", "--run", tmp_path / "run"]
    words += [word for name in splits() for word in (f"--{name}", tmp_path / f"{name}.npz")]
    words += ["--epochs", 2, "--teacher-epochs", 2, "--student-epochs", 2, "--device", "cpu", "--sharded"]
    done = torchrun(2, *words)
    assert done.returncode == 0, done.stderr[-4000:]
    command = [sys.executable, "-m", "wdistill", "export", tmp_path / "run", "--output", tmp_path / "student"]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    exported = from_bytes((tmp_path / "student" / "student.safetensors").read_bytes(), "student")
    torch.testing.assert_close(exported, parameters(tmp_path / "run", "arms/debiased"), rtol=0, atol=0)


class Tied(nn.Module):
    """Two layers with one kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3))
        self.layers[1].weight = self.layers[0].weight

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs)


class Numbered(nn.Module):
    """A layer and a number."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.scale = nn.Sequential(nn.Linear(6, 3)), nn.Parameter(torch.ones(()))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs) * self.scale


@pytest.mark.parametrize("student, found", [(Tied, "layers.0.weight, layers.1.weight"), (Numbered, "scale")])
def test_what_cannot_be_in_shards_is_refused_before_any_training(tmp_path: Path, student: Any, found: str) -> None:
    with pytest.raises(ConfigError) as refused:
        go(teacher, student, replace(QUICK, sharded=True), run=tmp_path / "run")
    assert refused.value.found == found and not list((tmp_path / "run").glob("generation-*"))


def test_a_student_that_would_be_gathered_whole_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="has no layers in an nn.Sequential"):
        check_shards(nn.Linear(6, 3))


def test_layers_in_sequences_are_gathered_by_themselves_inner_ones_first() -> None:
    inner, outer = Dropping(), nn.Linear(3, 3)
    found = blocks_of(nn.Sequential(inner, outer))
    names: Mapping[int, str] = {id(each): name for name, each in nn.Sequential(inner, outer).named_modules()}
    assert {names[id(each)] for each in found} == {"0", "0.layers.0", "0.layers.1", "0.layers.4", "1"}
    assert [names[id(each)] for each in found].index("0") > [names[id(each)] for each in found].index("0.layers.0")
