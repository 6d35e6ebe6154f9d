"""The folder that an engine's processes write into: what is others' stays, what is damaged or cut off becomes whole."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.partitions import FILES, ROWS, bytes_of, failing_after, paths, rows_in_files, rows_of, weigh
from tests.tables import columns, write
from wdistill.cli.entry import main
from wdistill.core import sealed, store
from wdistill.core.errors import ConfigError, FileError, InputError, StorageError, UnfinishedError
from wdistill.engines.partition import made_of
from wdistill.tables.manifest import MANIFEST
from wdistill.tables.options import Options
from wdistill.tables.weigh import weigh_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return rows_in_files(tmp_path)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows in two files, and their weights in the folder `whole`."""
    base = rows_in_files(tmp_path_factory.mktemp("two"), 2)
    weigh(base, "whole")
    return base


def of(folder: Path, beginning: str) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith(beginning))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


# others' files --------------------------------------------------------------------------------------------------------

STEM, PART = "part-000000-0123456789abcdef", "part-000000-0123456789abcdef-0123456789abcdef.parquet"
RECORDS: dict[str, bytes] = {
    "of somebody": b"my notes\n",
    "of somebody, in JSON": json.dumps({"file": PART}).encode(),
    "of something else of ours": sealed.seal({"file": PART, "rows": 2}),
}


@pytest.mark.parametrize("record", RECORDS)
def test_a_record_of_somebody_else_makes_no_file_a_part(folder: Path, record: str) -> None:
    write(folder / "o" / PART, columns(7, 2))
    (folder / "o" / f"_{STEM}.json").write_bytes(RECORDS[record])
    before = bytes_of(folder / "o")
    with pytest.raises(ConfigError, match=f"holds something else\n.*{PART}"):
        weigh(folder)
    assert bytes_of(folder / "o") == before


@pytest.mark.parametrize("record", RECORDS)
def test_what_readers_leave_out_and_is_not_ours_stays(folder: Path, record: str) -> None:
    (folder / "o").mkdir()
    others = {f"_{STEM}.json": RECORDS[record], "_SUCCESS": b"", ".hidden": b"x", ".a.1.0123456789abcdef.tmp": b"y"}
    for name, content in others.items():
        (folder / "o" / name).write_bytes(content)
    for _ in range(2):
        weigh(folder)
        assert {name: content for name, content in bytes_of(folder / "o").items() if name in others} == others
    weigh(folder, "whole")
    assert bytes_of(folder / "o") == bytes_of(folder / "whole") | others


def test_a_record_names_no_file_elsewhere_and_none_that_is_another(folder: Path) -> None:
    with pytest.raises(UnfinishedError):
        weigh(folder, "o", failing_after(1))
    (name,) = of(folder / "o", "_part-")
    made = made_of((folder / "o" / name).read_bytes())
    assert made is not None
    (folder / "notes").write_text("mine")
    for file, key in (("../notes", "0" * 16), (PART, "0123456789abcdef")):
        forged = dataclasses.replace(made, key=key, file=file)
        (folder / "o" / f"_part-000000-{key}.json").write_bytes(sealed.seal(dataclasses.asdict(forged)))
    weigh(folder)
    assert (folder / "notes").read_text() == "mine"
    shutil.rmtree(folder / "o")
    write(folder / "o" / PART, columns(7, 2))
    (folder / "o" / f"_{STEM}.json").write_bytes(sealed.seal(dataclasses.asdict(forged)))  # of another digest
    with pytest.raises(ConfigError, match="holds something else"):
        weigh(folder)
    assert of(folder / "o", "part-") == [PART]


def test_parts_of_another_job_are_refused_and_kept(folder: Path) -> None:
    with pytest.raises(UnfinishedError):
        weigh(folder, "o", failing_after(3))
    before = bytes_of(folder / "o")
    with pytest.raises(ConfigError, match="another job for this output is not finished"):
        weigh(folder, neighbors=3)
    assert bytes_of(folder / "o") == before
    weigh(folder)
    weigh(folder, "whole")
    assert bytes_of(folder / "o") == bytes_of(folder / "whole")


