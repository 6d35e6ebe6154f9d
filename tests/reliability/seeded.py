"""Known bugs, put one at a time into a copy of the code: the check that is named must turn red, or it proves nothing.

python -m tests.reliability.seeded                  all of them, two side by side
python -m tests.reliability.seeded --only fsync     those whose name has this word

One known bug of such methods cannot be put in: weights through which the gradient flows. Rules return NumPy arrays, which
carry no graph, and the loop copies them into tensors (training/weigher.py) before the first step.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
COPIED = ("wdistill", "tests", "experiments")
LEFT_OUT = shutil.ignore_patterns("figures", "results")  # compiled code is copied: it is used where the source is the same
PATIENCE = 900.0  # seconds for one check, on a machine that is very busy
RED = 7  # exit code of a sweep that found something; a traceback is 1, and counts for nothing


@dataclass(frozen=True)
class Check:
    """What must catch a defect: words after `python`, and the exit code that says that it did."""

    words: tuple[str, ...]
    red: int


def pytest_check(*tests: str) -> Check:
    """Named tests; 1: they ran, and one failed. No such test, or one that cannot be imported, is another code."""
    return Check(("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header", "--tb=line", *tests), 1)


def sweep(job: str, fault: str, every: int = 1, offset: int = 0) -> Check:
    """Some points of a goal of the harness: see faults.py."""
    return _harness(f"faults.sweep(jobs.JOBS[{job!r}], {fault!r}, {every}, {offset})")


def gate(sample: str, flips: int) -> Check:
    """Some flips of a goal of the harness: see rot.py."""
    return _harness(f"rot.prove(rot.GATES[{sample!r}], {flips}, 0, 0, 0)")


def _harness(call: str) -> Check:
    lines = ["import sys", "from tests.reliability import faults, jobs, rot", "jobs.prepare_process()"]
    lines += [f"tried, failures = {call}", "print(failures[:3])", f"sys.exit({RED} if failures else 0)"]
    return Check(("-c", "; ".join(lines)), RED)


@dataclass(frozen=True)
class Defect:
    """One known bug: in `file`, `old`, which stands there once, becomes `new`."""

    name: str
    file: str
    old: str
    new: str
    check: Check
    others: tuple[Check, ...] = ()  # which must catch it, too, when all is proved

    @property
    def checks(self) -> tuple[Check, ...]:
        return (self.check, *self.others)


@dataclass(frozen=True)
class Outcome:
    name: str
    caught: bool
    why: str  # where it was not
    seconds: float


FINISHED = "tests/test_seeded.py::test_what_a_job_has_finished_survives_a_power_cut"
STOPPED = "tests/test_stage.py::test_a_stop_at_any_step_changes_no_bit"
PARTS = ("parts/part-000000.0.parquet", "parts/aligned-000000.0/rows-000000", "answers/aligned-tables.0/answers.parquet")
EVAL = "tests/test_stage.py::test_estimation_and_accuracies_are_in_eval_mode_and_steps_in_train_mode"

DEFECTS = (
    # the store
    Defect(
        "no fsync of files",
        "wdistill/core/store.py",
        """        before("sync", path)\n        os.fsync(file.fileno())\n""",
        """        before("sync", path)\n""",
        sweep("data", "power cut", 3),
    ),
    Defect(
        "no fsync of folders",
        "wdistill/core/store.py",
        """    try:\n        os.fsync(handle)\n    finally:""",
        """    try:\n        pass\n    finally:""",
        pytest_check(f"{FINISHED}[data]"),
    ),
    Defect(
        "write in place",
        "wdistill/core/store.py",
        """    scratch = temporary or temporary_name(path)""",
        """    scratch = temporary or path""",
        sweep("data", "kill", 2),
    ),
    Defect(
        "an error of the disk is not turned into ours",
        "wdistill/core/store.py",
        """        if isinstance(error, OSError) and not isinstance(error, StorageError):""",
        """        if False:""",
        sweep("data", "disk error", 5),
    ),
    Defect(
        "the lock is shared",
        "wdistill/core/store.py",
        """            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)""",
        """            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)""",
        pytest_check("tests/test_checkpoints.py::test_a_full_disk_does_not_hinder_the_lock"),
    ),
    Defect(
        "sealed records are not compared with their digest",
        "wdistill/core/sealed.py",
        """ if raw[:start] == HEAD + store.digest(text).encode() + MIDDLE else None""",
        "",
        pytest_check("tests/test_seeded.py::test_no_flipped_bit_of_a_record_is_silently_used"),
        (gate(f"w/_part-000000-{'0' * 16}.json", 12),),
    ),
    Defect(
        "NaN is stored in records",
        "wdistill/core/sealed.py",
        """    text = json.dumps(content, allow_nan=False)""",
        """    text = json.dumps(content)""",
        pytest_check("tests/test_seeded.py::test_numbers_that_are_none_are_not_stored"),
    ),
    # tables
    Defect(
        "rows of a joined table are not synced",
        "wdistill/tables/join.py",
        """    store.sync(path)\n""",
        "",
        pytest_check("tests/test_parts.py::test_all_that_a_record_lists_was_synced_before"),
    ),
    Defect(
        "parts are not compared with their digest",
        "wdistill/core/store.py",
        """path.stat().st_size == size and digest_file(path) == sha256""",
        """path.stat().st_size == size""",
        pytest_check("tests/test_seeded.py::test_files_of_the_same_size_and_other_bytes_are_not_intact"),
        tuple(gate(f"w.parquet.{name}", 6) for name in PARTS),
    ),
    Defect(
        "foreign files in the folder of parts are not refused",
        "wdistill/tables/parts.py",
        """    if names - ours or foreign:""",
        """    if foreign:""",
        pytest_check("tests/test_parts.py::test_what_is_not_ours_is_never_removed"),
    ),
    Defect(
        "a job takes the parts of another",
        "wdistill/tables/parts.py",
        """        if record["identity"] == identity:""",
        """        if True:""",
        pytest_check("tests/test_cli.py::test_parts_of_changed_files_are_done_again_and_those_of_other_options_kept"),
    ),
    Defect(
        "a resume ignores changed input files",
        "wdistill/tables/job.py",
        """        if part.stamps != [list(stamp) for stamp in job.stamps[part.start : part.next]]:""",
        """        if False:""",
        pytest_check("tests/test_cli.py::test_parts_of_changed_files_are_done_again_and_those_of_other_options_kept"),
    ),
    Defect(
        "tables without ids are joined by position",
        "wdistill/tables/join.py",
        """            if joined or ids:""",
        """            if False:""",
        pytest_check("tests/test_cli.py::test_an_npz_without_ids_is_never_joined_by_position"),
    ),
    Defect(
        "joined rows in the order of the other table",
        "wdistill/tables/join.py",
        """    table = table[np.argsort(table[:, 0])]\n""",
        "",
        pytest_check("tests/test_cli.py::test_separate_tables_in_any_order_are_joined_by_id"),
    ),
    Defect(
        "ids that occur twice are not seen",
        "wdistill/tables/join.py",
        """        if not len(suspects):""",
        """        if len(suspects) < 2:""",
        pytest_check("tests/test_cli.py::test_many_keys_spill_to_disk_and_still_find_the_duplicate"),
    ),
    Defect(
        "keys that were spilled before are lost",
        "wdistill/tables/join.py",
        """fresh=not self._spilled)""",
        """fresh=True)""",
        pytest_check("tests/test_cli.py::test_many_keys_spill_to_disk_and_still_find_the_duplicate"),
    ),
    Defect(
        "pages of the output carry no checksums",
        "wdistill/tables/output.py",
        """write_page_checksum=True, **writing(schema))""",
        """write_page_checksum=False, **writing(schema))""",
        pytest_check("tests/test_parts.py::test_pages_of_the_output_carry_checksums"),
    ),
    Defect(
        "partitions that were made are not compared with their digest",
        "wdistill/engines/partition.py",
        """store.is_intact(place.local(listed.file, scratch), (listed.size, listed.sha256))""",
        """place.local(listed.file, scratch).stat().st_size == listed.size""",
        gate(f"w/part-000000-{'0' * 16}-{'0' * 16}.parquet", 12),
    ),
    # weights
    Defect(
        "ties at the k-th distance are not shared",
        "wdistill/weights/neighbors.py",
        """below + (left / many)[:, None] * (tied @ values)""",
        """below + tied @ values""",
        pytest_check("tests/test_neighbors.py::test_ties_share_the_places_left"),
    ),
    Defect(
        "no number gives full weight",
        "wdistill/weights/equations.py",
        """np.maximum(0.0, d - 1.0)""",
        """np.fmax(0.0, d - 1.0)""",
        pytest_check("tests/test_seeded.py::test_a_distortion_that_is_no_number_gives_no_weight"),
    ),
    Defect(
        "stored rules are unpickled",
        "wdistill/core/npy.py",
        """    _check(header, size, kinds)
    with opened() as stream:
