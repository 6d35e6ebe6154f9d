"""The catalogue of 144 faults and bad inputs: what each comes to, and what proves it.

A to E and I are bad inputs, F crash points, G disks, H processes. `prove` is a function that provokes the case and checks
what it comes to (the names in `expected`: an error's class, exit N, warning, same, fact); or tests that do so. Some of
these need software that is not everywhere: without it their case is not decided, and is counted as such. Where the program
decides otherwise than one might expect, `why` says so.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

from tests.distilling import undrawn
from tests.reliability import bad_arrays as arrays
from tests.reliability import bad_disks as disks
from tests.reliability import bad_files as files
from tests.reliability import bad_runs as runs
from tests.reliability.outcomes import Failure, noting

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class ProvedBy:
    """Tests, as file::name, that prove a case."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Case:
    number: str
    what: str
    expected: str  # of a function, what its checks see: the names in outcomes.py, with "; " between them
    prove: Callable[[Path], None] | ProvedBy
    also: tuple[str, ...] = ()  # tests that prove more of it
    why: str = ""

    @property
    def tests(self) -> tuple[str, ...]:
        return (*self.prove.names, *self.also) if isinstance(self.prove, ProvedBy) else self.also

    @property
    def is_decided(self) -> bool:
        """Whether a proof of it can be run here."""
        return not isinstance(self.prove, ProvedBy) or any(map(can_run, self.prove.names))


def check(case: Case, folder: Path) -> None:
    """Provoke a case whose proof is a function, and compare what its checks have seen with what is expected."""
    assert callable(case.prove)
    with undrawn(), noting() as noted:
        case.prove(folder)
    if {*noted} != {*case.expected.split("; ")}:
        raise Failure(f"{case.number} came to {'; '.join(dict.fromkeys(noted))} instead of {case.expected}")


def _tests(*names: str) -> ProvedBy:
    return ProvedBy(tuple(f"tests/{name}" for name in names))


def _crash(number: str, what: str) -> Case:
    return Case(number, what, "same bits when started again", _tests(CRASHES))


CRASHES = "test_crashes.py::test_a_run_killed_at_a_point_of_the_catalogue_ends_with_the_same_bits"
RANKS = "scale/test_ranks.py::"
ON_RAY = "scale/test_ray.py::"
ALONE = "tests/scale/"  # tests that run in a network namespace of their own, where nothing else can be reached
SOFTWARE = {f"tests/{ON_RAY}": "ray"}  # by the beginning of a test's name, the module that it needs

