"""Results as lines: one JSON object for every trial, added to a file by any number of processes, grouped by budget."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wdistill.core import checks, store
from wdistill.core.errors import unreadable
from wdistill.core.settings import to_json
from wdistill.runs.recipe import from_json

Line = dict[str, Any]
Key = tuple[int, int, int | None, str]  # number of labels, trial, repeat, budget and data as JSON
Measure = Literal["best", "final", "chosen"]  # "best": the max on test over the epochs, as the paper reports it
Number = tuple[float, float | None]  # of the paper: mean and ± in %, as printed
Paper = Mapping[str, Mapping[int, Number]]  # arm, or "teacher" → number of labels → number
NEEDED = ("experiment", "labels", "trial", "repeat", "budget", "paper_budget", "data", "arms")  # by all that reads a line
PRECISION = "float32"  # of a budget that names none

NOT_LEARNT = ("device", "threads", "workers", "checkpoint_seconds", "seed", "rule")  # of a recipe: they change no result
SAME = ("environment", "teacher", "student")  # of two lines whose arms may be compared, beside their code
BY_ARM = ("arms", "settings", "rules")


def read(path: Path, needed: Sequence[str] = NEEDED) -> list[Line]:
    """The lines of a file, none where there is no file yet. A last line that was torn is left out, with a warning.

    `needed`: what every line must have.
    """
    *ended, last = _content(path).split(b"\n")
    lines = [_line(text, needed, f"{path}, line {number}") for number, text in enumerate(ended, 1) if text.strip()]
    if _torn(last):
        checks.warn(f"{path}, line {len(ended) + 1}: torn, and left out")
    elif last.strip():
        lines.append(_line(last, needed, f"{path}, line {len(ended) + 1}"))
    return lines


def append(path: Path, line: Line) -> None:
    """Add a line. Other processes that add to the same file wait; a torn last line gives way."""
    with store.waiting_for(path):
        kept, mark, last = _content(path).rpartition(b"\n")
        if last.strip() and not _torn(last):
            mark, kept = b"\n", kept + mark + last
        store.write_bytes(path, kept + mark + json.dumps(line, ensure_ascii=False).encode() + b"\n")


def key(line: Line) -> Key:
    """What tells a trial from others: its number, its budget, its data and its recipe."""
    return line["labels"], line["trial"], line["repeat"], json.dumps([line["budget"], *_learnt(line)], sort_keys=True)


def together(lines: Iterable[Line]) -> dict[Key, Line]:
    """One line for every trial, as it came out last, with the arms that were run before with the same models and code.

    Arms of other models or code cannot stand beside the last ones; they are left out, with a warning.
    """
    by_key: dict[Key, Line] = {}
    for line in lines:
        before = by_key.get(key(line))
        if before is not None and _comparable(before, line):
            line = {**line, **{name: {**before.get(name, {}), **line[name]} for name in BY_ARM if name in line}}
        elif before is not None and (lost := [name for name in before["arms"] if name not in line["arms"]]):
            place = f"{line['experiment']}, {line['labels']} labels, trial {line['trial']}"
            checks.warn(f"{place}: left out, for they were run with other code or models: {', '.join(lost)}")
        by_key[key(line)] = line
    return by_key


def _comparable(before: Line, line: Line) -> bool:
    """Whether arms of two lines of a trial may stand side by side: the same code, as far as it is known, and models."""
    code = "code" if "code" in before and "code" in line else "commit"
    return all(before.get(name) == line.get(name) for name in (code, *SAME))


def budgets(lines: Iterable[Line]) -> list[list[Line]]:
    """Lines that may stand in one table together, those that cost most first.

    They have the same budget, data and recipe, the same settings of every arm that both have, and the same thing varied
    between trials. All unlabeled rows are one budget, though their number depends on the number of labels.
    """
    groups: list[tuple[str, list[Line]]] = []
    for line in together(lines).values():
        budget, paper = line["budget"], line["paper_budget"]
        rows = "all" if paper and budget.get("unlabeled") == paper.get("unlabeled") else budget.get("unlabeled")
        varied = "split" if line["repeat"] is None else "all"
        shared = json.dumps([{**budget, "unlabeled": rows}, *_learnt(line), varied], sort_keys=True)
        mine = [group for name, group in groups if name == shared and all(same_arms(line, other) for other in group)]
        if mine:
            mine[0].append(line)
        else:
            groups.append((shared, [line]))
    return sorted((group for _, group in groups), key=lambda group: (-_rows_seen(group[0]), -len(group)))


def same_arms(line: Line, other: Line) -> bool:
    """Whether the arms that two lines share have the same settings and rules, as far as these are known."""
    pairs = [(line.get(part, {}), other.get(part, {})) for part in ("settings", "rules")]
    return all(_plain(ours[name]) == _plain(theirs[name]) for ours, theirs in pairs for name in ours if name in theirs)


def _learnt(line: Line) -> list[Any]:
    """Data and recipe, as far as they decide what is learnt; what an older line does not say has its default."""
    data = {name: value for name, value in line["data"].items() if name != "sha256"}
    recipe = to_json(from_json(line.get("recipe", {}))) if line.get("recipe") else {}
    return [data, {name: value for name, value in recipe.items() if name not in NOT_LEARNT}]


def _plain(settings: Any) -> Any:
    """As JSON gives it back."""
    return json.loads(json.dumps(settings))


def labels_of(group: Iterable[Line]) -> list[int]:
    """The numbers of labels that there are trials of."""
    return sorted({line["labels"] for line in group})


def trials(group: Iterable[Line], labels: int) -> list[Line]:
    """The lines of one number of labels, always in the same order."""
    return sorted(
        (line for line in group if line["labels"] == labels), key=lambda line: (line["repeat"] or 0, line["trial"])
    )


def accuracies(group: Iterable[Line], labels: int, model: str, measure: Measure = "best") -> list[float | None]:
    """Test accuracies by trial, None where one is not known; of an arm, or of "teacher" and "student" as they were used."""
    return [accuracy(line, model, measure) for line in trials(group, labels)]


def accuracy(line: Line, model: str, measure: Measure = "best") -> float | None:
    used = line.get(model) if model in ("teacher", "student") else None
    value = used.get("test") if used is not None else line["arms"].get(model, {}).get(measure)
    return None if value is None or math.isnan(value) else float(value)


def arms_of(lines: Iterable[Line]) -> list[str]:
    """The names of all arms, in the order they first occur."""
    return list(dict.fromkeys(name for line in lines for name in line["arms"]))


def of_labels(lines: Sequence[Line], labels: int) -> list[Line]:
    """The lines of one number of labels; where there are none, all."""
    return [line for line in lines if line["labels"] == labels] or list(lines)


def printed(table: str) -> Paper:
    """The paper's numbers, typed as in its tables: a row of numbers of labels, then one row an arm; 90.41±0.12, or 87.31."""
    (_, *labels), *rows = (row.split() for row in table.strip().splitlines())
    return {arm: {int(at): _number(cell) for at, cell in zip(labels, cells, strict=True)} for arm, *cells in rows}


