"""What all benchmarks share: contenders that take turns, tables, and the file of results."""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

import wdistill
from wdistill.core import store
from wdistill.core.threads import threads

SEED = 20250711
ROUNDS, SLOW_ROUNDS, SLOW = 5, 3, 5.0  # a peer that takes more than SLOW seconds has fewer rounds
RESULTS = Path(__file__).with_name("results.jsonl")
GB = 1e9
THREADS = threads()
PACKAGES = ("numpy", "numba", "torch", "scikit-learn", "scipy", "pykdtree")

console = Console(width=150)
records: list[dict[str, Any]] = []


def say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def race(
    contenders: dict[str, Callable[[], Any]],
    summary: Callable[[list[float]], float] = statistics.median,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[dict[str, float], dict[str, Any]]:
    """Median seconds (or another summary) of every contender, taking turns, and what each returned in the warm-up."""
    returned, times, rounds = {}, {name: [] for name in contenders}, {}
    for name, run in contenders.items():
        start = time.perf_counter()
        returned[name] = run()
        slow = name != "wdistill" and time.perf_counter() - start > SLOW
        rounds[name] = SLOW_ROUNDS if slow else ROUNDS
        say(f"  warmed up: {name}")
    for turn in range(ROUNDS):
        for name, run in contenders.items():
            if turn < rounds[name]:
                start = clock()
                run()
                times[name].append(clock() - start)
    for name, each in times.items():
        say(f"  {name}: {' '.join(f'{seconds:.3f}' for seconds in each)} s")
    return {name: summary(each) for name, each in times.items()}, returned


def verdict(met_target: bool, met_goal: bool = False) -> str:
    return "[green]goal met[/]" if met_goal else "[green]target met[/]" if met_target else "[red]target missed[/]"


def table(title: str, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    shown = Table(*columns, title=title, title_justify="left", box=box.SIMPLE)
    for row in rows:
        shown.add_row(*row)
    console.print(shown)


def keep(number: int, **figures: Any) -> None:
    records.append({"table": number, **figures})


def memory(field: str) -> float:
    """Bytes by that name in /proc/meminfo."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(float(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def git(*arguments: str) -> str:
    found = subprocess.run(["git", *arguments], cwd=RESULTS.parent, capture_output=True, text=True)
    return found.stdout.strip() if found.returncode == 0 else "unknown"


def circumstances(quick: bool, packages: Iterable[str] = PACKAGES) -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    changed = git("status", "--porcelain", "--", ":/", f":(exclude){RESULTS.name}")
    return {
        "when": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "commit": git("rev-parse", "HEAD") + (" (dirty)" if changed else ""),
        "cpu": next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown"),
        "threads": THREADS,
        "memory_gb": round(memory("MemTotal") / GB, 1),
        "load": [round(each, 2) for each in os.getloadavg()],
        "versions": {"python": sys.version.split()[0], **{name: version(name) for name in packages}},
        "seed": SEED,
        "quick": quick,
    }


def append(header: dict[str, Any]) -> None:
    """Add what was measured since the last call to the results."""
    lines = "".join(json.dumps(header | record) + "\n" for record in records)
    records.clear()
    store.write_bytes(RESULTS, (RESULTS.read_bytes() if RESULTS.exists() else b"") + lines.encode())


def main(program: str, about: str, tables: Mapping[int, Callable[[int], None]]) -> None:
    """The command line of a benchmark: make the tables that were asked for, and keep every figure."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=about)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the rows: to see that it runs")
    parser.add_argument("--only", default=",".join(map(str, tables)), help="tables to make, with commas between")
    options = parser.parse_args()
    warnings.simplefilter("ignore", wdistill.WdistillWarning)
    header = circumstances(options.quick)
    for name, value in header.items():
        console.print(f"{name:>10}  {value}", highlight=False)
    for number in sorted({int(each) for each in options.only.split(",")}):
        tables[number](20 if options.quick else 1)
        gc.collect()
        append(header)