""",
        """    if header.dtype.kind == "O":
        return npy_format.read_array(opened(), allow_pickle=True)
    _check(header, size, kinds)
    with opened() as stream:
""",
        pytest_check("tests/test_states.py::test_pickles_are_refused_and_not_run"),
    ),
    # runs
    Defect(
        "checkpoints are not compared with their digest",
        "wdistill/runs/checkpoints.py",
        """        bad = [name for name, file in files if not store.is_intact(folder / name, file)] if""",
        """        bad = [name for name, _ in files if not (folder / name).is_file()] if""",
        pytest_check("tests/test_checkpoints.py::test_a_finished_run_that_was_damaged_mends_itself"),
    ),
    Defect(
        "the manifest comes before its files",
        "wdistill/runs/checkpoints.py",
        """            store.write_bytes(self.folder / name, content)
        for name, (path, _) in unnamed.items():
            store.rename(path, self.folder / name)
        kept = {name: file for name, file in self.snapshot.files.items() if name not in drop}
        listed = {**kept, **{name: (len(content), store.digest(content)) for name, content in files.items()}}
        listed |= {name: file for name, (_, file) in unnamed.items()}
        new = Snapshot(self._next_number(), state, listed)
        store.write_bytes(self.folder / _manifest(new.number), _to_bytes(new))