def _number(cell: str) -> Number:
    mean, _, deviation = cell.partition("±")
    return float(mean), float(deviation) if deviation else None


def paper_gap(paper: Paper, arm: str, base: str, labels: int) -> float | None:
    """Of the paper's means, in points; none where the same numbers stand beside both arms."""
    ours, theirs = paper.get(arm, {}), paper.get(base, {})
    return ours[labels][0] - theirs[labels][0] if ours != theirs and labels in ours and labels in theirs else None


def _rows_seen(line: Line) -> int:
    """By a student, in all epochs of an arm."""
    budget = line["budget"]
    return int((budget.get("epochs") or 0) * (line["labels"] + (budget.get("unlabeled") or 0)))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        remedy = "correct the path, or its permissions"
        raise unreadable("the results cannot be read", path, error, "a file of JSON lines", remedy) from None


def _torn(last: bytes) -> bool:
    """Whether what follows the last end of line is the beginning of a line that was never finished."""
    try:
        return bool(last.strip()) and not isinstance(json.loads(last), dict)
    except (ValueError, RecursionError):
        return True


def _line(text: bytes, needed: Sequence[str], where: str) -> Line:
    try:
        line = json.loads(text)
        problem = "" if isinstance(line, dict) else f"a {type(line).__name__}"
    except (ValueError, RecursionError) as error:
        line, problem = {}, str(error)
    missing: Sequence[str] = [] if problem else [name for name in needed if name not in line]
    if problem or missing:
        found, expected = problem or f"no {', '.join(missing)}", f"one JSON object with {', '.join(needed)}"
        remedy = "restore the file, or take that line out: its trial is then run again"
        raise unreadable("not a line of results", where, found, expected, remedy)
    return dict(line)


def packed(right: NDArray[np.bool_]) -> str:
    """A bit for every row, in hexadecimal."""
    return np.packbits(right).tobytes().hex()


def unpacked(text: str, rows: int) -> NDArray[np.bool_]:
    """The rows of `packed` (rows,)."""
    return np.unpackbits(np.frombuffer(bytes.fromhex(text), np.uint8), count=rows).astype(bool)
