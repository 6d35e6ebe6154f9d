"""The reliability harness itself: it is red where it should be."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save

from tests.killing import child
from tests.reliability import seeded
from tests.reliability.faults import finish_and_lose
from tests.reliability.hooks import PowerCut
from tests.reliability.jobs import JOBS, prepare_process
from wdistill import debiasing_weight
from wdistill.core import sealed, store
from wdistill.core.errors import FileError
from wdistill.training import export


@pytest.mark.kill
@pytest.mark.parametrize("name", ["data", "joined weigh", "label", "weigh by an engine", "distill"])
def test_what_a_job_has_finished_survives_a_power_cut(tmp_path: Path, name: str) -> None:
    assert finish_and_lose(replace(JOBS[name], run=prepared(JOBS[name].run)), tmp_path / "deep" / "job") == ""


def prepared(run: Callable[[Path], None]) -> Callable[[Path], None]:
    def prepare_and_run(folder: Path) -> None:
        prepare_process()
        folder.parent.mkdir()
        run(folder)

    return prepare_and_run


@pytest.mark.kill
def test_a_power_cut_takes_what_was_not_truly_synced(tmp_path: Path) -> None:
    power, path = PowerCut(), tmp_path / "x"

    def write_and_lose(folder: Path) -> None:
        store.write_bytes(tmp_path / "first", b"1")  # from now on syncs are watched
        os.fsync = lambda descriptor: None  # type: ignore[assignment]
        store.write_bytes(path, b"12345678")
        power.lose()

    assert child(tmp_path, power, write_and_lose) == 0
    assert not path.exists() and (tmp_path / "first").read_bytes() == b"1"


@pytest.mark.kill
def test_a_power_cut_takes_a_link_whose_folder_was_not_synced(tmp_path: Path) -> None:
    power, path = PowerCut(), tmp_path / "x"

    def write_and_lose(folder: Path) -> None:
        store.write_bytes(tmp_path / "first", b"1")
        os.fsync = lambda descriptor: None  # type: ignore[assignment]
        assert store.write_if_absent(path, b"12345678")
        power.lose()

    assert child(tmp_path, power, write_and_lose) == 0
    assert not path.exists() and (tmp_path / "first").read_bytes() == b"1"


def test_numbers_that_are_none_are_not_stored() -> None:
    with pytest.raises(ValueError, match="JSON"):
        sealed.seal({"loss": float("nan")})


def test_no_flipped_bit_of_a_record_is_silently_used() -> None:
    content = {"name": "x", "number": 17}
    whole = sealed.seal(content)
    for at in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[at // 8] ^= 1 << at % 8
        assert sealed.unseal(bytes(damaged)) in (None, content)


def test_files_of_the_same_size_and_other_bytes_are_not_intact(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"12345678")
    file = (8, store.digest_file(path))
    assert store.is_intact(path, file)
    path.write_bytes(b"12345679")
    assert not store.is_intact(path, file)


def test_parameters_of_another_student_are_not_read(tmp_path: Path) -> None:
    for content in (b"12345678", save({"w": torch.ones(2)})):
        (tmp_path / export.PARAMETERS).write_bytes(content)
        with pytest.raises(FileError, match="other bytes than were written"):
            export._read_parameters(tmp_path, {"sha256": {export.PARAMETERS: store.digest(b"another")}})


def test_a_distortion_that_is_no_number_gives_no_weight() -> None:
    assert np.isnan(debiasing_weight(0.5, np.nan))


def test_every_seeded_defect_still_fits_the_code() -> None:
    for defect in seeded.DEFECTS:
        seeded.defective(defect, seeded.ROOT)
    names = [defect.name for defect in seeded.DEFECTS]
    assert len(names) == len(set(names)) >= 36
    edits = [(defect.file, defect.old, defect.new) for defect in seeded.DEFECTS]
    assert len(edits) == len(set(edits)), "two defects are the same"


def test_old_text_that_is_gone_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("a = 1\n")
    check = seeded.pytest_check("tests/test_x.py::test_x")
    assert seeded.defective(seeded.Defect("x", "x.py", "1", "2", check), tmp_path) == "a = 2\n"
    with pytest.raises(AssertionError):
        seeded.defective(seeded.Defect("x", "x.py", "3", "2", check), tmp_path)
