"""Proofs that are kept, a JSON line each, so that a long run resumes where it stopped and the page has all of them."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
KEPT = ROOT / ".reliability" / "proofs.jsonl"  # not in the repository
CODE = ("wdistill/**/*", "tests/reliability/**/*.py", "tests/*.py")
DIRTY = "-dirty"  # at the end of a commit from which files differ


@dataclass(frozen=True)
class Proof:
    """What was tried of a goal, or of a part of it, and where; the digest of the code tells whether it still holds."""

    goal: str
    part: str
    target: str
    tried: int
    failures: list[str]
    seconds: float
    seed: int
    code: str
    commit: str
    machine: str


@cache
def code() -> str:
    """A digest of the package and of all tests."""
    files = sorted({path for pattern in CODE for path in ROOT.glob(pattern) if path.is_file()})
    digest = hashlib.sha256()
    for path in files:
        if "__pycache__" not in path.parts:
            digest.update(f"{path.relative_to(ROOT)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


@cache
def commit() -> str:
    """The commit that is checked out, and whether files of the package or tests differ from it, or are not in it."""
    head, status = (
        subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()
        for words in (["rev-parse", "--short=7", "HEAD"], ["status", "--porcelain", "--", "wdistill", "tests"])
    )
    return head + DIRTY * bool(status)


def machine() -> str:
    return f"Python {platform.python_version()}, {platform.machine()}, {len(os.sched_getaffinity(0))} cores"


def keep(proof: Proof) -> bool:
    """Keep a proof, and say whether it was kept: what a dirty tree proves, nobody can replay."""
    if proof.commit.endswith(DIRTY):
        return False
    KEPT.parent.mkdir(exist_ok=True)
    with KEPT.open("a") as file:
        file.write(json.dumps(asdict(proof)) + "\n")
    return True


def kept() -> list[Proof]:
    """All that were kept, the oldest first; a line that was cut off is none."""
    lines = KEPT.read_text().splitlines() if KEPT.exists() else []
    return [proof for line in lines if (proof := _read(line))]


def _read(line: str) -> Proof | None:
    try:
        return Proof(**json.loads(line))
    except (ValueError, TypeError):
        return None


def newest(proofs: Iterable[Proof], seed: int) -> dict[tuple[str, str], Proof]:
    """By goal and part, the last that was kept with this seed."""
    return {(proof.goal, proof.part): proof for proof in proofs if proof.seed == seed}
