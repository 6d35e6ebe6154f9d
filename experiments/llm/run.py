"""`python -m experiments.llm FILE`: paired trials on answers with a known truth, one JSON line a trial, and their table."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.lab.results import Line, append, read
from experiments.llm.trial import BASE, Answers, trial
from wdistill.core import store
from wdistill.core.environment import environment
from wdistill.core.errors import unreadable
from wdistill.core.progress import say
from wdistill.report.accuracies import difference
from wdistill.report.words import gap

NEEDED = ("data", "gold", "trial", "accuracies")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments.llm", description=__doc__)
    parser.add_argument("file", type=Path, help="jsonl with a text, an LLM's answer and the truth in every row")
    parser.add_argument("--text", default="text", metavar="COLUMN")
    parser.add_argument("--answer", default="annotation_llm", metavar="COLUMN")
    parser.add_argument("--label", default="ground_truth_label", metavar="COLUMN", help="the truth")
    parser.add_argument("--gold", type=int, nargs="+", default=[100, 400, 1000], metavar="ROWS")
    parser.add_argument("--test", type=int, default=1000, metavar="ROWS")
    parser.add_argument("--trials", type=int, default=8, help="trials of seeds 0, 1, …; 0: only print what is stored")
    parser.add_argument("--lines", type=Path, default=Path("experiments/results/llm-tweets.jsonl"), metavar="FILE")
    given = parser.parse_args(arguments)
    data, digest = read_file(given.file, given.text, given.answer, given.label), store.digest(given.file.read_bytes())
    done = {(line["data"], line["gold"], line["trial"], line["rows"]["test"]) for line in read(given.lines, NEEDED)}
    for seed in range(given.trials):
        for gold in given.gold:
            if (digest, gold, seed, given.test) not in done:
                line = {"data": digest, "environment": environment("cpu", 1), **trial(data, gold, given.test, seed)}
                append(given.lines, line)
                say(f"trial {seed}, {gold} gold rows: {line['why']}")
    lines = [line for line in read(given.lines, NEEDED) if line["data"] == digest and line["rows"]["test"] == given.test]
    print("\n".join(table(lines)))
    return 0


def read_file(path: Path, text: str, answer: str, label: str) -> Answers:
    """Texts, answers and truth of a jsonl file; classes are the values of the truth."""
    try:
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
        texts, answers, truth = ([row[name] for row in rows] for name in (text, answer, label))
        classes = sorted({str(value) for value in truth})
        answered, true = (np.array([classes.index(str(value)) for value in column]) for column in (answers, truth))
    except (OSError, ValueError, KeyError, TypeError) as error:
        expected, remedy = f"JSON lines with {text}, {answer} and {label}", "name the columns: --text, --answer, --label"
        raise unreadable("the answers cannot be read", path, error, expected, remedy) from None
    return Answers(tuple(map(str, texts)), answered, true, tuple(classes))


def table(lines: Sequence[Line]) -> list[str]:
    """Mean test accuracy of the base, and of every other arm the paired difference to it ± standard error, by gold rows."""
    if not lines:
        return ["no trials yet"]
    sizes = sorted({line["gold"] for line in lines})
    groups = [[line for line in lines if line["gold"] == size] for size in sizes]
    shown = [f"| arm | {' | '.join(f'{size:,} gold rows' for size in sizes)} |", "|---" * (len(sizes) + 1) + "|"]
    for arm in lines[0]["accuracies"]:
        cells = [_cell(group, arm) for group in groups]
        shown.append(f"| {arm} | {' | '.join(cells)} |")
    for name in ("teacher", "best"):
        means = [np.mean([line["targets"][name] for line in group]) for group in groups]
        shown.append(f"| targets right on the pool: {name} | {' | '.join(f'{mean:.1f} %' for mean in means)} |")
    shown.append(f"| trials | {' | '.join(str(len(group)) for group in groups)} |")
    return shown


def _cell(group: Sequence[Line], arm: str) -> str:
    values, base = ([line["accuracies"][name] / 100 for line in group] for name in (arm, BASE))
    return f"{100 * np.mean(values):.2f} %" if arm == BASE else gap(difference(values, base))