CASES = (
    # arrays
    Case("A1", "NaN or infinity among predictions", "InputError; same", arrays.nan_and_infinity),
    Case("A2", "rows that do not sum to 1", "InputError; same; warning", arrays.sums),
    Case("A3", "logits passed as probabilities", "InputError", arrays.logits_as_probabilities),
    Case("A4", "probabilities passed as logits", "warning", arrays.probabilities_as_logits),
    Case("A5", "log-probabilities passed as probabilities", "InputError", arrays.logprobs_as_probabilities),
    Case("A6", "labels out of range, −1 or −100", "InputError", arrays.labels_out_of_range),
    Case("A7", "labels that count from 1", "InputError; fact", arrays.labels_from_one),
    Case("A8", "labels that are floats, bools or strings", "InputError; same", arrays.labels_of_other_types),
    Case("A9", "one-hot or soft gold labels", "InputError; same", arrays.soft_labels),
    Case("A10", "no gold rows", "InputError", arrays.no_validation),
    Case("A11", "one gold row, or fewer than k", "warning; fact", arrays.few_validation_rows),
    Case("A12", "gold rows of one class, or without one", "warning; fact", arrays.missing_classes),
    Case("A13", "a teacher that is right on all gold rows", "warning; same", arrays.teacher_always_right),
    Case("A14", "a teacher that is wrong on all gold rows", "warning; fact", arrays.teacher_always_wrong),
    Case("A15", "a student without loss on the truth: infinite distortion", "warning; fact; same", arrays.loss_of_zero),
    Case("A16", "error 1 and distortion 0: a denominator of 0", "same", arrays.denominator_of_zero),
    Case("A17", "equal distances to neighbours", "same", arrays.tied_distances),
    Case("A18", "equal largest classes", "same", arrays.tied_classes),
    Case("A19", "float16 and bfloat16", "same", arrays.short_floats),
    Case("A20", "a true class of probability 0", "fact", arrays.true_class_without_probability),
    Case("A21", "probabilities of 0 in an entropy", "fact", arrays.entropy_of_zeros),
    Case("A22", "one class, or different numbers of classes", "InputError", arrays.numbers_of_classes),
    Case("A23", "different numbers of rows", "InputError", arrays.lengths),
    Case("A24", "strided, Fortran, big-endian and mapped arrays", "same; fact", arrays.layouts),
    Case("A25", "objects, masks, nulls, sparse matrices", "InputError", arrays.objects_and_masks),
    Case("A26", "classes in another order", "InputError; warning", arrays.order_of_classes),
    Case("A27", "weights of a user's own that are all 0, or negative", "InputError", arrays.weights_of_users),
    Case("A28", "arrays that a call might change", "same; InputError", arrays.inputs_are_left_alone),
    Case("A29", "logits that overflowed in float16", "InputError; same", arrays.overflow_of_float16),
    # files
    Case("B1", "missing, empty or unreadable files, folders", "FileError; fact", files.nothing_to_read),
    Case(
        "B2",
        "files that were cut off",
        "FileError; InputError",
        files.cut_files,
        also=("tests/test_readers.py::test_damage_is_an_error_or_harmless",),
        why="csv has no end mark: cut inside its last number or between rows, it is another whole csv",
    ),
    Case("B3", "a flipped bit in a file of ours", "CheckpointError; exit 3; warning; same", files.flipped_bits),
    Case("B4", "content and extension at odds", "FileError; same", files.other_extensions),
    Case("B5", "pickled objects in an npz", "FileError; fact", files.objects_in_archives),
    Case("B6", "headers that declare 10^12 numbers", "FileError", files.declared_too_much),
    Case("B7", "csv with marks, semicolons, decimal commas, ragged rows", "InputError; same", files.kinds_of_csv),
    Case("B8", "numbers through csv and back", "same", files.csv_round_trip),
    Case("B9", "missing, repeated and renamed columns", "InputError", files.columns_by_name),
    Case("B10", "repeated ids, ids that are null", "InputError", files.repeated_and_missing_ids),
    Case("B11", "ids of another type: 7 and '007'", "InputError; same", files.ids_of_another_type),
    Case("B12", "other ids in one of two tables", "InputError; fact; warning", files.ids_that_differ),
    Case("B13", "the same ids in another order", "same", files.other_order),
    Case("B14", "shards in another order or number", "same", files.other_shards),
    Case("B15", "shards of different types", "InputError", files.shards_of_other_types),
    Case(
        "B16",
        "shards that changed between two starts",
        "ConfigError; StorageError; same",
        files.changed_shards,
        why="distill refuses other data; weigh makes the parts of changed files anew",
    ),
    Case("B17", "a file that grows while it is read", "FileError", files.growing_file),
    Case(
        "B18",
        "10^8 rows, 100 GB, 10^5 shards",
        "memory of a chunk, and few file handles",
        _tests(
            "test_readers.py::test_many_shards_need_few_handles",
            "test_readers.py::test_long_text_is_read_in_blocks",
            "test_cli.py::test_shards_their_number_and_chunking_do_not_matter",
        ),
        why="the memory of 10^7 rows is measured by `make memory`, not by a test",
    ),
    Case(
        "B19",
        "one huge row group",
        "read in pieces, or FileError",
        _tests(
            "test_readers.py::test_one_huge_row_group_is_read_piece_by_piece",
            "test_hostile.py::test_a_parquet_page_that_declares_too_much_is_refused",
        ),
    ),
    Case("B20", "odd names, links in a circle", "FileError; same", files.odd_names),
    Case("B21", "inputs in a folder that must not be written", "same", files.read_only_inputs),
    Case(
        "B22",
        "a remote address",
        "FileError; exit 2",
        files.addresses,
        also=("tests/test_datasets.py::test_a_download_that_ends_early_is_tried_again",),
        why="tables are read from disks of this machine alone; downloads of data sets are tried again",
    ),
    Case("B23", "no unlabeled rows", "InputError; fact", files.no_unlabeled_rows),
    # configuration
    Case("C1", "an unknown key, or a typing error", "ConfigError; exit 2", runs.unknown_keys),
    Case("C2", "settings out of range", "ConfigError; exit 2", runs.out_of_range),
    Case("C3", "settings at odds", "ConfigError; exit 2; fact", runs.conflicts),
    Case(
        "C4",
        "a run resumed with other settings",
        "ConfigError; StorageError; same; fact",
        runs.changed_settings,
        why="more epochs are another run, too: the schedules are functions of their number",
    ),
    Case(
        "C5",
        "a run resumed with another seed, data, classes or version",
        "ConfigError; StorageError; same",
        runs.changed_runs,
        why="there is no fork of a run: another folder is a new one",
    ),
    Case("C6", "a finished run started again", "fact; same", runs.finished_runs),
    Case("C7", "a run resumed in another environment", "StorageError; warning", runs.other_environment),
    Case("C8", "an output folder that holds something else", "ConfigError; same", runs.folder_of_others),
    Case("C9", "YAML tags that run code", "FileError; fact", runs.yaml_tags, why="recipes are TOML"),
    Case("C10", "NaN and infinity in settings and records", "ConfigError; fact", runs.numbers_that_are_none),
    # data sets
    Case("D1", "gold rows that the teacher was trained on", "LeakError; fact", runs.leaks),
    Case(
        "D2",
        "gold rows that are nearly rows of the teacher's training",
        "warning",
        runs.near_duplicates,
        why="inputs are compared exactly; of near duplicates the teacher's certainty tells",
    ),
    Case("D3", "gold rows among the unlabeled ones", "warning; same", runs.gold_in_the_pool),
    Case(
        "D4",
        "unlabeled rows that stand twice",
        "same",
        runs.repeated_rows,
        why="each is a row like any other; how many repeat another is not recorded",
    ),
    Case(
        "D5",
        "a damaged item in the middle of a data set",
        "InputError",
        runs.broken_items,
        also=("tests/test_datasets.py::test_a_damaged_image_in_an_archive_is_named",),
        why="none is skipped: it is named, and the user leaves it out",
    ),
    Case("D6", "gold of other classes than the unlabeled rows", "warning", runs.gold_from_elsewhere),
    Case("D7", "items that are drawn at random", "warning", runs.random_items),
    Case("D8", "a data set that changes its length", "InputError", runs.growing_datasets),
    Case("D9", "fewer rows than a batch, one row alone", "ConfigError; same", runs.few_rows),
    Case(
        "D10",
        "downloads that are cut off or changed, archives with links",
        "FileError; same",
        runs.bad_downloads,
        also=("tests/test_datasets.py::test_a_download_that_ends_early_is_tried_again",),
    ),
    # models
    Case("E1", "a loss that is no number", "NumericalError; fact", runs.loss_that_is_no_number),
    Case("E2", "parameters that are no numbers", "NumericalError; fact", runs.parameters_that_are_no_numbers),
    Case("E3", "a teacher in train mode", "same; fact", runs.teachers_in_train_mode),
    Case("E4", "a model that returns probabilities or a tuple", "ConfigError; fact", runs.outputs_of_another_kind),
    Case("E5", "a model of another number of classes", "InputError", runs.outputs_of_another_width),
    Case("E6", "out of memory in a step", "UnfinishedError; fact", runs.out_of_memory),
    Case(
        "E7",
        "a model of another type or device after resuming",
        "StorageError; ConfigError; fact",
        runs.another_type_after_resuming,
        why="of devices, only that a missing one is refused: there is no GPU here",
    ),
    Case("E8", "parameters of another model", "ConfigError; CheckpointError", runs.parameters_of_another_model),
    Case(
        "E9",
        "an optimizer without state to save",
        "ConfigError; fact",
        runs.optimizers_without_state,
        why="optimizers and schedules are chosen by name, and all of them resume",
    ),
    Case("E10", "a batch whose weights are all 0", "same; fact", runs.weights_of_zero),
    Case("E11", "weights of an earlier epoch", "same", runs.epochs_of_weights),
    Case("E12", "steps that float16 scaling leaves out", "fact; same", runs.overflow_of_the_scale),
    # crash points
    _crash("F1", "killed before the first checkpoint"),
    _crash("F2", "killed inside the teacher's training"),
    _crash("F3", "killed between the teacher's end and the first label"),
    _crash("F4", "killed inside a chunk of labels"),
    _crash("F5", "killed after a chunk of labels, before its manifest"),
    _crash("F6", "killed inside an estimation of weights"),
    _crash("F7", "killed after weights were written, before their manifest"),
    _crash("F8", "killed inside an epoch of the student"),
    _crash("F9", "killed exactly at the end of an epoch"),
    _crash("F10", "killed inside the write of a checkpoint"),
    _crash("F11", "killed after a rename, before its folder is synced"),
    _crash("F12", "killed while old snapshots are removed"),
    _crash("F13", "killed while the report is written"),
    _crash("F14", "killed while it resumes"),
    _crash("F15", "killed three times in one epoch"),
    Case(
        "F16",
        "SIGTERM and Ctrl-C in labels, step, evaluation and save; twice",
        "exit 143 or 130; same bits when started again",
        _tests(
            CRASHES,
            "test_signals.py::test_sigterm_saves_and_the_run_goes_on",
            "test_signals.py::test_ctrl_c_says_how_to_go_on",
            "test_signals.py::test_a_second_signal_does_not_wait",
        ),
    ),
    Case(
        "F17",
        "a worker process that is killed",
        "UnfinishedError, exit 75; no process is left",
        _tests(
            "test_crashes.py::test_a_reader_process_that_is_killed_is_an_unfinished_run",
            "test_workers.py::test_a_broken_pool_is_an_unfinished_run",
            "test_signals.py::test_workers_save_and_die_as_they_should",
        ),
    ),
    Case(
        "F18",
        "a power cut",
        "same bits when started again",
        _tests(CRASHES, "test_seeded.py::test_what_a_job_has_finished_survives_a_power_cut"),
    ),
    _crash("F19", "suspended, and the clock set back"),
    _crash("F20", "killed, and the power gone, right after the end"),
    # disks
    Case(
        "G1",
        "no space, before a run and at any write",
        "StorageError; exit 3; fact; same",
        disks.no_space,
        also=("tests/test_checkpoints.py::test_a_run_with_a_failing_disk_stops_with_our_error_and_goes_on",),
    ),
    Case("G2", "a quota that is used up", "StorageError; exit 3; fact; same", disks.disk_error("EDQUOT", "your quota")),
    Case("G3", "an error of the device", "StorageError; exit 3; fact; same", disks.disk_error("EIO", "check the disk")),
    Case("G4", "a read-only file system, a lost permission", "StorageError; exit 3; fact; same", disks.not_permitted),
    Case("G5", "too many open files", "StorageError; FileError; exit 3; fact; same", disks.too_many_files),
    Case("G6", "a rename from one disk to another", "fact", disks.temporary_files, why="temporary files are on the same"),
    Case(
        "G7",
        "a file system without locks",
        "StorageError",
        disks.no_locks,
        why="that a rename is atomic cannot be asked; it is taken as POSIX has it",
    ),
    Case("G8", "a checkpoint that was removed or moved", "warning; same", disks.removed_checkpoint),
    Case(
        "G9",
        "a memory map on a full disk",
        "StorageError; same",
        disks.maps_have_room,
        why="none is written through but one, whose room is taken before",
    ),
    Case("G10", "temporary files that somebody left", "same; BusyError", disks.stale_files),
    Case("G11", "no inodes left", "same; fact; StorageError", disks.few_files),
    Case(
        "G12",
        "waiting for space",
        "StorageError; same",
        disks.waiting_for_space,
        why="nothing waits: the job ends with exit code 3, and the same command resumes",
    ),
    # processes
    Case("H1", "two processes for one output", "BusyError; exit 5", disks.two_owners),
    Case("H2", "the lock of a process that was killed", "same; fact", disks.lock_of_a_dead_process),
    Case("H3", "a folder that eight make at the same moment", "same", disks.eight_at_once),
    Case(
        "H4",
        "one of several processes raises",
        "all stop with its error",
        _tests(
            "test_workers.py::test_whatever_breaks_a_block_no_process_is_left",
            f"{RANKS}test_an_error_of_one_process_is_told_by_the_first",
        ),
    ),
    Case(
        "H5",
        "one of several processes is killed",
        "all end, and the same command resumes",
        _tests(
            "test_workers.py::test_whatever_breaks_a_block_no_process_is_left",
            "test_signals.py::test_workers_save_and_die_as_they_should",
            f"{RANKS}test_a_killed_process_ends_all_and_any_number_of_processes_resumes",
        ),
    ),
    Case(
        "H6",
        "ranks that find different newest checkpoints",
        "that of the first, which alone looks",
        _tests(f"{RANKS}test_a_killed_process_ends_all_and_any_number_of_processes_resumes"),
    ),
    Case(
        "H7",
        "ranks that make and remove the same folders",
        "only rank 0 does",
        _tests(f"{RANKS}test_the_number_of_processes_changes_no_bit"),
    ),
    Case(
        "H8",
        "a run resumed with another number of processes",
        "same bits",
        _tests(
            "test_distillation.py::test_a_run_goes_on_with_other_workers_and_the_same_bits",
            "test_arms.py::test_two_workers_give_the_same_bits",
            f"{RANKS}test_a_killed_process_ends_all_and_any_number_of_processes_resumes",
        ),
    ),
    Case(
        "H9",
        "rows that cannot be divided by the number of processes",
        "each row once",
        _tests(
            "test_distillation.py::test_streams_give_the_same_rows_with_any_number_of_workers",
            f"{RANKS}test_the_number_of_processes_changes_no_bit",
        ),
    ),
    Case(
        "H10",
        "a Ray task that is tried again",
        "the same bytes, every partition once",
        _tests(f"{ON_RAY}test_a_worker_that_dies_changes_no_byte"),
        why="a worker dies after its file is written, and one partition is asked for twice",
    ),
    Case(
        "H11",
        "blocks that Ray returns in another order",
        "the same bytes",
        _tests("test_engines.py::test_what_an_engine_repeats_or_reorders_changes_no_byte"),
        also=(f"tests/{ON_RAY}test_a_worker_that_dies_changes_no_byte",),
        why="answers of any engine are taken in any order: Ray's own is not decided by us",
    ),
    Case(
        "H12",
        "a Ray worker without memory",
        "tried again",
        _tests(f"{ON_RAY}test_the_command_gives_the_same_bytes_with_a_worker_killed"),
        why="the system and Ray's own watch over memory kill it, so a kill is what is tried; none is truly exhausted",
    ),
    Case(
        "H13",
        "a library that is not installed",
        "exit 2, with what to install",
        _tests("test_environments.py::test_a_missing_library_is_named_with_what_to_install"),
    ),
    Case(
        "H14",
        "any number of reader processes",
        "same bits",
        _tests(
            "test_distillation.py::test_streams_give_the_same_rows_with_any_number_of_workers",
            "test_distillation.py::test_every_form_of_data_gives_the_same_bits",
        ),
        why="none and two are tried",
    ),
    Case(
        "H15",
        "what a killed run leaves in memory",
        "the next start goes on",
        _tests("test_signals.py::test_workers_save_and_die_as_they_should"),
        why="no ports are opened, and what has a name in memory has a random one: it is in nobody's way",
    ),
    Case("H16", "a fork after threads have begun", "same; fact", disks.spawned_processes, why="nothing forks"),
    # harm
    Case("I1", "a pickle in place of a checkpoint", "CheckpointError; FileError; fact", disks.pickled_checkpoints),
    Case(
        "I2",
        "a teacher in a .pt file",
        "exit 2; fact",
        disks.pickled_models,
        also=("tests/test_architecture.py::test_nothing_is_unpickled",),
        why="it is not read: the user's own code loads it",
    ),
    Case(
        "I3",
        "code that an exported student names",
        "ConfigError; fact",
        disks.code_of_others,
        also=("tests/test_distill_cli.py::test_a_students_own_code_from_the_current_folder",),
    ),
    Case(
        "I4",
        "HTML in names and ids",
        "escaped, and nothing is loaded",
        _tests(
            "test_pages.py::test_names_of_users_stay_names",
            "test_pages.py::test_a_page_loads_nothing_and_styles_nothing_in_line",
            "test_pages.py::test_hostile_names_are_inert",
        ),
    ),
    Case("I5", "ids that a spreadsheet runs as formulas", "same; ConfigError", disks.formulas),
    Case(
        "I6",
        "paths in archives that lead elsewhere",
        "InputError; same; fact",
        disks.paths_in_archives,
        also=("tests/test_datasets.py::test_only_plain_files_are_taken_from_an_archive",),
    ),
    Case(
        "I7",
        "archives that unpack without end",
        "FileError",
        disks.bombs,
        also=("tests/test_datasets.py::test_an_archive_takes_no_more_memory_than_the_official_one",),
    ),
    Case("I8", "secrets in the environment", "fact", disks.secrets),
    Case("I9", "a manifest that leads outside", "CheckpointError", disks.manifests_that_lead_outside),
    Case("I10", "terminal escapes in ids", "exit 2; fact", disks.escapes_in_ids),
    Case("I11", "settings and records nested without end", "FileError; CheckpointError", disks.deep_and_long_settings),
    Case("I12", "a run that every user may change", "warning; fact", disks.open_folders),
)


