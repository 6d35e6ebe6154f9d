"""The goals of reliability, proved one by one: value, target, and the command that replays a failure.

python -m tests.reliability                  `make reliability`: at most 15 minutes on two cores; its last line has the time
python -m tests.reliability --nightly        every operation, many more damages and mutants; it resumes
python -m tests.reliability --only verify    goals whose name, or part, has this word
python -m tests.reliability --write          docs/reliability.md, from nightly proofs that were kept; its other rows stay

A nightly goal that holds is kept (see kept.py), and is not proved again until the package or a test changes.
"""

from __future__ import annotations

import argparse
import shlex
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path

from tests.reliability import artefacts, cases, faults, foreign, fuzz, joins, rot, seeded, states, suites, workers
from tests.reliability.hooks import ERRORS
from tests.reliability.jobs import JOBS, OTHERS, TWO_WORKERS, prepare_process
from tests.reliability.kept import Proof, code, commit, keep, kept, machine, newest
from tests.reliability.seeds import READERS
from wdistill.core.signals import die_with_parent

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "reliability.md"
LONGEST = ("all_odd_settings", "flags1", "flags2", "distill-2", "as_a_program and words1")  # tests of environments


@dataclass(frozen=True)
class Goal:
    """One goal: what is tried, and how; `prove` returns how many cases were tried and what went wrong."""

    name: str
    target: str
    prove: Callable[[], tuple[int, list[str]]]
    part: str = ""  # of a goal that is long: a proof of its own, and one row of the page with the others


def goals(nightly: bool, seed: int) -> Iterator[Goal]:
    kinds = {"kill": "SIGKILL", "power cut": "power cut", "disk error": "error of the disk"}
    yield Goal("known bugs put into the code", "every one is caught", partial(seeded.prove, nightly))
    for job in JOBS.values() if nightly else ():
        name = f"SIGKILL, power cut and {len(ERRORS)} errors of the disk, each at every operation of {job.name}"
        yield Goal(name, "same bytes when started again", partial(states.prove, job))
    for job in () if nightly else JOBS.values():
        for fault, words in kinds.items():
            name = f"{words} at {'every' if job.every == 1 else f'every {job.every}th'} operation of {job.name}"
            yield Goal(name, "same bytes when started again", partial(faults.sweep, job, fault, job.every, seed))
    ends = partial(faults.after_the_end, [*JOBS.values(), *OTHERS.values()])
    yield Goal("power cut after the last operation of every job", "nothing is lost, nothing comes back", ends)
    number = 60 if nightly else 3
    for fault, words in kinds.items():
        name = f"{words} at {number} operations of {TWO_WORKERS.name}, theirs and the parent's"
        yield Goal(name, "same bytes when started again", partial(workers.sweep, fault, number, seed, forked=nightly))
    flips, cuts, losses = (200, 50, None) if nightly else (12, 4, 4)
    for gate in rot.GATES.values():
        name = f"{flips} flips, {cuts} cuts and {losses or 'all'} losses of files such as {gate.sample}"
        yield Goal(name, "0 silent changes", partial(rot.prove, gate, flips, cuts, losses, seed))
    catalogue = "the catalogue of 144 faults and bad inputs"
    yield Goal(catalogue, cases.target(nightly), partial(cases.prove_all, nightly))
    others = partial(foreign.prove, 2_000 if nightly else 80, seed)
    yield Goal("files of others under names that we use", "every one stays as it is", others)
    tables = partial(joins.prove, 5_000 if nightly else 250, seed)
    yield Goal("tables in any format, order and number of files", "joined by id, or refused", tables)
    fewer = "" if nightly else f"not ({' or '.join(LONGEST)})"
    odd = partial(suites.prove, ("tests/test_environments.py", "tests/test_jit.py"), "", fewer)
    surroundings = "hostile folders, closed streams, missing libraries, odd settings, damaged caches of compiled code"
    yield Goal(surroundings, "every command works, or says why", odd)
    harm = partial(suites.prove, ("tests/test_hostile.py",), "proof or not proof" if nightly else "not proof")
    yield Goal("files that mean harm", "refused, or read, within 256 MB beyond their size and 5 s", harm)
    size = 50_000 if nightly else 1_200
    target = "0 crashes, hangs, undeclared errors or silent changes"
    for name, reader in READERS.items():
        mutants = reader.nightly if nightly else reader.mutants
        for first in range(0, mutants, size):
            numbers = range(first, min(first + size, mutants))
            prove, part = partial(prove_reader, name, numbers, seed), f"{numbers[0]:,} to {numbers[-1]:,}"
            yield Goal(f"mutants of {reader.words}", target, prove, part)


