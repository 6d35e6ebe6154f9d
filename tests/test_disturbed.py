"""What the harness collects from a single run is what a process leaves that is truly killed, cut off or refused there."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.killing import child
from tests.reliability.hooks import at_point, hook
from tests.reliability.jobs import JOBS, as_command, inputs, prepare_process
from tests.reliability.states import AsItWas, collect

OWN = re.compile(r"[.][0-9]+[.][0-9a-f]{16}[.]tmp$")  # process and mark in the name of a temporary file


def content(folder: Path) -> dict[str, bytes | None]:
    """Files by name, without what differs from process to process; None for folders and locks."""
    names = {OWN.sub(".tmp", path.relative_to(folder).as_posix()): path for path in sorted(folder.rglob("*"))}
    return {name: None if path.is_dir() or path.name == "lock" else path.read_bytes() for name, path in names.items()}


@pytest.mark.kill
@pytest.mark.slow
@pytest.mark.proof
@pytest.mark.parametrize("name", ["data", "weigh"])
def test_what_is_collected_is_what_a_disturbed_process_leaves(name: str, tmp_path: Path) -> None:
    inputs()

    def run(folder: Path) -> None:
        prepare_process()
        with patch.object(secrets, "token_hex", lambda size: "0" * 2 * size):
            JOBS[name].run(folder)

    job, folder = replace(JOBS[name], run=run), tmp_path / "job"
    found = collect(job, folder, tmp_path / "states")
    chosen = [each for each in found if each.fault in ("kill", "power cut", "EIO") and each.point % 9 == 4]
    assert len(chosen) >= 12 and len({each.state for each in chosen}) > 4
    for each in chosen:
        shutil.rmtree(folder, ignore_errors=True)
        ended = child(folder, hook(each.fault, at_point(each.point), 0), as_command(run))
        assert (each, ended, content(folder)) == (each, each.ended, content(tmp_path / "states" / each.state))


def test_a_folder_is_put_back_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "kept").write_bytes(b"kept")
    with (folder / "open").open("wb", buffering=0) as file:
        file.write(b"1234")
        before = AsItWas(folder, tmp_path / "links")
        shutil.rmtree(folder / "inner")
        os.truncate(folder / "open", 1)
        file.write(b"more")
        (folder / "open").rename(folder / "renamed")
        (folder / "new").mkdir()
        (folder / "new" / "file").touch()
        before.put_back()
        file.write(b"56")
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*")} == {"inner", "inner/kept", "open"}
    assert ((folder / "open").read_bytes(), (folder / "inner" / "kept").read_bytes()) == (b"123456", b"kept")


def test_a_folder_that_was_not_there_goes_again(tmp_path: Path) -> None:
    before = AsItWas(tmp_path / "job", tmp_path / "links")
    (tmp_path / "job" / "inner").mkdir(parents=True)
    before.put_back()
    assert not (tmp_path / "job").exists()