def prove_all(nightly: bool) -> tuple[int, list[str]]:
    """Every case that is decided here, in processes of their own: how many, and which failed, with how to replay each.

    Of the tests that cases name, those of the crash points are run; nightly all whose software is here.
    """
    named = {name for case in CASES for name in case.tests if can_run(name)} if nightly else {f"tests/{CRASHES}"}
    failures = []
    for alone, tests in groupby(sorted({"tests/test_cases.py", *named}, key=_is_alone), key=_is_alone):
        done = subprocess.run([*_pytest(alone), "-q", "-rfE", "--tb=no", *tests], cwd=ROOT, capture_output=True, text=True)
        failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - (.*))?$", done.stdout, re.MULTILINE)
        if done.returncode and not failed:
            failed = [(ALONE if alone else "tests/test_cases.py", (done.stdout + done.stderr)[-300:])]
        failures += [f"{_numbers(test)}: {why or 'failed'}: {_replay(test)}" for test, why in failed]
    return sum(case.is_decided for case in CASES), failures


def can_run(test: str) -> bool:
    """Whether the software that a test needs is installed."""
    return all(find_spec(module) is not None for beginning, module in SOFTWARE.items() if test.startswith(beginning))


def _is_alone(test: str) -> bool:
    return test.startswith(ALONE)


