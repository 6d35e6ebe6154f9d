"""The folder of an unfinished `weigh`: damage is seen and mended, and nothing that is not ours is ever removed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.killing import child, killer
from tests.tables import columns, take, write
from tests.test_cli import VALIDATION, fail
from wdistill import cli
from wdistill.core import sealed, store
from wdistill.tables import job, parts

FILES, ROWS = 4, 100


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Gold rows, four files of teacher's predictions, and the student's in one file in another order."""
    folder = tmp_path_factory.mktemp("parts")
    whole = columns(3, FILES * ROWS, first=1000)
    write(folder / "v.parquet", VALIDATION)
    for i, rows in enumerate(np.array_split(np.arange(FILES * ROWS), FILES)):
        write(folder / "t" / f"{i}.parquet", take(whole, rows, "id", "teacher"))
    write(folder / "s.parquet", take(whole, np.random.default_rng(0).permutation(FILES * ROWS), "id", "student"))
    return folder


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "PART", 1)


def command(place: Path, output: Path) -> list[str]:
    tables = ["--validation", place / "v.parquet", "--unlabeled", place / "t", "--unlabeled", place / "s.parquet"]
    return ["weigh", *map(str, tables), "--output", str(output)]


@pytest.fixture(scope="module")
def wanted(place: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    output = tmp_path_factory.mktemp("whole") / "w.parquet"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "PART", 1)
        assert cli.main(command(place, output)) == 0
    return output.read_bytes()