def prove_reader(reader: str, mutants: range, seed: int) -> tuple[int, list[str]]:
    """Mutants of small files: none may crash, hang, or be read as something else in silence."""
    report = fuzz.run(reader, mutants, seed)
    return len(mutants), [f"{each['what']} ({each['format']}): {each['replay']}" for each in report.failures]


def prove(name: str, part: str, nightly: bool, seed: int) -> Proof:
    """Prove the goal, or the part of a goal, of this name."""
    started = time.monotonic()
    goal = next(goal for goal in goals(nightly, seed) if (goal.name, goal.part) == (name, part))
    tried, failures = goal.prove()
    seconds = round(time.monotonic() - started, 1)
    return Proof(goal.name, goal.part, goal.target, tried, failures, seconds, seed, code(), commit(), machine())


def proof_of(future: Future[Proof], goal: Goal, seed: int) -> Proof:
    """What became of a goal: one whose proof broke down does not hold, and the others go on."""
    try:
        return future.result()
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()] or [""]
        broken = f"the proof broke down: {type(error).__name__}: {lines[0]}"[:500]
        return Proof(goal.name, goal.part, goal.target, 1, [broken], 0.0, seed, code(), commit(), machine())


def replay(goal: str, part: str, nightly: bool, seed: int | str) -> str:
    """The command that proves this goal again, and no other."""
    flags = ["--nightly"] if nightly else []
    return shlex.join(
        ["python", "-m", "tests.reliability", *flags, "--seed", str(seed), "--only", f"{goal}, {part}".rstrip()]
    )


def line(proof: Proof, nightly: bool) -> str:
    name = f"{proof.goal}, {proof.part}" if proof.part else proof.goal
    held, again = proof.tried - len(proof.failures), replay(proof.goal, proof.part, nightly, proof.seed)
    return f"{name}: {held} of {proof.tried} ({proof.target}), {proof.seconds:.0f} s, seed {proof.seed}; {again}"


def row(name: str, parts: list[Goal], proofs: dict[tuple[str, str], Proof]) -> str:
    """One goal of the page: what was tried of all its parts, at which commits."""
    found = [proofs[goal.name, goal.part] for goal in parts if (goal.name, goal.part) in proofs]
    tried = f"{sum(proof.tried for proof in found):,}"
    missing = f"; {len(found)} of {len(parts)} parts are proved" if len(found) < len(parts) else ""
    held = f"{tried} of {tried}{missing}" if found else "not proved yet"
    commits = ", ".join(dict.fromkeys(proof.commit for proof in found))
    seconds = f"{sum(proof.seconds for proof in found):,.0f} s" if found else ""
    seeds = ", ".join(dict.fromkeys(str(proof.seed) for proof in found))
    target = found[-1].target if found else parts[0].target  # as it was proved, with the software that was there
    return f"| {name} | {held} | {target} | {seconds} | {seeds} | {commits} |"


