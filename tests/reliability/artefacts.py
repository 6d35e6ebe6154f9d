"""Every file that we ever write: who writes it, what proves that it is whole, who reads it, and who may remove it.

`python -m tests.reliability.artefacts` prints the table as docs/reliability.md has it; a test walks what all jobs write, and
fails on a file without a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.killing import child


@dataclass(frozen=True)
class Artefact:
    """One kind of file, by a pattern of its path below the folder of a job."""

    pattern: str
    written: str  # the module that writes it
    proof: str  # what tells damage
    read: str  # who reads it
    removed: str  # who may remove it, and when
    elsewhere: str = ""  # the test that damages it, where `make reliability` does not: it may lack what writes it


TRIAL = r"(demo/runs-[0-9a-f]{8}/\w+/trial-\d+|runs/[\w-]+/[\w-]+)/"  # runs of the demo, and of experiments
RUN = f"({TRIAL})?"
TEMPORARY = "a temporary file: never read"
ARTEFACTS = (
    Artefact(
        r"w\.(parquet|pq|npz)|next\.parquet",
        "tables/output.py, cli/advise.py",
        "page checksums (parquet) or CRC (npz); SHA-256 of its content in its sealed record",
        "inspect, verify, users",
        "nobody; replaced by the same job",
    ),
    Artefact(
        r"(w|next)\.csv",
        "tables/output.py, cli/advise.py",
        "nothing: csv has no place for it",
        "users",
        "nobody; replaced by the same job",
    ),
    Artefact(r"w\.(svg|png)", "cli/inspect.py", "nothing: a picture", "users", "nobody; replaced by inspect"),
    Artefact(r"rule\.npz", "weights/saved.py", "CRC of npz", "load", "nobody; replaced by save"),
    Artefact(
        r"w\.\w+\.(parts|answers)/job(\.copy)?\.json",
        "tables/parts.py",
        "sealed, kept twice",
        "weigh, correct, label",
        "the job, at its end",
    ),
    Artefact(
        r"w\.\w+\.parts/part-\d+\.[0-9a-f]+\.parquet",
        "tables/job.py",
        "SHA-256 in job.json",
        "weigh, correct, label",
        "the job, at its end",
    ),
    Artefact(
        r"w/_manifest\.json",
        "tables/manifest.py",
        "sealed",
        "verify, inspect, the job by an engine",
        "nobody",
    ),
    Artefact(
        r"w/part-\d{6}-[0-9a-f]{16}-[0-9a-f]{16}\.parquet",
        "engines/partition.py",
        "SHA-256 in its record and in the manifest, page checksums",
        "users, verify, the job by an engine",
        "the job by an engine, at its end, if a record lists it and the manifest does not",
    ),
    Artefact(
        r"w/_part-\d{6}-[0-9a-f]{16}\.json",
        "engines/partition.py",
        "sealed",
        "the job by an engine, when it resumes",
        "the job by an engine, at its end",
    ),
    Artefact(
        r"tmp/wdistill-\w+/.+",
        "engines/partition.py, engines/correct.py, answers/canonical.py, answers/frames.py",
        TEMPORARY,
        "the process that made it",
        "that process; the system, where it was killed",
    ),
    Artefact(
        r"w\.\w+\.parts/aligned-\d+\.[0-9a-f]+(/rows-\d+)?",
        "tables/join.py",
        "SHA-256 in job.json",
        "weigh",
        "weigh, at its end",
    ),
    Artefact(
        r"w\.\w+\.answers/aligned-tables\.[0-9a-f]+(/(answers|experts|gold)\.parquet)?",
        "answers/canonical.py",
        "SHA-256 in job.json",
        "correct",
        "correct, at its end",
    ),
    Artefact(
        r"w\.\w+\.(parts|answers)/(scratch\.[0-9a-f]+(/(first|other|keys)-\d+)?|output\.[0-9a-f]+)",
        "tables/join.py, output.py",
        TEMPORARY,
        "weigh, in the same process",
        "weigh, at once",
    ),
    Artefact(
        r"(w\.\w+\.(parts|answers)/|imagenet/prepared-9/|originals/|" + TRIAL + ")?lock",
        "core/store.py",
        "none: it holds a name",
        "messages",
        "the job, at its end",
    ),
    Artefact(
        r"(.*/)?generation-\d+\.json",
        "runs/checkpoints.py",
        "sealed; the two newest are kept",
        "all that read runs",
        "the commit after the next",
    ),
    Artefact(
        r"(.*/)?((parameters|chosen|checkpoint-[\d-]+)\.safetensors|initial/\w+\.safetensors)",
        "training/checkpointer.py, prepare.py",
        "SHA-256 in the manifest",
        "distill, export, predictions",
        "the commit after the next",
    ),
    Artefact(
        r"(.*/)?checkpoint-[\d-]+\.\d+-of-\d+\.safetensors",
        "training/sharded.py, a file of every process",
        "SHA-256 in the manifest",
        "distill, on any number of processes",
        "the commit after the next",
        "tests/scale/test_sharded.py::test_a_shard_that_was_damaged_is_named_and_an_older_checkpoint_taken",
    ),
    Artefact(
        r"(.*/)?wdistill_weights\.safetensors",
        "adapters/weights_file.py",
        "SHA-256 of its contents, beside them",
        "RefreshWeights of adapters/transformers.py, when a run is resumed",
        "the trainer, with its checkpoint",
        "tests/test_weights_file.py::test_no_flipped_bit_is_loaded_as_another_weight_or_epoch",
    ),
    Artefact(
        RUN + r"(labels|auxiliary/\w+)/\w+-\d+\.parquet",
        "training/labels.py",
        "SHA-256 in the manifest, page checksums",
        "distill",
        "nobody",
    ),
    Artefact(
        RUN + r"arms/[^/]+/weights/\d+\.(parquet|npz)",
        "training/weigher.py",
        "SHA-256 in the manifest",
        "distill, reports",
        "nobody",
    ),
    Artefact(RUN + r"metrics\.jsonl", "training/run.py", "SHA-256 in the manifest", "users", "nobody"),
    Artefact(
        RUN + r"report\.html",
        "training/run.py",
        "its own digest, at its end",
        "users",
        "distill, when the run goes on",
    ),
    Artefact(
        r"page\.html|demo/report\.html",
        "cli/report.py, cli/digits.py",
        "its own digest, at its end",
        "users",
        "nobody; replaced by the same command",
    ),
    Artefact(
        r"\.inputs/(inputs\.json|[\w.]+\.npy)",
        "training/input_files.py, labels.py",
        "SHA-256 in inputs.json, compared when a run begins or resumes",
        "worker processes; distill, where predictions are too many to hold",
        "distill, at its end, if inputs.json lists it",
    ),
    Artefact(
        r"(data|imagenet/prepared-9)/(train|test)\.((inputs|labels)\.npy|files\.txt)",
        "datasets/prepared.py, pictures.py",
        "SHA-256 in dataset.json, compared at every load",
        "load",
        "nobody; replaced when prepared again",
    ),
    Artefact(
        r"imagenet/prepared-9/(train|test)\.inputs\.(part|progress\.json)",
        "datasets/pictures.py",
        "SHA-256 of every chunk in progress.json, which is sealed",
        "data, when it resumes",
        "data, at its end",
    ),
    Artefact(
        r"(data|imagenet/prepared-9)/dataset\.json",
        "datasets/prepared.py",
        "its own digest",
        "load",
        "data, when prepared again",
    ),
    Artefact(r"(data|imagenet/prepared-9)/owner\.txt", "datasets/prepared.py", "its text", "data", "nobody"),
    Artefact(
        r"originals/[\w.-]+\.bin",
        "datasets/originals.py",
        "the digest that was published",
        "data",
        "nobody",
    ),
    Artefact(
        r"student/(student\.(safetensors|pt2)|README\.md)",
        "training/export.py",
        "SHA-256 in student.json",
        "load_student, users",
        "the next export, if a record lists it",
    ),
    Artefact(r"student/\.?student\.json", "training/export.py", "its own digest", "load_student", "the next export"),
    Artefact(
        r"student/student\.onnx",
        "training/export.py",
        "SHA-256 in student.json",
        "verify, users",
        "the next export, if a record lists it",
        "tests/adapters/test_onnx.py::test_no_damage_to_it_stays_unseen",
    ),
    Artefact(
        r"student\.skops",
        "adapters/skops.py",
        "CRC of zip",
        "load_student of adapters/skops.py, skops",
        "nobody; replaced by save_student",
        "tests/adapters/test_skops.py::test_no_flipped_bit_gives_another_student",
    ),
    Artefact(
        r"student\.md",
        "adapters/skops.py",
        "nothing: a text",
        "users",
        "nobody; replaced by save_student",
        "tests/adapters/test_skops.py::test_a_damaged_card_costs_no_student",
    ),
    Artefact(
        r"results/[\w-]+\.jsonl",
        "experiments/lab/results.py",
        "nothing: each line is text; a torn last line is left out when read, and any other that is no JSON is an error",
        "reproduce, experiments.leaderboard, experiments.confirmation",
        "nobody; lines are added",
        "tests/test_views.py::test_a_torn_last_line_is_left_out_and_gives_way",
    ),
    Artefact(
        r"(results|runs/[\w-]+)/\.[\w.-]+\.lock",
        "core/store.py",
        "none: it is empty",
        "nobody",
        "nobody",
        "tests/test_views.py::test_processes_that_add_at_the_same_time_lose_nothing",
    ),
    Artefact(
        r"runs/models/[\w-]+/trained-by\.json",
        "experiments/lab/trial.py",
        "nothing: what is no JSON is an error that says so",
        "reproduce, for the lines",
        "nobody",
        "tests/test_reproduce.py::test_a_line_says_which_code_trained_its_models",
    ),
    Artefact(
        r"tables/[\w-]+\.md|figures/[\w-]+\.svg",
        "experiments/paper/reproduce.py, experiments.leaderboard, experiments.confirmation",
        "nothing: texts and pictures; those of the repository are compared with the lines by tests",
        "users",
        "nobody; replaced by the same command",
        "tests/test_documents.py::test_the_tables_in_the_repository_are_those_of_the_lines",
    ),
    Artefact(
        r"findings\.json|theory\.html",
        "experiments/theory/measure.py",
        "nothing: a text and a page, for people",
        "users",
        "nobody; replaced by the same command",
        "tests/test_theory_cli.py::test_the_numbers_are_written_whole",
    ),
    Artefact(
        r"(.*/)?[\w.<>-]+\.nb[ic]",
        "weights/_jit.py",
        "SHA-256 at its end",
        "numba",
        "numba",
        "tests/test_jit.py::test_every_flipped_bit_of_the_cache_is_seen",
    ),
    Artefact(
        r"(.*/)?\.[^/]+\.\d+\.[0-9a-f]{16}\.tmp",
        "core/store.py",
        TEMPORARY,
        "nobody",
        "the process that wrote it, or the next one, by its mark",
    ),
)


def row_of(path: str) -> Artefact | None:
    """The row of a path below the folder of a job; folders that only hold such files have none."""
    return next((row for row in ARTEFACTS if re.fullmatch(row.pattern, path)), None)


def table() -> str:
    """As Markdown."""
    head = "| file | written by | proof | read by | removed by |\n|---|---|---|---|---|"
    escaped = [row.pattern.replace("|", "\\|") for row in ARTEFACTS]
    rows = [
        f"| `{name}` | {row.written} | {row.proof} | {row.read} | {row.removed} |"
        for name, row in zip(escaped, ARTEFACTS, strict=True)
    ]
    return "\n".join([head, *rows])


def elsewhere() -> str:
    """What damages the rows that `make reliability` leaves out, in a sentence."""
    tests = list(dict.fromkeys(row.elsewhere.partition("::")[0] for row in ARTEFACTS if row.elsewhere))
    names = ", ".join(f"`{row.pattern}`" for row in ARTEFACTS if row.elsewhere)
    return f"What becomes of damage to {names}, or that they are whole, other tests show: {', '.join(tests)}."


def written_by(log: list[str], folder: Path) -> set[str]:
    """The paths below a folder that appear in a log of operations, one `operation path` a line; folders are left out."""
    lines = [line.split(" ", 1) for line in log]
    names = [Path(path) for operation, path in lines if operation not in ("make", "sync", "remove")]
    return {path.relative_to(folder).as_posix() for path in names if path != folder and path.is_relative_to(folder)}


def written(run: Callable[[Path], None], folder: Path) -> tuple[set[str], set[str]]:
    """What a job writes below a folder, by its operations, and the files that it leaves there."""
    log = folder.with_name(f"{folder.name}.log")
    log.touch()

    def before(operation: str, path: Path) -> None:
        with log.open("a") as file:
            file.write(f"{operation} {path}\n")

    assert child(folder, before, run) == 0
    left = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return written_by(log.read_text().splitlines(), folder), left


if __name__ == "__main__":
    print(table())