@pytest.fixture(scope="module")
def interrupted(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job that was killed when three of its four parts were finished."""
    output = tmp_path_factory.mktemp("interrupted") / "w.parquet"
    opened = 0

    def kill_at_the_fourth(operation: str, path: Path) -> None:
        nonlocal opened
        opened += operation == "open" and path.name.startswith("part-")
        if opened == 4:
            killer(1)(operation, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "PART", 1)
        assert child(output.parent, kill_at_the_fourth, lambda _: main_or_fail(command(place, output))) != 0
    return output.with_name("w.parquet.parts")


def main_or_fail(words: list[str]) -> None:
    assert cli.main(words) == 0


def copy_of(interrupted: Path, folder: Path) -> Path:
    shutil.copytree(interrupted, folder / "w.parquet.parts")
    return folder / "w.parquet.parts"


def listing(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_killed_job_makes_only_what_is_missing(
    place: Path, interrupted: Path, wanted: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy_of(interrupted, tmp_path)
    assert cli.main(command(place, tmp_path / "w.parquet")) == 0
    assert "resuming after 3 finished files" in capsys.readouterr().err
    assert (tmp_path / "w.parquet").read_bytes() == wanted
    assert not (tmp_path / "w.parquet.parts").exists()


@pytest.mark.slow
def test_no_flipped_bit_of_the_folder_is_silently_used(
    place: Path, interrupted: Path, wanted: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(1)
    files = sorted(path for path in interrupted.rglob("*") if path.is_file() and path.name != "lock")
    assert {path.name.partition(".")[0] for path in files} >= {"job", "part-000000", "part-000002", "rows-000000"}
    for number, path in enumerate(files * 6):
        folder = copy_of(interrupted, tmp_path / str(number))
        copy = folder / path.relative_to(interrupted)
        content = bytearray(copy.read_bytes())
        content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        copy.write_bytes(content if number % 3 else content[: rng.integers(len(content))])
        assert cli.main(command(place, tmp_path / str(number) / "w.parquet")) == 0
        assert (tmp_path / str(number) / "w.parquet").read_bytes() == wanted, path.name
        named = copy.name in capsys.readouterr().err
        assert named or copy.name in parts.RECORDS or not listed(interrupted, copy.name)


def listed(interrupted: Path, name: str) -> bool:
    return name in json.dumps(sealed.read_sealed(interrupted / "job.json"))


def test_any_missing_file_is_made_anew(place: Path, interrupted: Path, wanted: bytes, tmp_path: Path) -> None:
    files = sorted(path for path in interrupted.rglob("*") if path.is_file())
    for number, path in enumerate(files):
        folder = copy_of(interrupted, tmp_path / str(number))
        (folder / path.relative_to(interrupted)).unlink()
        assert cli.main(command(place, tmp_path / str(number) / "w.parquet")) == 0
        assert (tmp_path / str(number) / "w.parquet").read_bytes() == wanted


def test_a_record_damaged_in_both_copies_names_the_folder(
    place: Path, interrupted: Path, wanted: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copy_of(interrupted, tmp_path)
    for name in parts.RECORDS:
        (folder / name).write_text("[" * 20_000)
    before = listing(folder)
    message = fail(capsys, *command(place, tmp_path / "w.parquet"), code=2)
    assert "cannot be read" in message and f"remove {folder}" in message and listing(folder) == before
    shutil.rmtree(folder)
    assert cli.main(command(place, tmp_path / "w.parquet")) == 0
    assert (tmp_path / "w.parquet").read_bytes() == wanted


def test_rows_that_a_power_cut_has_taken_are_made_anew(
    place: Path, interrupted: Path, wanted: bytes, tmp_path: Path
) -> None:
    folder = copy_of(interrupted, tmp_path)
    (rows,) = folder.glob("aligned-1.*/rows-000000")
    rows.write_bytes(rows.read_bytes()[: 221 * 24])  # cut where a row ends
    assert cli.main(command(place, tmp_path / "w.parquet")) == 0
    assert (tmp_path / "w.parquet").read_bytes() == wanted


def test_all_that_a_record_lists_was_synced_before(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unsynced: dict[str, str] = {}

    def watch(operation: str, path: Path) -> None:
        if operation in ("open", "append", "write"):
            unsynced[str(path)] = operation
        elif operation == "sync":
            unsynced.pop(str(path), None)
        elif operation == "rename" and path.name in parts.RECORDS:
            assert not [name for name in unsynced if "rows-" in name or "part-" in name]

    monkeypatch.setattr(store, "before", watch)
    assert cli.main(command(place, tmp_path / "w.parquet")) == 0


FOREIGN: dict[str, Callable[[Path, Path], Any]] = {
    "a part": lambda folder, place: shutil.copy(place / "s.parquet", folder / "part-000000.parquet"),
    "a part of the next number": lambda folder, place: shutil.copy(place / "s.parquet", folder / "part-000003.parquet"),
    "a record": lambda folder, place: (folder / "job.json").write_text('{"sha256": "0"}'),
    "a record of an old kind": lambda folder, place: (folder / "warnings.json").write_text("[]"),
    "an unfinished file": lambda folder, place: (folder / ".job.json.123.tmp").write_text("notes"),
    "a lock": lambda folder, place: (folder / "lock").write_text("the key is under the mat"),
    "a folder": lambda folder, place: (folder / "aligned-1").mkdir(),
    "a link": lambda folder, place: (folder / "part-000001.parquet").symlink_to(place / "s.parquet"),
    "a link for a lock": lambda folder, place: (folder / "lock").symlink_to(place / "s.parquet"),
}


@pytest.mark.parametrize("what", FOREIGN)
@pytest.mark.parametrize("ours", [False, True])
def test_what_is_not_ours_is_never_removed(
    what: str, ours: bool, place: Path, interrupted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "w.parquet.parts"
    if ours:
        copy_of(interrupted, tmp_path)
        (folder / "lock").unlink()
    else:
        folder.mkdir()
    if ours and what == "a record":
        (folder / "job.copy.json").unlink()
    FOREIGN[what](folder, place)
    before = listing(tmp_path)
    fail(capsys, *command(place, tmp_path / "w.parquet"))
    assert listing(tmp_path) == before and not (tmp_path / "w.parquet").exists()


def test_a_folder_of_parts_that_is_a_link_is_refused(
    place: Path, interrupted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = copy_of(interrupted, tmp_path / "elsewhere")
    (tmp_path / "w.parquet.parts").symlink_to(elsewhere)
    before = listing(tmp_path)
    assert "a link" in fail(capsys, *command(place, tmp_path / "w.parquet"))
    assert listing(tmp_path) == before


def test_inputs_in_the_folder_of_parts_are_refused_and_kept(
    place: Path, interrupted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = write(tmp_path / "u.parquet", columns(3, 50, first=1000))
    folder = tmp_path / "w.parquet.parts"
    folder.mkdir()
    shutil.copy(both, folder / "part-00000.parquet")
    given = ["--validation", str(place / "v.parquet"), "--unlabeled", str(folder), "--output", str(tmp_path / "w.parquet")]
    before = listing(tmp_path)
    fail(capsys, "weigh", *given)
    assert listing(tmp_path) == before


def test_pages_of_the_output_carry_checksums(wanted: bytes, tmp_path: Path) -> None:
    path = tmp_path / "w.parquet"
    path.write_bytes(wanted)
    column, whole = pq.ParquetFile(path).metadata.row_group(0).column(1), pq.read_table(path)
    first, messages = column.dictionary_page_offset or column.data_page_offset, []
    for at in range(first, first + column.total_compressed_size, 7):
        path.write_bytes(wanted[:at] + bytes([wanted[at] ^ 1]) + wanted[at + 1 :])
        try:
            assert pq.read_table(path, page_checksum_verification=True).equals(whole)
        except OSError as error:
            messages.append(str(error))
    assert any("CRC" in message for message in messages)
