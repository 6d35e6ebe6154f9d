"""What a billion rows take: machines, hours, storage, network and money, from the measured cost of a row.

    python -m benchmarks.billion                      the tables of docs/billion.md
    python -m benchmarks.billion --write              put them there
    python -m benchmarks.billion --core-hour 0.03     with another assumption; every one of them is a flag

What was measured is in results.jsonl (`python -m benchmarks.partitions`); all else are assumptions, printed with the tables.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measuring import GB, RESULTS
from benchmarks.straggling import STEADY, Machines, simulate
from wdistill.core import store
from wdistill.tables.join import BLOCK, FILES, LIMIT

PAGE = Path(__file__).parent.parent / "docs" / "billion.md"
END = "<!-- end -->"
HOUR = 3600.0
SEEDS = range(5)  # of a simulation; the median counts
SIMULATED = "1,000 classes"  # the job whose schedule is simulated
ROWS_A_FILE = (10_000_000, 1_000_000, 100_000)  # in simulations
COUNTS = (100, 1_000, 10_000, 100_000, 1_000_000)  # of files


def _assumed(default: float, meaning: str) -> Any:
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True)
class Assumptions:
    """What was not measured."""

    rows: float = _assumed(1e9, "rows")
    rows_a_file: float = _assumed(1e5, "rows of a file")
    workers: float = _assumed(64, "processes of one thread, each with a core of its own")
    core_hour: float = _assumed(0.05, "price of a core for an hour, in $")
    stored_gb: float = _assumed(0.023, "price of a GB in a store of objects for a month, in $")
    sent_gb: float = _assumed(0.0, "price of a GB from the store to the workers, in $: 0 in one region, some 0.09 out of it")
    requests: float = _assumed(10, "requests to the store for a file")
    thousand_requests: float = _assumed(0.005, "price of a thousand of them, in $")
    megabytes: float = _assumed(100, "MB/s that a worker reads from the store; it computes nothing meanwhile")
    slow: float = _assumed(0.05, "share of attempts that are slow: a Pareto number of times, at least twice")
    tail: float = _assumed(1.5, "exponent of that Pareto distribution")
    slowest: float = _assumed(100, "times that a slow attempt takes at most")
    fail: float = _assumed(0.02, "share of attempts that die, at any point of their time")


@dataclass(frozen=True)
class Costs:
    """What was measured, in seconds and bytes, and where."""

    shapes: dict[str, dict[str, float]]  # of a row, by how rows are stored: seconds, read, written
    start: float  # seconds of a process before its first row
    file: float  # seconds of a file without rows
    driven: dict[str, float]  # of a file, where the job is started: seconds, memory, manifest
    id: float  # seconds
    told: str  # the circumstances

    @classmethod
    def measured(cls) -> Costs:
        """The latest of every figure."""
        known = [line for line in map(json.loads, RESULTS.read_text().splitlines()) if line.get("benchmark") == "partitions"]
        shapes = {line["shape"]: line["of_a_row"] for line in known if line["table"] == 1}
        last = {line["table"]: line for line in known}
        start = float(np.median([line["start"] for line in known if line["table"] == 1 and line["when"] == last[1]["when"]]))
        latest = {(line["table"], line.get("shape")): line for line in known}.values()
        header, loads = last[1], [line["load"][0] for line in latest]
        commits = dict.fromkeys(line["commit"] for line in [*latest][::-1])
        told = f"{header['cpu']}, one thread, load average {min(loads):.0f} to {max(loads):.0f}, seed {header['seed']}"
        named = [f"{each[:7]}{' with changes' if 'dirty' in each else ''}" for each in commits]
        told += f", commit{'s' if len(named) > 1 else ''} {' and '.join(named)}, pyarrow {header['versions']['pyarrow']}"
        driven = last[3]["of_a_file_where_the_job_is_started"]
        return cls(shapes, start, last[2]["of_a_file"]["seconds"], driven, last[4]["of_an_id"]["seconds"], told)


@dataclass(frozen=True)
class Bill:
    """What a job takes, if all workers are busy until its end."""

    core_hours: float
    hours: float
    read: float  # GB
    written: float  # GB
    money: dict[str, float]  # $, by what is paid


def bill(assumed: Assumptions, costs: Costs, shape: str) -> Bill:
    row, files = costs.shapes[shape], assumed.rows / assumed.rows_a_file
    read, written = (assumed.rows * row[name] / GB for name in ("read", "written"))
    busy = files * seconds_of_a_file(assumed, costs, shape) + assumed.workers * costs.start
    alone = files * costs.driven["seconds"]
    money = {
        "cores": (busy + alone) / HOUR * assumed.core_hour,
        "storage": (read + written) * assumed.stored_gb,
        "network": read * assumed.sent_gb,
        "requests": files * assumed.requests / 1000 * assumed.thousand_requests,
    }
    return Bill(busy / HOUR, (busy / assumed.workers + alone) / HOUR, read, written, money)


def seconds_of_a_file(assumed: Assumptions, costs: Costs, shape: str) -> float:
    """Seconds of a worker: reading from the store, and computing."""
    row = costs.shapes[shape]
    return costs.file + assumed.rows_a_file * (row["seconds"] + row["read"] / (assumed.megabytes * 1e6))


# tables ---------------------------------------------------------------------------------------------------------------


def blocks(assumed: Assumptions, costs: Costs) -> dict[str, str]:
    """The tables of the page, by name."""
    return {
        "bill": _bill_table(assumed, costs),
        "assumptions": _table(
            ["flag", "default", "what it is"],
            [
                [f"`--{each.name.replace('_', '-')}`", f"{each.default:,g}", each.metadata["meaning"]]
                for each in fields(assumed)
            ],
        ),
        "schedule": _schedule_table(assumed, costs),
        "files": _files_table(assumed, costs),
        "ids": _ids_text(assumed, costs),
        "measured": f"Measured on: {costs.told}.\n",
    }


def _bill_table(assumed: Assumptions, costs: Costs) -> str:
    lines = []
    for shape, row in costs.shapes.items():
        found = bill(assumed, costs, shape)
        line = [shape, f"{row['seconds'] * 1e6:.2f}", f"{found.core_hours:,.1f}", _time(found.hours * HOUR)]
        line += [f"{found.read:,.0f} GB", f"{found.written:,.1f} GB"]
        paid = ", ".join(f"{name} {amount:,.2f}" for name, amount in found.money.items())
        lines.append([*line, f"${sum(found.money.values()):,.2f} ({paid})"])
    head = ["stored", "processor seconds per million rows", "core-hours, with the wait for the store"]
    return _table([*head, f"with {assumed.workers:g} workers", "read", "written", "money"], lines)


def _schedule_table(assumed: Assumptions, costs: Costs) -> str:
    unsteady = Machines(assumed.slow, assumed.tail, assumed.slowest)
    failing = replace(unsteady, fail=assumed.fail)
    cases = [(STEADY, False), (unsteady, False), (failing, False), (failing, True)]
    lines = []
    for rows in ROWS_A_FILE:
        sized = replace(assumed, rows_a_file=rows)
        count = round(assumed.rows / rows)
        work = [seconds_of_a_file(sized, costs, SIMULATED)] * count
        line = [f"{count:,}", _time(sum(work) / assumed.workers)]
        for machines, copies in cases:
            found = [simulate(work, int(assumed.workers), machines, copies=copies, seed=seed) for seed in SEEDS]
            line.append(_time(float(np.median([each.seconds for each in found]))))
        lines.append(line)
    head = ["files", "never idle", "equal machines", "slow ones", "slow and failing ones", "the same, with copies"]
    return _table(head, lines)


def _files_table(assumed: Assumptions, costs: Costs) -> str:
    lines = []
    for files in COUNTS:
        driven = {name: files * cost for name, cost in costs.driven.items()}
        line = [f"{files:,}", f"{assumed.rows / files:,.0f}", _time(files * costs.file), _time(driven["seconds"])]
        lines.append([*line, _size(driven["memory"]), _size(driven["manifest"])])
    head = ["files", "rows of each", "processor, for the files alone", "where the job is started: processor"]
    return _table([*head, "memory", "manifest"], lines)


def _ids_text(assumed: Assumptions, costs: Costs) -> str:
    """What the check for repeated ids takes."""
    dealt = 8 * (min(LIMIT, assumed.rows) + 4 * min(BLOCK, assumed.rows))  # a block is copied four times
    held = _size(max(dealt, 16 * assumed.rows / FILES))  # afterwards a file is read, and sorted
    seconds, all_of_them = _time(assumed.rows * costs.id), _size(8 * assumed.rows)
    return (
        f"Where ranges of ids overlap, one process compares all of them: {seconds} of the processor, {held} of\n"
        f"memory and {all_of_them} of disk where the job is started, besides reading them once more.\n"
    )


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ["---"] * len(head), *lines))


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * HOUR else f"{seconds / HOUR:.1f} h"


def _size(size: float) -> str:
    return f"{size / 1e6:,.2g} MB" if size < 1e8 else f"{size / GB:,.1f} GB"


def mark(name: str) -> str:
    return f"<!-- {name} made by `python -m benchmarks.billion --write` -->"


def filled(text: str, made: dict[str, str]) -> str:
    """A page with every table in its place."""
    for name, new in made.items():
        place = re.compile(f"{re.escape(mark(name))}\n.*?{re.escape(END)}", re.S)
        text = place.sub(lambda _, name=name, new=new: f"{mark(name)}\n\n{new}\n{END}", text)  # type: ignore[misc]
    return text


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.billion", description="What a billion rows take.")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/billion.md, with the defaults")
    for each in fields(Assumptions):
        name = f"--{each.name.replace('_', '-')}"
        parser.add_argument(name, type=float, default=each.default, help=f"{each.metadata['meaning']}; {each.default:g}")
    given = vars(parser.parse_args())
    write = given.pop("write")
    assumed = Assumptions(**given)
    made = blocks(assumed, Costs.measured())
    if write and assumed == Assumptions():
        store.write_bytes(PAGE, filled(PAGE.read_text(), made).encode())
    for name, text in made.items():
        print(f"{name}\n\n{text}")
    if assumed != Assumptions():
        print("with", {name: value for name, value in asdict(assumed).items() if value != asdict(Assumptions())[name]})


if __name__ == "__main__":
    main()
