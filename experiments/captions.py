"""What a table or figure rests on, in words: budget beside the paper's, trials, data, commits, hardware. For one budget."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experiments.lines import PRECISION, Line, labels_of, trials
from wdistill.pages.words import count, listed

STAGES = {"teacher_epochs": "teacher", "student_epochs": "student", "epochs": "arms"}
ROWS = ("unlabeled", "validation", "test")
SHORT = 7  # letters of a commit
MARKS = re.compile(r"\((?:R|TM)\)|\b(?:CPU|Processor)\b")  # in the name of a processor, of no use


def caption(group: Sequence[Line]) -> str:
    """All of it: "20 of the paper's 200 epochs in every stage, 10,000 of 63,757 unlabeled rows, batch 128 …; 3 trials …"."""
    budget, paper = group[0]["budget"], group[0]["paper_budget"]
    if paper is None:
        return "; ".join([_own(group), *_common(group)])
    rows = [text for name in ROWS if (text := _rows(group, name))]
    batch = [_beside("batch", budget["batch_size"], paper.get("batch_size"))] if "batch_size" in budget else []
    said = {*STAGES, *ROWS, "batch_size"}
    theirs = {"precision": PRECISION, **paper}
    changed = [name for name in budget if name not in said and budget[name] != theirs.get(name, budget[name])]
    others = [_beside(name.replace("_", " "), budget[name], theirs[name]) for name in changed]
    models = [f"{budget['teacher']} → {budget['student']}"] if {"teacher", "student"} <= set(budget) - set(changed) else []
    whole = ", ".join([_epochs(budget, paper), *rows, *batch, *models, *others])
    return "; ".join([whole, *_common(group)])


def short(group: Sequence[Line]) -> str:
    """The least that a figure must say: "20 of 200 epochs, 10,000 of 63,757 unlabeled rows, 3 trials, unofficial copy".

    Where teacher and student were trained for another number of epochs: "8 of 200 epochs after 20 on the labels",
    or "after 20 and 40" if they differ.
    """
    budget, paper = group[0]["budget"], group[0]["paper_budget"]
    ours, theirs = budget.get("epochs"), (paper or budget).get("epochs")
    epochs = f"{ours} epochs" if ours == theirs else f"{ours} of {theirs} epochs"
    first = [budget.get(name, ours) for name in ("teacher_epochs", "student_epochs")]
    if set(first) != {ours}:
        epochs += f" after {' and '.join(map(str, dict.fromkeys(first)))} on the labels"
    copy = [] if group[0]["data"].get("official") else ["unofficial copy"]
    fresh = [] if group[0]["repeat"] is None else ["fresh teachers"]
    return ", ".join(
        filter(
            None,
            [
                epochs,
                _rows(group, "unlabeled") if paper else f"{budget['unlabeled']:,} unlabeled rows",
                _count(group),
                *fresh,
                *copy,
            ],
        )
    )


def varied(group: Sequence[Line]) -> str:
    """What the spread of accuracies over trials is due to."""
    return "splits" if group[0]["repeat"] is None else "teachers"


def _own(group: Sequence[Line]) -> str:
    """The budget of an experiment that is not the paper's."""
    budget = group[0]["budget"]
    epochs = ", ".join(f"{word} {budget[name]}" for name, word in STAGES.items())
    rows = ", ".join(f"{budget[name]:,} {name}" for name in ROWS)
    precision = f", {budget['precision']}" if "precision" in budget else ""
    models = f"teacher {budget['teacher']}, student {budget['student']}"
    return f"{models}; epochs: {epochs}; rows: {rows}; batch {budget['batch_size']}{precision}"


def _epochs(budget: Mapping[str, Any], paper: Mapping[str, Any]) -> str:
    pairs = {word: (budget.get(name), paper.get(name)) for name, word in STAGES.items()}
    if len(set(pairs.values())) == 1:
        return f"{_of_paper(*pairs['arms'])} epochs in every stage"
    return "epochs: " + ", ".join(f"{word} {_of_paper(*pair)}" for word, pair in pairs.items())


def _of_paper(ours: Any, theirs: Any) -> str:
    return f"the paper's {ours}" if ours == theirs else f"{ours} of the paper's {theirs}"


def _rows(group: Sequence[Line], name: str) -> str:
    """Of a split: some of the paper's number; of the others than `unlabeled`, nothing where all is as in the paper."""
    ours, theirs = ([line[which].get(name) for line in group] for which in ("budget", "paper_budget"))
    if ours == theirs:
        return f"all {_span(ours)} unlabeled rows" if name == "unlabeled" and None not in ours else ""
    return f"{_span(ours)} of {_span(theirs)} {name} rows"


def _span(numbers: Iterable[int | None]) -> str:
    known = sorted({number for number in numbers if number is not None})
    return "–".join(f"{number:,}" for number in dict.fromkeys([*known[:1], *known[-1:]])) or "?"


def _beside(name: str, ours: Any, theirs: Any) -> str:
    return f"{name} {ours}" if ours == theirs else f"{name} {ours} (paper: {theirs})"


def _count(group: Sequence[Line]) -> str:
    """Trials of every number of labels."""
    counts = sorted({len(trials(group, labels)) for labels in labels_of(group)})
    return count(counts[0], "trial") if len(counts) == 1 else f"{counts[0]}–{counts[-1]} trials"


def _trials(group: Sequence[Line]) -> str:
    varied = (
        "only the split varied" if group[0]["repeat"] is None else "each with a labeled set, teacher and student of its own"
    )
    return f"{_count(group)}, {varied}"


def _common(group: Sequence[Line]) -> list[str]:
    """What is said of every budget."""
    return [_trials(group), f"data: {_data(group)}", commits(group), *hardware(group)]


def _data(group: Sequence[Line]) -> str:
    data = group[0]["data"]
    kind = "official files" if data.get("official") else "unofficial copy"
    source = f" ({data['source']})" if data.get("source") else ""
    return f"{data.get('name', '?')}, {kind}{source}"


def commits(group: Sequence[Line]) -> str:
    """What was run, by its short names."""
    found = dict.fromkeys(
        re.sub(rf"\b([0-9a-f]{{{SHORT}}})[0-9a-f]+", r"\1", str(line.get("commit", "?"))) for line in group
    )
    return f"{'commits' if len(found) > 1 else 'commit'} {listed(list(found))}"


def hardware(group: Sequence[Line]) -> list[str]:
    """What it ran on; nothing where no line knows."""
    found = dict.fromkeys(_machine(line["environment"]) for line in group if "environment" in line)
    return [f"on {listed(list(found))}"] if found else []


def _machine(environment: Mapping[str, Any]) -> str:
    """The processor, and the device where it is another."""
    processor = " ".join(MARKS.sub(" ", environment["processor"]).split())
    return processor if environment.get("device", "cpu") == "cpu" else f"{processor} with {environment['device']}"