""",
        """            pass
        for name, (path, _) in unnamed.items():
            store.rename(path, self.folder / name)
        kept = {name: file for name, file in self.snapshot.files.items() if name not in drop}
        listed = {**kept, **{name: (len(content), store.digest(content)) for name, content in files.items()}}
        listed |= {name: file for name, (_, file) in unnamed.items()}
        new = Snapshot(self._next_number(), state, listed)
        store.write_bytes(self.folder / _manifest(new.number), _to_bytes(new))
        for name, content in files.items():
            store.write_bytes(self.folder / name, content)
""",
        pytest_check("tests/test_checkpoints.py::test_the_manifest_comes_last_and_nothing_goes_before_it"),
    ),
    Defect(
        "files of others in a run are replaced",
        "wdistill/runs/checkpoints.py",
        """            if path.is_symlink() or not same:""",
        """            if False:""",
        pytest_check("tests/test_checkpoints.py::test_a_file_of_somebody_else_is_not_replaced"),
    ),
    # training
    Defect(
        "the weighted loss is divided by the sum of weights",
        "wdistill/training/losses.py",
        """weights.to(losses.dtype)) / len(weights)""",
        """weights.to(losses.dtype)) / weights.sum()""",
        pytest_check("tests/test_losses.py::test_the_weighted_loss_is_the_mean_of_weight_times_loss"),
    ),
    Defect(
        "predictions in train mode",
        "wdistill/training/predict.py",
        """    training, device = model.training, device_of(model)\n    model.eval()\n""",
        """    training, device = model.training, device_of(model)\n""",
        pytest_check(EVAL),
    ),
    Defect(
        "the order of batches depends on the global generator",
        "wdistill/training/randomness.py",
        """torch.randperm(n, generator=torch.Generator().manual_seed(key))""",
        """torch.randperm(n)""",
        pytest_check(STOPPED),
    ),
    Defect(
        "augmentation depends on no key",
        "wdistill/training/augmentation.py",
        """np.random.default_rng(seed_key)""",
        """np.random.default_rng()""",
        pytest_check("tests/test_augmentation.py::test_the_key_decides_and_the_global_generators_do_not"),
    ),
    Defect(
        "a checkpoint is one step early",
        "wdistill/training/checkpointer.py",
        """        record = {**asdict(state), "epochs": epochs,""",
        """        record = {**asdict(state), "step": max(0, state.step - 1), "epochs": epochs,""",
        pytest_check(STOPPED),
    ),
    Defect(
        "the learning rate is that of the step after",
        "wdistill/training/optimizer.py",
        """self.set_rate(self.rate(stage, epoch, step, steps))""",
        """self.set_rate(self.rate(stage, epoch, step + 1, steps))""",
        pytest_check("tests/test_stage.py::test_the_loop_does_what_the_decisions_say"),
    ),
    Defect(
        "a resumed training forgets its weights",
        "wdistill/training/loop.py",
        """            if member.state.refreshes and member.stage.restore:""",
        """            if False:""",
        pytest_check(STOPPED),
    ),
    Defect(
        "weights are refreshed one epoch early",
        "wdistill/training/stage.py",
        """state.epoch % (self.every or 1) == 0""",
        """(state.epoch + 1) % (self.every or 1) == 0""",
        pytest_check("tests/test_stage.py::test_weights_are_estimated_before_the_first_epoch_and_after_every_second"),
    ),
    Defect(
        "a loss that is not finite is stepped on",
        "wdistill/training/loop.py",
        """        if not math.isfinite(loss):""",
        """        if False:""",
        pytest_check(
            "tests/test_stage.py::test_a_loss_that_is_not_finite_stops_before_the_step_and_keeps_the_last_good_state"
        ),
    ),
    Defect(
        "the teacher's table is read by position",
        "wdistill/training/teacher_table.py",
        """enumerate(split.ids.tolist())""",
        """enumerate(sorted(split.ids.tolist()))""",
        pytest_check("tests/test_distillation.py::test_a_table_gives_the_same_bits_in_any_form_and_order"),
    ),
    Defect(
        "an exported student is not compared with its digest",
        "wdistill/training/export.py",
        """        if store.digest(content) == description["sha256"].get(PARAMETERS):""",
        """        if True:""",
        pytest_check("tests/test_seeded.py::test_parameters_of_another_student_are_not_read"),
        (gate("student/student.safetensors", 6),),
    ),
    # data and the command line
    Defect(
        "prepared arrays are not compared with their digests",
        "wdistill/datasets/prepared.py",
        """    _check_files(folder, manifest)\n    try:""",
        """    try:""",
        pytest_check("tests/test_datasets.py::test_what_is_damaged_is_not_used_and_is_prepared_again_once_it_is_removed"),
        (gate("data/train.inputs.npy", 12),),
    ),
    Defect(
        "images that were decoded are not compared with their digests",
        "wdistill/datasets/pictures.py",
        """            if store.digest(content) != expected:""",
        """            if not content:""",
        gate("imagenet/prepared-9/train.inputs.part", 12),
    ),
    Defect(
        "errors end with exit code 0",
        "wdistill/cli/entry.py",
        """        return error.exit_code\n""",
        """        return 0\n""",
        pytest_check("tests/test_cli.py::test_no_space_is_an_error_of_ours_and_loses_nothing"),
    ),
)


def defective(defect: Defect, root: Path) -> str:
    """The source with the defect; an error where the old text does not stand there exactly once."""
    text = (root / defect.file).read_text()
    assert text.count(defect.old) == 1, f"{defect.name}: the old text occurs {text.count(defect.old)} times in {defect.file}"
    changed = text.replace(defect.old, defect.new)
    compile(changed, defect.file, "exec")
    return changed


def run(check: Check, defect: Defect | None) -> tuple[int | None, str]:
    """Run a check on a copy of the code, with a defect or as it is; its exit code, None if it took too long, and words."""
    with tempfile.TemporaryDirectory(prefix="seeded-") as place:
        copy = Path(place) / "copy"
        for name in COPIED:
            shutil.copytree(ROOT / name, copy / name, ignore=LEFT_OUT)
        shutil.copy(ROOT / "pyproject.toml", copy)
        if defect:
            (copy / defect.file).write_text(defective(defect, copy))
        environment = {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1", "TMPDIR": place}
        command = [sys.executable, *check.words]
        try:
            done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            return None, f"more than {PATIENCE:.0f} s"
        lines = (done.stdout + done.stderr).strip().splitlines()
        return done.returncode, lines[-1] if lines else ""


def attempt(defect: Defect) -> Outcome:
    """Whether every check of it turns red."""
    started, missed = time.monotonic(), list[str]()
    for check in defect.checks:
        code, words = run(check, defect)
        missed += [] if code == check.red else [f"the check ended with {code}: {words}: {check.words[-1]}"]
    return Outcome(defect.name, not missed, "; ".join(missed), time.monotonic() - started)


def without(defects: Sequence[Defect]) -> list[Check]:
    """The checks of defects, all tests in one: without a defect they are green, or red says nothing."""
    checks = dict.fromkeys(check for defect in defects for check in defect.checks)
    tests = [check.words[-1] for check in checks if check.red == 1]
    others = [check for check in checks if check.red == RED]
    return [*([pytest_check(*dict.fromkeys(tests))] if tests else []), *others]


def attempts(defects: Sequence[Defect]) -> Iterator[Outcome]:
    """First the code as it is, then every defect; two side by side."""
    with ThreadPoolExecutor(2) as pool:
        started = time.monotonic()
        green = list(pool.map(lambda check: run(check, None), without(defects)))
        wrong = [f"ended with {code}: {words}" for code, words in green if code != 0]
        if wrong:
            yield Outcome("no defect", False, f"a check is red without one, {wrong[0]}", time.monotonic() - started)
        yield from pool.map(attempt, defects)


def prove(every_check: bool) -> tuple[int, list[str]]:
    """All defects, each by its first check or by every one: how many were tried, and those that are not caught."""
    chosen = DEFECTS if every_check else [replace(defect, others=()) for defect in DEFECTS]
    replay = "python -m tests.reliability.seeded --only"
    missed = [outcome for outcome in attempts(chosen) if not outcome.caught]
    return len(chosen), [f"not caught, {outcome.why}: {replay} {outcome.name!r}" for outcome in missed]


def main() -> int:
    parser = argparse.ArgumentParser(description="Put known bugs into a copy of the code: every one must be caught.")
    parser.add_argument("--only", default="", metavar="NAME")
    chosen = [defect for defect in DEFECTS if parser.parse_args().only in defect.name]
    missed = 0
    for outcome in attempts(chosen):
        missed += not outcome.caught
        words = "caught" if outcome.caught else f"NOT CAUGHT ({outcome.why})"
        print(f"{outcome.name}: {words}, {outcome.seconds:.0f} s", flush=True)
    print(f"{max(0, len(chosen) - missed)} of {len(chosen)} seeded defects are caught")
    return 0 if chosen and not missed else 1


if __name__ == "__main__":
    sys.exit(main())
