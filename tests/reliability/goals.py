"""The goals of reliability, proved one by one: value, target, and the command that replays a failure.

python -m tests.reliability                  `make reliability`: at most 15 minutes on two cores
python -m tests.reliability --nightly        every operation, many more mutants
python -m tests.reliability --only verify    goals whose name has this word
python -m tests.reliability --write          docs/reliability.md too
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from tests.reliability import artefacts, cases, faults, foreign, fuzz, joins, rot, seeded, suites, workers
from tests.reliability.jobs import JOBS, TWO_WORKERS, prepare_process

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "reliability.md"
LONGEST = ("all_odd_settings", "flags1", "flags2", "distill-2", "as_a_program and words1")  # tests of environments


@dataclass(frozen=True)
class Goal:
    """One goal: what is tried, and how; `prove` returns how many cases were tried and what went wrong."""

    name: str
    target: str
    prove: Callable[[], tuple[int, list[str]]]


@dataclass(frozen=True)
class Proof:
    goal: str
    target: str
    tried: int
    failures: list[str]
    seconds: float


def goals(nightly: bool, seed: int) -> Iterator[Goal]:
    kinds = {"kill": "SIGKILL", "power cut": "power cut", "disk error": "error of the disk"}
    yield Goal("known bugs put into the code", "every one is caught", partial(seeded.prove, len(seeded.DEFECTS), seed))
    for job in JOBS.values():
        for fault, words in kinds.items():
            every = 1 if nightly else job.every
            name = f"{words} at {'every' if every == 1 else f'every {every}th'} operation of {job.name}"
            yield Goal(name, "same bytes when started again", partial(faults.sweep, job, fault, every, seed))
    ends = partial(faults.after_the_end, JOBS.values())
    yield Goal("power cut after the last operation of every job", "nothing is lost, nothing comes back", ends)
    number = 60 if nightly else 3
    for fault, words in kinds.items():
        name = f"{words} at {number} operations of {TWO_WORKERS.name}, theirs and the parent's"
        yield Goal(name, "same bytes when started again", partial(workers.sweep, fault, number, seed))
    for name, prove in rot.GATES.items():
        yield Goal(f"flips, cuts and losses: {name}", "0 silent changes", partial(prove, 250 if nightly else 60, seed))
    catalogue = "the catalogue of 144 faults and bad inputs"
    yield Goal(catalogue, cases.target(nightly), partial(cases.prove_all, nightly))
    others = partial(foreign.prove, 2_000 if nightly else 80, seed)
    yield Goal("files of others under names that we use", "every one stays as it is", others)
    tables = partial(joins.prove, 5_000 if nightly else 250, seed)
    yield Goal("tables in any format, order and number of files", "joined by id, or refused", tables)
    fewer = "" if nightly else f"not ({' or '.join(LONGEST)})"
    odd = partial(suites.prove, "tests/test_environments.py", "proof", fewer)
    yield Goal("hostile folders, closed streams, missing libraries, odd settings", "every command works, or says why", odd)
    harm = partial(suites.prove, "tests/test_hostile.py", "proof or not proof" if nightly else "not proof")
    yield Goal("files that mean harm", "refused, or read, within 256 MB beyond their size and 5 s", harm)
    mutants = 1_000_000 if nightly else 3_000
    target = "0 crashes, hangs, undeclared errors or silent changes"
    yield Goal("mutants of tables: parquet, npz, npy, csv, jsonl", target, partial(prove_readers, mutants, seed))


def prove_readers(mutants: int, seed: int) -> tuple[int, list[str]]:
    """Mutants of small files of every format: none may crash, hang, or be read as something else in silence."""
    report = fuzz.run(range(mutants), seed)
    return mutants, [f"{each['what']} ({each['format']}): {each['replay']}" for each in report.failures]


def prove(name: str, nightly: bool, seed: int) -> Proof:
    """Prove the goal of this name."""
    started = time.monotonic()
    goal = next(goal for goal in goals(nightly, seed) if goal.name == name)
    tried, failures = goal.prove()
    return Proof(goal.name, goal.target, tried, failures, time.monotonic() - started)


def line(proof: Proof) -> str:
    return f"{proof.goal}: {proof.tried - len(proof.failures)} of {proof.tried} ({proof.target}), {proof.seconds:.0f} s"


def page(proofs: list[Proof], words: str) -> str:
    """docs/reliability.md."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    machine = f"Python {platform.python_version()}, {platform.machine()}, two cores, commit {commit}"
    rows = [f"| {each.goal} | {each.tried - len(each.failures)} of {each.tried} | {each.target} |" for each in proofs]
    return "\n".join(
        [
            "# Reliability",
            "",
            f"Generated by `{words}`; {machine}.",
            "What is promised about security is in [SECURITY.md](../SECURITY.md).",
            "",
            "| what is tried | held | target |",
            "|---|---|---|",
            *rows,
            "",
            "## Every file",
            "",
            "Patterns are below the folder of a job; a test walks what all jobs write, and fails on a file without a row.",
            "",
            artefacts.table(),
            "",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Prove the goals of reliability.")
    parser.add_argument("--nightly", action="store_true")
    parser.add_argument("--only", default="", metavar="WORD")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    arguments = parser.parse_args()
    chosen = [goal.name for goal in goals(arguments.nightly, arguments.seed) if arguments.only in goal.name]
    proving = partial(prove, nightly=arguments.nightly, seed=arguments.seed)
    proofs = []
    with ProcessPoolExecutor(2, get_context("spawn"), initializer=prepare_process) as pool:
        for proof in pool.map(proving, chosen):
            proofs.append(proof)
            print(line(proof), flush=True)
            for failure in proof.failures[:5]:
                print(f"    {failure}", flush=True)
    if arguments.write:
        nightly = " --nightly" if arguments.nightly else ""
        PAGE.write_text(page(proofs, f"python -m tests.reliability{nightly} --write"))
    bad = sum(bool(proof.failures) for proof in proofs)
    print(f"{len(proofs) - bad} of {len(proofs)} goals hold; seed {arguments.seed}")
    return 1 if bad or not proofs else 0
