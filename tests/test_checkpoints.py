"""A checkpoint store returns only bytes that were committed: the newest intact snapshot, the one before, or an error."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wdistill
from tests.distilling import failing, go, student, teacher, undrawn, unlike
from tests.killing import RECIPE
from wdistill import CheckpointError, StorageError, WdistillWarning
from wdistill.core import store
from wdistill.core.store import write_bytes
from wdistill.runs.checkpoints import CheckpointStore, read_manifest

ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EDQUOT, errno.EROFS)


def snapshots(folder: Path) -> dict[int, dict[str, bytes]]:
    """A store of three commits; the contents of the two newest snapshots."""
    checkpoints = CheckpointStore(folder)
    checkpoints.commit({"step": 1}, {"same": b"the same in all", "checkpoint-1-0.safetensors": b"one" * 50})
    checkpoints.commit(
        {"step": 2}, {"deep/weights": b"w" * 99, "checkpoint-2-0.safetensors": b"two" * 50}, ["checkpoint-1-0.safetensors"]
    )
    checkpoints.commit({"step": 3}, {"checkpoint-3-0.safetensors": b"three" * 50}, ["checkpoint-2-0.safetensors"])
    shared = {"same": b"the same in all", "deep/weights": b"w" * 99}
    return {
        2: {**shared, "checkpoint-2-0.safetensors": b"two" * 50},
        3: {**shared, "checkpoint-3-0.safetensors": b"three" * 50},
    }


def loaded(folder: Path) -> tuple[int, dict[str, bytes]]:
    checkpoints = CheckpointStore(folder)
    return checkpoints.state["step"], {name: checkpoints.read(name) for name in checkpoints.snapshot.files}


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, dict[str, bytes]]]:
    folder = tmp_path_factory.mktemp("ledgers") / "whole"
    return folder, snapshots(folder)


def test_two_snapshots_are_kept_and_what_only_older_ones_listed_is_gone(
    committed: tuple[Path, dict[int, dict[str, bytes]]],
) -> None:
    folder, wanted = committed
    assert loaded(folder) == (3, wanted[3])
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    manifests = ["generation-000002.json", "generation-000003.json"]
    assert files == ["checkpoint-2-0.safetensors", "checkpoint-3-0.safetensors", "deep/weights", *manifests, "same"]


@pytest.mark.filterwarnings("ignore::wdistill.WdistillWarning")
@given(st.data())
def test_damage_anywhere_is_found(committed: tuple[Path, dict[int, dict[str, bytes]]], data: st.DataObject) -> None:
    """A bit flipped, bytes cut off or added, in any file: what loads is one of the two snapshots, bit by bit."""
    whole, wanted = committed
    folder = whole.with_name("damaged")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    for name in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True)):
        content = (folder / name).read_bytes()
        at = data.draw(st.integers(0, len(content) - 1))
        kind = data.draw(st.sampled_from(["flip", "cut", "grow", "empty", "gone", "torn"]))
        changed = {
            "flip": content[:at] + bytes([content[at] ^ (1 << data.draw(st.integers(0, 7)))]) + content[at + 1 :],
            "cut": content[:at],
            "grow": content + b"\n",
            "empty": b"",
            "torn": content[:at] + bytes(len(content) - at),
        }.get(kind)
        (folder / name).unlink() if changed is None else (folder / name).write_bytes(changed)
    try:
        step, files = loaded(folder)
    except CheckpointError as error:
        assert error.exit_code == 3 and str(folder) in str(error)
    else:
        assert files == wanted[step]


def test_a_newest_checkpoint_that_was_removed_is_said_and_the_one_before_taken(tmp_path: Path) -> None:
    wanted = snapshots(tmp_path)
    (tmp_path / "checkpoint-3-0.safetensors").unlink()
    with pytest.warns(WdistillWarning, match=r"checkpoint-3-0.safetensors damaged or missing"):
        assert loaded(tmp_path) == (2, wanted[2])
    with pytest.warns(WdistillWarning):
        checkpoints = CheckpointStore(tmp_path)
    checkpoints.clean()
    assert loaded(tmp_path) == (2, wanted[2])  # the snapshot that never counted is gone
    checkpoints.commit({"step": 3}, {"checkpoint-3-0.safetensors": b"three" * 50}, ["checkpoint-2-0.safetensors"])
    assert loaded(tmp_path) == (3, wanted[3])


def test_a_file_that_no_snapshot_lists_is_an_error_of_ours(tmp_path: Path) -> None:
    snapshots(tmp_path)
    with pytest.raises(CheckpointError, match="elsewhere"):
        CheckpointStore(tmp_path).read("elsewhere")


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "deep/../../outside"])
def test_a_manifest_that_points_outside_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "outside").write_bytes(b"x")
    folder = tmp_path / "run"
    folder.mkdir()
    content = json.dumps({"number": 1, "state": {"step": 1}, "files": {name: [1, store.digest(b"x")]}})
    text = f'{{"sha256": "{store.digest(content.encode())}", "content": {content}}}\n'
    (folder / "generation-000001.json").write_text(text)
    with pytest.raises(CheckpointError):
        CheckpointStore(folder)
    assert read_manifest(folder).number == 0


def test_the_manifest_comes_last_and_nothing_goes_before_it(tmp_path: Path) -> None:
    snapshots(tmp_path)
    checkpoints = CheckpointStore(tmp_path)
    with failing(0, 0) as seen:
        checkpoints.commit({"step": 4}, {"a": b"1", "b/d": b"2"}, ["checkpoint-3-0.safetensors"])
    manifest = seen.index("rename generation-000004.json")
    assert [word for word in seen[:manifest] if word.startswith("rename")] == ["rename a", "rename d"]
    assert not any(word.startswith("remove") for word in seen[:manifest])
    for name in ("a", "d", "generation-000004.json"):  # written, synced, renamed, and the folder synced
        steps = [word.split()[0] for word in seen if word.split()[1].strip(".").startswith((f"{name}.", name))]
        assert steps == ["open", "write", "write", "sync", "rename"]
        assert seen[seen.index(f"rename {name}") + 1].startswith("sync ")
    removals = ["remove checkpoint-2-0.safetensors", "remove generation-000002.json"]
    assert [word for word in seen[manifest + 2 :] if word != f"sync {tmp_path.name}"] == removals


@pytest.mark.slow
@pytest.mark.parametrize("number", ERRORS, ids=errno.errorcode.get)
def test_a_commit_that_fails_at_any_operation_leaves_the_snapshot_before(tmp_path: Path, number: int) -> None:
    at, done = 0, False
    while not done:  # until the fault no longer fires
        at += 1
        folder = tmp_path / str(at)
        wanted = snapshots(folder)
        checkpoints = CheckpointStore(folder)
        with failing(at, number) as seen:
            try:
                checkpoints.commit({"step": 4}, {"checkpoint-4-0.safetensors": b"four" * 50}, ["checkpoint-3-0.safetensors"])
            except StorageError as error:
                assert error.exit_code == 3 and isinstance(error, OSError)
        done = len(seen) < at
        step, files = loaded(folder)
        assert files == wanted[3] if step == 3 else step == 4
        assert not list(folder.glob(".*.tmp"))
        again = CheckpointStore(folder)
        again.clean()
        again.commit({"step": 4}, {"checkpoint-4-0.safetensors": b"four" * 50}, ["checkpoint-3-0.safetensors"])
        assert loaded(folder)[0] == 4
    assert at > 10


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    """Files of others stay, whatever their names: only what a manifest lists, and unfinished writes, are removed."""
    wanted = snapshots(tmp_path)
    (tmp_path / "mine").mkdir()
    for name in ("checkpoint-4-0.safetensors", "deep/weights"):
        store.temporary_name(tmp_path / name).write_bytes(b"half")
    mine = (
        "notes.txt",
        "generation-of-mine.json",
        "generation-7.json",
        "generation-000004.json",
        "deep/checkpoint-9-9.safetensors",
        "checkpoint-best.safetensors",
        "checkpoint-4-0.safetensors",
        "checkpoint-1-0.safetensors",
        ".my.tmp",
        ".my.7.tmp",
        ".checkpoint-4-0.safetensors.123.tmp",
        ".checkpoint-4-0.safetensors.123.0123456789abcdef.tmp",
        "mine/.weights.json.7.tmp",
    )
    for name in mine:
        (tmp_path / name).write_bytes(b"mine")
    link = store.temporary_name(tmp_path / "link.json").name
    links = {link: tmp_path / "notes.txt", "weights": tmp_path / "mine"}
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    with pytest.warns(WdistillWarning):
        checkpoints = CheckpointStore(tmp_path)
    checkpoints.clean()
    manifests = {"generation-000002.json", "generation-000003.json"}
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if not path.is_dir()}
    assert left == {*wanted[2], *wanted[3], *mine, *manifests, link}
    checkpoints.commit({"step": 4}, {"checkpoint-5-0.safetensors": b"five"}, ["checkpoint-3-0.safetensors"])
    checkpoints.commit({"step": 5}, {"checkpoint-6-0.safetensors": b"six"}, ["checkpoint-5-0.safetensors"])
    assert loaded(tmp_path)[0] == 5 and all((tmp_path / name).read_bytes() == b"mine" for name in mine)


def test_a_file_of_somebody_else_is_not_replaced(tmp_path: Path) -> None:
    wanted = snapshots(tmp_path)
    checkpoints = CheckpointStore(tmp_path)
    (tmp_path / "metrics.jsonl").write_bytes(b"mine")
    with pytest.raises(CheckpointError, match=r"metrics.jsonl: a file that this run did not write"):
        checkpoints.commit({"step": 4}, {"a": b"1", "metrics.jsonl": b"ours"})
    assert loaded(tmp_path) == (3, wanted[3]) and not (tmp_path / "a").exists()
    assert (tmp_path / "metrics.jsonl").read_bytes() == b"mine"
    checkpoints.commit({"step": 4}, {"metrics.jsonl": b"mine"})  # as a killed process left it
    checkpoints.commit({"step": 5}, {"metrics.jsonl": b"ours"})
    assert loaded(tmp_path)[0] == 5 and (tmp_path / "metrics.jsonl").read_bytes() == b"ours"


def test_a_file_that_was_changed_is_not_removed_with_the_snapshot_that_listed_it(tmp_path: Path) -> None:
    snapshots(tmp_path)
    (tmp_path / "checkpoint-2-0.safetensors").write_bytes(b"mine")
    CheckpointStore(tmp_path).commit({"step": 4}, {"a": b"1"})
    assert (tmp_path / "checkpoint-2-0.safetensors").read_bytes() == b"mine"


def test_a_folder_that_can_neither_be_written_nor_cleaned_is_a_storage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, "read-only")

    monkeypatch.setattr(Path, "unlink", refuse)
    with failing(1, errno.EROFS), pytest.raises(StorageError, match="made up"):
        write_bytes(tmp_path / "file", b"content")


def test_what_is_no_lock_is_not_locked_and_stays(tmp_path: Path) -> None:
    (tmp_path / "notes").write_bytes(b"process of the work")
    for number, put in enumerate((Path.mkdir, lambda path: path.symlink_to(tmp_path / "notes"), Path.touch)):
        folder = tmp_path / str(number)
        folder.mkdir()
        put(folder / "lock")
        if number == 2:
            (folder / "lock").write_bytes(b"process of the work")
        with pytest.raises(StorageError, match="something else is in the way"), store.lock(folder):
            pass
        assert (folder / "lock").is_dir() if number == 0 else (folder / "lock").read_bytes() == b"process of the work"
        assert (folder / "lock").is_symlink() == (number == 1)


def test_a_full_disk_does_not_hinder_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(store.os, "pwrite", full)
    with (
        store.lock(tmp_path / "run"),
        pytest.raises(wdistill.BusyError, match="unknown process"),
        store.lock(tmp_path / "run"),
    ):
        pass


# a whole run -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """A run without a fault, and its number of operations."""
    folder = tmp_path_factory.mktemp("runs") / "reference"
    with undrawn():
        with failing(0, 0) as seen:
            go(teacher, student, RECIPE, run=folder)
        yield folder, len(seen)


@pytest.mark.slow
@pytest.mark.parametrize("share", range(16))
def test_a_run_with_a_failing_disk_stops_with_our_error_and_goes_on(
    tmp_path: Path, reference: tuple[Path, int], share: int
) -> None:
    wanted, operations = reference
    at, number = 1 + (share * operations) // 16 + share % 5, ERRORS[share % len(ERRORS)]
    with failing(at, number) as seen:
        try:
            go(teacher, student, RECIPE, run=tmp_path / "run")
        except StorageError as error:
            assert error.where and error.remedy and len(seen) == at
        else:  # a warning that could not be recorded at once is recorded later
            assert "generation-" in seen[at - 1] and len(seen) > operations
    go(teacher, student, RECIPE, run=tmp_path / "run")
    assert unlike(tmp_path / "run", wanted) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "arms/debiased/parameters.safetensors",
        "arms/debiased/weights/00002.parquet",
        "arms/debiased/generation-*",
        "student/parameters.safetensors",
        "metrics.jsonl",
    ],
)
def test_a_finished_run_that_was_damaged_mends_itself(
    tmp_path: Path, reference: tuple[Path, int], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted, folder = reference[0], tmp_path / "run"
    shutil.copytree(wanted, folder)
    path = sorted(folder.glob(name))[-1]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    report = go(teacher, student, RECIPE, run=folder)
    if "student/" not in name:  # of a finished run nobody reads it again
        assert unlike(folder, wanted, warned=True) == []
        assert path.name in capsys.readouterr().err
    assert report.outcome.state == "finished"


def test_a_run_damaged_beyond_mending_is_an_error_that_says_what_to_do(tmp_path: Path, reference: tuple[Path, int]) -> None:
    folder = tmp_path / "run"
    shutil.copytree(reference[0], folder)
    for path in folder.glob("generation-*.json"):
        path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CheckpointError, match="generation-") as caught:
        go(teacher, student, RECIPE, run=folder)
    assert "remove the folder" in caught.value.remedy
    shutil.copytree(reference[0], folder, dirs_exist_ok=True)
    shutil.rmtree(folder / "arms" / "debiased")  # as the remedy says, for an arm
    go(teacher, student, RECIPE, run=folder)
    assert unlike(folder, reference[0]) == []