def page(every: Iterable[Goal], proofs: dict[tuple[str, str], Proof], before: str = "") -> str:
    """docs/reliability.md; a goal without a proof that was kept has its row of the page before, proved elsewhere."""
    earlier = {line.split(" | ")[0]: line for line in before.splitlines() if line.count(" | ") == 5}
    shown = [(name, list(parts)) for name, parts in groupby(every, key=lambda goal: goal.name)]
    proved = {name for name, _ in proofs}
    rows = [
        row(name, parts, proofs) if name in proved else earlier.get(f"| {name}", row(name, parts, proofs))
        for name, parts in shown
    ]
    machines = "; ".join(dict.fromkeys(proof.machine for proof in proofs.values())) or machine()
    return "\n".join(
        [
            "# Reliability",
            "",
            *_wrapped(
                "Proved by `python -m tests.reliability --nightly`, and written by `python -m tests.reliability --write`; "
                f"{machines}. Others used the machine, too. Each row has the commit at which it was proved: a row that was "
                "not proved anew keeps the older one."
            ),
            "",
            *_wrapped(
                "This proves a row again, at its commit and with its seed. What fails is printed, each with a command that "
                "tries that case alone."
            ),
            "",
            f"    {replay('WHAT IS TRIED', '', True, 'SEED')}",
            "",
            *_wrapped(
                "Every fault is tried at every operation of every job but one, which is sampled: of distill with two "
                "workers 60 operations are killed, 60 have a power cut, and 60 an error of the disk, which is one of the "
                f"{len(ERRORS)} in turn. They are spread evenly over those of workers and parent, and others for every seed."
            ),
            "",
            *_wrapped(
                "`make reliability` tries fewer of each, and is meant to take 15 minutes on two cores; how long "
                "it took stands in the last line that it prints."
            ),
            "",
            "What is promised about security is in [SECURITY.md](../SECURITY.md).",
            "",
            "| what is tried | held | target | time | seed | commit |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            "## Every file",
            "",
            "Patterns are below the folder of a job; a test walks what all jobs write, and fails on a file without a row.",
            "",
            artefacts.table(),
            "",
            *_wrapped(artefacts.elsewhere()),
            "",
        ]
    )


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)


def unproved(chosen: Iterable[Goal], seed: int) -> list[Goal]:
    """The goals without a proof that was kept with this seed and the code as it is."""
    done = {key for key, proof in newest(kept(), seed).items() if proof.code == code()}
    return [goal for goal in chosen if (goal.name, goal.part) not in done]


def wanted(every: Iterable[Goal], only: str) -> list[Goal]:
    """The goals whose name, or part, has these words."""
    return [goal for goal in every if only in f"{goal.name}, {goal.part}"]


def begin() -> None:
    """Set up a process that proves goals; it ends with the harness."""
    die_with_parent()
    prepare_process()


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(description="Prove the goals of reliability.")
    flags.add_argument("--nightly", action="store_true", help="all of it; goals that are proved at this code are left out")
    flags.add_argument("--only", default="", metavar="WORD")
    flags.add_argument("--seed", type=int, default=0)
    flags.add_argument("--workers", type=int, default=2, metavar="N", help="goals side by side")
    flags.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}, and prove nothing")
    return flags


def main() -> int:
    arguments = parser().parse_args()
    nightly, seed = arguments.nightly, arguments.seed
    if arguments.write:
        PAGE.write_text(page(goals(True, seed), newest(kept(), seed), PAGE.read_text()))
        return 0
    chosen = wanted(goals(nightly, seed), arguments.only)
    rest = unproved(chosen, seed) if nightly else chosen
    started, bad, lost = time.monotonic(), 0, 0
    with ProcessPoolExecutor(arguments.workers, get_context("spawn"), initializer=begin) as pool:
        proving = {pool.submit(prove, goal.name, goal.part, nightly, seed): goal for goal in rest}
        for proof in (proof_of(future, proving[future], seed) for future in as_completed(proving)):
            bad += bool(proof.failures)
            lost += nightly and not proof.failures and not keep(proof)
            print(line(proof, nightly), flush=True)
            for failure in proof.failures[:5]:
                print(f"    {failure}", flush=True)
    if lost:
        print(f"{lost} proofs are not kept: files differ from the commit that is checked out")
    minutes = (time.monotonic() - started) / 60
    done = f"{len(chosen) - len(rest)} of them proved before; {minutes:.1f} minutes; seed {seed}"
    print(f"{len(chosen) - bad} of {len(chosen)} goals hold, {done}")
    return 1 if bad or not chosen else 0
