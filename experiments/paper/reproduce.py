"""What `wdistill reproduce` does: find the items, run what has no line yet, make tables and figures of the lines."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.lab import results
from experiments.lab.documents import fill, mark
from experiments.lab.figures import rendered
from experiments.lab.items import Item
from experiments.lab.results import PRECISION, Line
from experiments.lab.running import run
from experiments.lab.tables import summary
from experiments.lab.trial import Experiment, Trial, budget_of, full_budget_of, identity_of, rows_of, shortened
from experiments.paper.catalogue import ITEMS
from experiments.paper.claims import claims, claims_figure
from experiments.paper.reasons import reasons
from wdistill.core import store
from wdistill.core.errors import bad_value, not_one_of
from wdistill.core.settings import to_json
from wdistill.report.words import count

HERE = Path(__file__).resolve().parent.parent  # the results of the repository, which its documents show


def find(names: Sequence[str]) -> list[Item]:
    """The items of these names, in the order of the catalogue; "all" is every one."""
    known = [item.name for item in ITEMS]
    for name in names:
        if name not in ("all", *known):
            remedy = "wdistill reproduce --list says what each of them shows"
            raise not_one_of("no such table or figure", "wdistill reproduce", name, ["all", *known], remedy)
    return [item for item in ITEMS if item.name in names or "all" in names]


def show(folder: Path) -> None:
    """Every table and figure, and what has been run of it."""
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "shows", "trials", "of the full budget", box=None, pad_edge=False)
    for item in ITEMS:
        known = read_lines(item, folder)
        run_lines = [(each, line) for each in item.experiments for line in results.together(known[each.name]).values()]
        full = sum(is_full(each, line) for each, line in run_lines)
        wanted = sum(len(each.labels) * each.trials for each in item.experiments)
        table.add_row(item.name, item.shows, str(len(run_lines)), f"{full} of {wanted}")
    Console().print(table)


def reproduce(
    items: Sequence[Item], budget: Mapping[str, Any], *, folder: Path, runs: Path, root: Path | None, workers: int
) -> None:
    """Run the trials of all items that have no line yet, the first trial of everything first; then draw every item."""
    wanted = sorted((each for item in items for each in item.experiments), key=lambda each: len(each.labels))
    experiments = {
        each.name: each for each in wanted
    }.values()  # where a figure needs some labels only, the table's are more
    drawing = budget.get("trials") == 0
    trials = [trial for each in experiments if not drawing for trial in trials_of(each, budget, root, runs)]
    trials.sort(key=lambda trial: trial.number)

    def done(trial: Trial) -> bool:
        return is_done(trial, results.read(path_of(trial.experiment, folder)))

    missing = [trial for trial in trials if not done(trial)]
    for trial in missing:
        rows_of(trial, trial.dataset)  # what does not fit is an error now, not hours later
    for each in experiments:
        if "size" in budget and each.size is None:
            print(f"{each.name}: size is left out, its images have one of their own", file=sys.stderr)
    for text in dict.fromkeys(text for trial in missing for text in differences(trial)):
        print(text, file=sys.stderr)
    store.make_folder(folder / "results", parents=True)
    if missing:
        before = f"{len(trials) - len(missing)} run before"
        print(f"{count(len(missing), 'trial')} to run, {before}", file=sys.stderr, flush=True)
        run(missing, folder / "results", workers, done)
    elif trials:
        print(f"nothing to run: {count(len(trials), 'trial')} of this budget before", file=sys.stderr)
    for item in items:
        draw(item, folder)
    if folder.resolve() == HERE:
        known = {name: each for item in ITEMS for name, each in read_lines(item, folder).items()}
        fill([HERE / "README.md", HERE.parent / "docs" / "results.md"], blocks(known))
        store.write_bytes(folder / "figures" / "claims.svg", rendered(claims_figure(known)))


def blocks(lines: Mapping[str, Sequence[Line]]) -> dict[str, str]:
    """What documents show of the paper's experiments, by mark."""
    known = {name: each for name, each in lines.items() if each}
    makers = {"results": summary, "claims": claims, "reasons": reasons}
    return {mark(name, "wdistill reproduce"): make(known) for name, make in makers.items()}


def trials_of(experiment: Experiment, budget: Mapping[str, Any], root: Path | None, runs: Path) -> list[Trial]:
    """The trials of an experiment on a budget, in its own order."""
    given = dict(budget)
    if "arms" in given:
        given["arms"] = _some_arms(experiment, given["arms"])
    shorter = shortened(experiment, **given)
    numbers = [(number, labels) for number in range(shorter.trials) for labels in shorter.labels]
    return [Trial(shorter, experiment, labels, number, root, runs) for number, labels in numbers]


def is_done(trial: Trial, known: Iterable[Line]) -> bool:
    """Whether there are lines of the same trial on the same budget, data and recipe that have all its arms."""
    wanted = identity_of(trial, trial.dataset)
    line = results.together(known).get(results.key(wanted))
    return line is not None and set(trial.experiment.arms) <= set(line["arms"]) and results.same_arms(wanted, line)


def is_full(experiment: Experiment, line: Line) -> bool:
    """Whether a line is one of those that the experiment asks for, with nothing shortened."""
    full = {**line, "budget": full_budget_of(experiment, line["labels"]), "recipe": to_json(experiment.recipe)}
    wanted = line["labels"] in experiment.labels and line["trial"] < experiment.trials
    return wanted and set(experiment.arms) <= set(line["arms"]) and results.key(line) == results.key(full)


def differences(trial: Trial) -> list[str]:
    """Where a trial falls short of the full protocol, in words."""
    dataset, name = trial.dataset, trial.experiment.name
    usual = {"precision": PRECISION}
    full = usual | full_budget_of(trial.paper, trial.labels)
    short = usual | budget_of(trial.experiment, trial.labels, dataset)
    texts = [f"{name}: {part} {short[part]} instead of {full[part]}" for part in full if full[part] != short[part]]
    if any(short[part] != full[part] for part in ("teacher_epochs", "student_epochs", "epochs")):
        texts.append(f"{name}: the schedule of the learning rate goes with the number of epochs")
    if not dataset.official:
        texts.append(f"{name}: the data are not from the official files: {dataset.source}")
    return texts


def draw(item: Item, folder: Path) -> None:
    """Make the item's table and figures of the lines there are, and print the table."""
    known = read_lines(item, folder)
    if not any(known.values()):
        print(f"{item.name}: no lines yet", file=sys.stderr)
        return
    for place in ("tables", "figures"):
        store.make_folder(folder / place)
    text = item.tables(known)
    store.write_bytes(folder / "tables" / f"{item.name}.md", text.encode())
    for stem, figure in item.figures(known).items():
        store.write_bytes(folder / "figures" / f"{stem}.svg", rendered(figure))
    print(text)


def read_lines(item: Item, folder: Path) -> dict[str, list[Line]]:
    return {each.name: results.read(path_of(each, folder)) for each in item.experiments}


def path_of(experiment: Experiment, folder: Path) -> Path:
    return folder / "results" / f"{experiment.name}.jsonl"


def _some_arms(experiment: Experiment, names: Sequence[str]) -> dict[str, Any]:
    unknown = [name for name in names if name not in experiment.arms]
    if unknown:
        where, expected = f"--arms, {experiment.name}", ", ".join(experiment.arms)
        raise bad_value("no such arm", where, ", ".join(unknown), expected, "name some of these")
    return {name: experiment.arms[name] for name in experiment.arms if name in names}