def _pytest(alone: bool) -> list[str]:
    """How tests are started: those of tests/scale without a network, which they refuse."""
    apart = [sys.executable, "-m", "tests.scale.alone"] if alone else []
    return [*apart, sys.executable, "-m", "pytest"]


def _replay(test: str) -> str:
    return f"{'python -m tests.scale.alone ' * _is_alone(test)}python -m pytest '{test}'"


def _numbers(test: str) -> str:
    """The numbers of the cases that a test proves, by its own number or because they name it."""
    name, _, parameter = test.removesuffix("]").partition("[")
    own = [case.number for case in CASES if case.number == parameter]
    return ", ".join(own or [case.number for case in CASES if name in case.tests]) or name


def target(nightly: bool) -> str:
    """What is asked of all cases, and how many are decided elsewhere or, for want of software, not at all."""
    named = [case for case in CASES if isinstance(case.prove, ProvedBy) and case.is_decided]
    elsewhere = sum(f"tests/{CRASHES}" not in case.tests for case in named)
    absent = [case.number for case in CASES if not case.is_decided]
    words = ["right class, exit code and message"]
    words += [] if nightly else [f"{elsewhere} by tests that run elsewhere"]
    words += [f"not decided: {', '.join(absent)}, for want of {_wanting()}"] if absent else []
    return "; ".join(words)


def _wanting() -> str:
    """The modules that are not here."""
    return ", ".join(sorted({module for module in SOFTWARE.values() if find_spec(module) is None}))