def test_a_file_that_joins_a_finished_folder_is_named_and_kept(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weigh(folder)
    write(folder / "o" / PART, columns(7, 2))
    assert main(["verify", str(folder / "o")]) == 3
    said = capsys.readouterr().out
    assert f"{FILES + 1} of {FILES + 2} files whole" in said and f"not listed: {folder / 'o' / PART}; move it away" in said
    assert main(["inspect", str(folder / "o"), "--picture", str(folder / "w.svg")]) == 2
    with pytest.raises(ConfigError, match="holds something else"):
        weigh(folder)
    assert (folder / "o" / PART).exists()


# damage ---------------------------------------------------------------------------------------------------------------


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


@pytest.mark.parametrize("damage", [flip, cut, Path.unlink], ids=["flipped", "cut", "gone"])
@pytest.mark.parametrize("which", [MANIFEST, "part-000001", "part-00000"])
def test_the_remedies_of_verify_bring_the_same_bytes_back(
    two: Path, tmp_path: Path, which: str, damage: Callable[[Path], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(two / "whole", two / "o", dirs_exist_ok=True)
    for name in of(two / "o", which):
        damage(two / "o" / name)
    if (two / "o" / MANIFEST).exists():
        assert main(["verify", str(two / "o")]) == 3
        said = capsys.readouterr().out
        if "remove it, and run the command that wrote it again" in said:
            with pytest.raises(FileError, match=r"its manifest is damaged\n(.*\n)*.*remove it, and run"):
                weigh(two)
            (two / "o" / MANIFEST).unlink()
        else:
            assert "run the command that wrote it again: what is not whole is made anew" in said
    weigh(two)
    said = capsys.readouterr().err
    assert "nothing was left to do" not in said and (("made anew: " in said and "of 3 files" in said) or which == MANIFEST)
    assert bytes_of(two / "o") == bytes_of(two / "whole")
    assert main(["verify", str(two / "o")]) == 0


def test_inspect_refuses_a_folder_with_a_part_missing(two: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(two / "whole", tmp_path / "o")
    part = of(tmp_path / "o", "part-")[0]
    (tmp_path / "o" / part).unlink()
    assert main(["inspect", str(tmp_path / "o"), "--picture", str(tmp_path / "w.svg")]) == 2
    assert f"{part} missing or cut off" in capsys.readouterr().err and not (tmp_path / "w.svg").exists()


def test_a_part_that_becomes_another_one_is_not_put_into_a_finished_folder(folder: Path) -> None:
    weigh(folder)
    manifest = folder / "o" / MANIFEST
    record = sealed.read_sealed(manifest)
    (folder / "o" / record["parts"][2]["file"]).unlink()
    record["parts"][2]["sha256"] = "0" * 64
    manifest.write_bytes(sealed.seal(record))
    before = bytes_of(folder / "o")
    with pytest.raises(StorageError, match="becomes another one when it is made again"):
        weigh(folder)
    assert bytes_of(folder / "o") == before


def test_a_finished_job_is_looked_at_and_not_done_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = weigh(folder)
    before = {name: (folder / "o" / name).stat().st_mtime_ns for name in bytes_of(folder / "o")}
    assert weigh(folder) == first
    assert "nothing was left to do" in capsys.readouterr().err
    assert {name: (folder / "o" / name).stat().st_mtime_ns for name in before} == before
    with pytest.raises(ConfigError, match="holds another result"):
        weigh(folder, neighbors=3)


# interrupted ----------------------------------------------------------------------------------------------------------


def test_an_interrupted_job_goes_on_where_it_was(folder: Path) -> None:
    weigh(folder, "whole")
    with pytest.raises(UnfinishedError):
        weigh(folder, "o", failing_after(3))
    before = {name: (folder / "o" / name).stat().st_mtime_ns for name in of(folder / "o", "part-")}
    assert len(before) == 3 and not (folder / "o" / MANIFEST).exists()
    weigh(folder, "o")
    assert bytes_of(folder / "o") == bytes_of(folder / "whole")
    assert {name: (folder / "o" / name).stat().st_mtime_ns for name in before} == before, "made once"


def test_an_unfinished_folder_is_known_for_what_it_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnfinishedError):
        weigh(folder, "o", failing_after(3))
    flip(folder / "o" / of(folder / "o", "part-")[0])
    assert main(["verify", str(folder / "o")]) == 3
    said = capsys.readouterr().out
    assert "an unfinished folder: 2 parts done, no manifest" in said and "run the same command again" in said


def test_a_part_that_was_damaged_meanwhile_is_made_anew(folder: Path) -> None:
    weigh(folder, "whole")
    with pytest.raises(UnfinishedError):
        weigh(folder, "o", failing_after(3))
    parts, records = of(folder / "o", "part-"), of(folder / "o", "_part-")
    flip(folder / "o" / parts[0])
    (folder / "o" / parts[1]).unlink()
    (folder / "o" / records[2]).write_text("{}")
    weigh(folder, "o")
    assert bytes_of(folder / "o") == bytes_of(folder / "whole")


def test_what_changed_meanwhile_is_made_anew_and_what_it_was_is_gone(folder: Path) -> None:
    with pytest.raises(UnfinishedError):
        weigh(folder, "o", failing_after(3))
    write(folder / "u" / "1.parquet", columns(9, ROWS, first=50_000))
    weigh(folder, "o")
    weigh(folder, "whole")
    assert bytes_of(folder / "o") == bytes_of(folder / "whole")


def test_a_file_that_changes_after_the_start_is_not_taken_for_what_it_was(folder: Path) -> None:
    def meddling(work: Any, questions: Sequence[str]) -> Iterator[str]:
        for number, question in enumerate(questions):
            if number == 2:
                write(folder / "u" / "2.parquet", columns(9, ROWS, first=50_000))
            yield work(question)

    with pytest.raises(FileError, match=r"u/2.parquet: the file changed after the job was started"):
        weigh(folder, "o", meddling)
    weigh(folder)
    weigh(folder, "whole")
    assert bytes_of(folder / "o") == bytes_of(folder / "whole")


def test_what_killed_processes_left_in_a_finished_folder_is_removed(folder: Path) -> None:
    weigh(folder, "whole")
    with pytest.raises(UnfinishedError):
        weigh(folder, "o", failing_after(3))
    for name in of(folder / "whole", ""):
        shutil.copy(folder / "whole" / name, folder / "o" / name)
    store.temporary_name(folder / "o" / MANIFEST).write_bytes(b"half")
    weigh(folder)
    assert bytes_of(folder / "o") == bytes_of(folder / "whole")


def watched(job: Callable[[], object], monkeypatch: pytest.MonkeyPatch, act: Callable[[int], None]) -> int:
    """Run a job with something done before each of its operations on the disk; how many there are."""
    count = 0

    def before(operation: str, path: Path) -> None:
        nonlocal count
        count += 1
        act(count)

    with monkeypatch.context() as patch:
        patch.setattr(store, "before", before)
        job()
    return count


@pytest.mark.slow
def test_a_full_disk_at_any_operation_leaves_nothing_behind_in_the_end(
    two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = watched(lambda: weigh(two, str(tmp_path / "o")), monkeypatch, lambda at: None)
    assert count > 20 and bytes_of(tmp_path / "o") == bytes_of(two / "whole")
    for at in range(1, count + 1):

        def fails(now: int, at: int = at) -> None:
            if now == at:
                raise OSError(28, "No space left on device")

        output = tmp_path / str(at)
        with pytest.raises(StorageError):
            watched(lambda output=output: weigh(two, str(output)), monkeypatch, fails)
        weigh(two, str(output))
        assert bytes_of(output) == bytes_of(two / "whole"), f"operation {at}"
        shutil.rmtree(output)


@pytest.mark.kill
@pytest.mark.slow
def test_a_kill_at_any_operation_leaves_nothing_behind_in_the_end(two: Path, tmp_path: Path) -> None:
    from tests.killing import child, killer

    def job(output: Path) -> None:
        weigh(two, str(output))

    count = len(operations_of(job, tmp_path))
    for at in range(1, count + 1):
        output = tmp_path / str(at)
        assert child(output, killer(at), job) == -9
        job(output)
        assert bytes_of(output) == bytes_of(two / "whole"), f"operation {at}"


def operations_of(job: Callable[[Path], None], tmp_path: Path) -> list[str]:
    """All operations of a job on the disk."""
    found: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "before", lambda operation, path: found.append(f"{operation} {path.name}"))
        job(tmp_path / "all")
    return found


def test_a_file_that_is_written_if_absent_announces_what_it_removes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for expected in (True, False):
        found: list[str] = []
        monkeypatch.setattr(store, "before", lambda operation, path, found=found: found.append(operation))
        assert store.write_if_absent(tmp_path / "x", b"content") is expected
        assert found == ["open", "sync", "link", "remove", "sync"] and of(tmp_path, "") == ["x"]


# every row once -------------------------------------------------------------------------------------------------------


def altering(pattern: str, becomes: str) -> Callable[[Any, Sequence[str]], Iterable[str]]:
    """An engine whose answers say something else."""
    return lambda work, questions: (re.sub(pattern, becomes, work(question)) for question in questions)


def test_an_engine_that_loses_or_changes_rows_is_found_out(folder: Path) -> None:
    def losing(work: Any, questions: Sequence[str]) -> Iterable[str]:
        return map(work, questions[1:])

    def changing(work: Any, questions: Sequence[str]) -> Iterator[str]:
        for question in questions:
            answer = work(question)
            yield answer
            yield answer.replace('"rows": 60', '"rows": 61')

    with pytest.raises(StorageError, match="the engine lost files"):
        weigh(folder, "a", losing)
    with pytest.raises(StorageError, match="two attempts at one file"):
        weigh(folder, "b", changing)
    with pytest.raises(StorageError, match=r"rows of the output are missing\n.*300 rows\n.*305, one for each that was read"):
        weigh(folder, "c", altering('"seen": 60', '"seen": 61'))
    with pytest.raises(StorageError, match=r"rows of the output are missing\n.*300 rows in the files"):
        weigh(folder, "d", altering('"(rows|seen)": 60', r'"\1": 61'))


def test_ids_are_unique_across_files(folder: Path) -> None:
    table, repeated = repeat_an_id(folder)
    with pytest.raises(InputError, match=f"ids that occur more than once\n.*{repeated}"):
        weigh(folder)
    pq.write_table(table.set_column(0, "id", pa.array([1, 1, *range(9_000, 9_000 + ROWS - 2)])), folder / "u" / "1.parquet")
    with pytest.raises(InputError, match=r"u/1.parquet: ids that occur more than once"):
        weigh(folder)


def repeat_an_id(folder: Path) -> tuple[pa.Table, int]:
    """Give a row of one file the id of a row of another; the file as it was, and that id."""
    table = pq.read_table(folder / "u" / "1.parquet")
    repeated = pq.read_table(folder / "u" / "3.parquet")["id"][7]
    ids = pa.array([repeated.as_py(), *table["id"].to_pylist()[1:]])
    pq.write_table(table.set_column(0, "id", ids), folder / "u" / "1.parquet")
    return table, repeated.as_py()


def test_what_a_record_says_of_rows_and_ids_is_not_believed(folder: Path) -> None:
    _, repeated = repeat_an_id(folder)
    with pytest.raises(UnfinishedError):
        weigh(folder, "o", failing_after(FILES))
    for number, name in enumerate(of(folder / "o", "_part-")):
        made = made_of((folder / "o" / name).read_bytes())
        assert made is not None
        forged = dataclasses.replace(made, ids=[number * 1000, number * 1000 + 1])
        (folder / "o" / name).write_bytes(sealed.seal(dataclasses.asdict(forged)))
    with pytest.raises(InputError, match=f"ids that occur more than once\n.*{repeated}"):
        weigh(folder)


def test_files_without_rows_have_no_file(folder: Path) -> None:
    empty = pq.read_table(folder / "u" / "0.parquet").slice(0, 0)
    pq.write_table(empty, folder / "u" / "00.parquet")
    weigh_files(paths(folder), folder / "w.parquet", Options())
    record = weigh(folder)
    assert sorted(part["rows"] for part in record["parts"]) == [0, *[ROWS] * FILES]
    assert rows_of(folder / "o").equals(rows_of(folder / "w.parquet"))
    assert weigh(folder) == record


def test_a_folder_with_something_else_in_it_is_refused(folder: Path) -> None:
    (folder / "o").mkdir()
    (folder / "o" / PART).write_text("not ours: no record names it")
    with pytest.raises(ConfigError, match="holds something else"):
        weigh(folder)
    assert bytes_of(folder / "o") != {}
