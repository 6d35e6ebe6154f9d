"""The tables of a page and of the terminal, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from wdistill.core.errors import printable
from wdistill.report.accuracies import Row, arm_names, baseline, headline
from wdistill.report.words import accuracy, count, duration, gap, listed
from wdistill.runs.outcome import Outcome, Training

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

COLUMNS = {"final": "final", "chosen": "chosen on validation", "max_on_test": "max on test"}
SPLITS = ("labeled", "validation", "unlabeled", "test")
KINDS = ("train", "evaluate", "forward", "estimate", "store")  # of work that are timed separately
_MANY = 12  # different values of a setting that are listed


@dataclass(frozen=True)
class Grid:
    """A table of texts; the first column names the row."""

    columns: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


def called(row: Row) -> str:
    return _called(row.role) if row.role != "arm" else row.name


def progress(row: Row) -> str:
    """The progress of an arm that has fewer epochs than others."""
    return f"{row.epochs} of {row.of} epochs"


def against(row: Row, base: str | None) -> str:
    """The arm that a row is compared to, where it is not the baseline."""
    return f"over {row.base}" if row.base not in (None, base) and row.final and row.final.difference else ""


def _called(role: str) -> str:
    return "pretrained student" if role == "student" else role


def terminal_table(name: str, outcomes: Sequence[Outcome]) -> Table:
    """The headline for the terminal: accuracies in percent, differences to the baseline in points."""
    from rich.table import Table
    from rich.text import Text

    rows = headline(outcomes)
    base = baseline(rows)
    n, compared = len(outcomes), any(score and score.difference for row in rows for score in (row.final, row.max_on_test))
    how = "test accuracy, %" + ("; ± standard deviation" if n > 1 else "")
    named = ", or to the arm named there," if any(against(row, base) for row in rows) else ""
    than = f"; beneath, the difference to {base}{named} in points" + (" ± its standard error" if n > 1 else "")
    title = Text(printable(f"{name}: {count(n, 'trial')}")) if name else Text(count(n, "trial"))
    table = Table(
        "",
        title=title,
        caption=Text(printable("; ".join(filter(None, [how + (than if compared else ""), trained_on_gold(outcomes)])))),
        title_justify="left",
        caption_justify="left",
    )
    shown = [key for key in COLUMNS if any(getattr(row, key) for row in rows)]
    for key in shown:
        table.add_column(COLUMNS[key], justify="right")
    for row in rows:
        cells = [getattr(row, key) for key in shown]
        beneath = filter(None, [progress(row) if row.behind else "", against(row, base)])
        table.add_row(Text(printable("\n".join([called(row), *beneath]))), *(Text(_cell(score)) for score in cells))
    return table if shown else _without_test(title, outcomes)


def _without_test(title: Text, outcomes: Sequence[Outcome]) -> Table:
    """Where no run has test rows: final accuracies on the validation rows, which the weights were estimated from."""
    from rich.table import Table
    from rich.text import Text

    on_gold = f"; {trained_on_gold(outcomes)}" if trained_on_gold(outcomes) else ""
    caption = Text(printable(f"validation accuracy, %: there are no test rows, and the weights have seen these{on_gold}"))
    table = Table("", title=title, caption=caption, title_justify="left", caption_justify="left")
    table.add_column("final", justify="right")
    accuracies: dict[str, list[float | None]] = {
        _called(role): [outcome.accuracies.get(role, {}).get("validation") for outcome in outcomes]
        for role in ("teacher", "student")
    }
    for name in arm_names(outcomes):
        arms = [outcome.arms.get(name) for outcome in outcomes]
        accuracies[name] = [arm.epochs[-1].validation if arm and arm.epochs else None for arm in arms]
    for name, values in accuracies.items():
        table.add_row(Text(printable(name)), _mean(values))
    return table


def _cell(score: Any) -> str:
    beneath = f"\n{gap(score.difference)}" if score and score.difference else ""
    return accuracy(score) + beneath


# ---------------------------------------------------------------------------------------------------- teacher and data


def facts(outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    """The numbers of trials, classes and rows."""
    sizes = {split: [outcome.rows[split] for outcome in outcomes if outcome.rows.get(split)] for split in SPLITS}
    splits = [(split, _range(rows)) for split, rows in sizes.items() if rows]
    return [("trials", f"{len(outcomes)}"), ("classes", _range([outcome.classes for outcome in outcomes])), *splits]


def _range(values: Sequence[int]) -> str:
    return f"{min(values):,}" if min(values) == max(values) else f"{min(values):,} to {max(values):,}"


def beforehand(outcomes: Sequence[Outcome]) -> Grid | None:
    """Accuracies of the teacher and the pretrained student on every split where they are known."""
    splits = [s for s in SPLITS if any(s in by_split for outcome in outcomes for by_split in outcome.accuracies.values())]
    names = [n for n in ("teacher", "student") if any(outcome.accuracies.get(n) for outcome in outcomes)]
    lines = [(_called(n), *(_mean([e.accuracies.get(n, {}).get(s) for e in outcomes]) for s in splits)) for n in names]
    return Grid(("accuracy, %", *splits), tuple(lines)) if lines else None


def _mean(values: Sequence[float | None]) -> str:
    percents = [100 * value for value in values if value is not None]
    if not percents:
        return ""
    return f"{np.mean(percents):.2f}" + (f" ± {np.std(percents, ddof=1):.2f}" if len(percents) > 1 else "")


# ---------------------------------------------------------------------------------------------------------------- time


def stages(outcomes: Sequence[Outcome]) -> dict[str, dict[str, float]]:
    """Mean seconds over trials of every stage, by kind of work; the remainder is "other"."""
    seconds: dict[str, dict[str, float]] = {}
    for name in dict.fromkeys([*(name for outcome in outcomes for name in outcome.seconds), *arm_names(outcomes)]):
        trials = [_kinds(outcome, name) for outcome in outcomes if name in outcome.seconds or _training(outcome, name)]
        kinds = dict.fromkeys(kind for trial in trials for kind in trial)
        seconds[name] = {kind: float(np.mean([trial.get(kind, 0.0) for trial in trials])) for kind in kinds}
    return {name: kinds for name, kinds in seconds.items() if sum(kinds.values()) > 0}


def _training(outcome: Outcome, name: str) -> Training | None:
    return {"teacher": outcome.teacher, "student": outcome.student}.get(name) or outcome.arms.get(name)


def _kinds(outcome: Outcome, name: str) -> dict[str, float]:
    training = _training(outcome, name)
    seconds = training.seconds if training else {}
    kinds = {kind: seconds[kind] for kind in KINDS if seconds.get(kind, 0) > 0}
    other = max(outcome.seconds.get(name, 0.0), sum(seconds.values())) - sum(kinds.values())
    return {**kinds, "other": other} if other > 0 else kinds


def costs(outcomes: Sequence[Outcome]) -> Grid | None:
    """Time of every stage; and of one refresh, forward pass and estimation, also as shares of an epoch."""
    lines = []
    for name, kinds in stages(outcomes).items():
        trainings = [training for outcome in outcomes if (training := _training(outcome, name))]
        epochs = [epoch.seconds for training in trainings for epoch in training.epochs]
        refreshes = [refresh for training in trainings for refresh in training.refreshes]
        epoch = float(np.mean(epochs)) if epochs else 0.0
        forward = _share([refresh.forward_seconds for refresh in refreshes], epoch)
        estimate = _share([refresh.estimate_seconds for refresh in refreshes], epoch)
        each_trial = f"{len(refreshes) / len(trainings):g}" if refreshes else ""
        lines.append((name, duration(sum(kinds.values())), duration(epoch) if epoch else "", each_trial, forward, estimate))
    refresh_columns = (f"{part} of a refresh (of an epoch)" for part in ("forward pass", "estimation"))
    columns = ("stage", "total", "one epoch", "refreshes", *refresh_columns)
    return _without_empty_columns(Grid(columns, tuple(lines))) if lines else None


def _share(seconds: Sequence[float], epoch: float) -> str:
    if not seconds:
        return ""
    mean = float(np.mean(seconds))
    return duration(mean) + (f" ({100 * mean / epoch:.2g} %)" if epoch else "")


def _without_empty_columns(grid: Grid) -> Grid:
    kept = [i for i in range(len(grid.columns)) if any(line[i] for line in grid.lines)]
    return Grid(tuple(grid.columns[i] for i in kept), tuple(tuple(line[i] for i in kept) for line in grid.lines))


# ---------------------------------------------------------------------------------------------- recipe and environment


def settings(trials: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Nested settings of all trials, one line a setting; several values where trials differ."""
    values: dict[str, list[str]] = {}
    for trial in trials:
        for name, value in _flat(trial, ""):
            values.setdefault(name, []).append(value)
    return [(name, _several(list(dict.fromkeys(texts)))) for name, texts in values.items()]


def arm_settings(outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    """Arms with settings that are not the recipe's, one line an arm."""
    arms = [{name: _flat(arm.settings, "") for name, arm in trial.arms.items() if arm.settings} for trial in outcomes]
    return settings([{name: "; ".join(map(" = ".join, pairs)) for name, pairs in trial.items()} for trial in arms])


def trained_on_gold(outcomes: Sequence[Outcome]) -> str:
    """A note about arms that were trained on the validation rows; "" where none was."""
    names = [
        name for name in arm_names(outcomes) if any(outcome.arms[name].gold for outcome in outcomes if name in outcome.arms)
    ]
    if not names:
        return ""
    who, their = (f"{listed(names)} were", "their") if len(names) > 1 else (f"{names[0]} was", "its")
    return (
        f"{who} trained on the validation rows: {their} accuracy on them is too good, and an epoch chosen by it says little"
    )


def choices(outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    """Arms whose method chose its targets, and why; where trials differ, what they chose and how many of them."""
    reasons_by_arm: dict[str, list[str]] = {}
    for outcome in outcomes:
        for name, arm in outcome.arms.items():
            if arm.why:
                reasons_by_arm.setdefault(name, []).append(arm.why)
    return [(name, _in_short(reasons)) for name, reasons in reasons_by_arm.items()]


def _in_short(reasons: Sequence[str]) -> str:
    if len(set(reasons)) == 1:
        return reasons[0]
    chosen = Counter(reason.partition(":")[0] for reason in reasons)
    return "; ".join(f"{text} (in {n} of {len(reasons)} trials)" for text, n in chosen.items())


def _flat(value: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and (value or not name):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple) and not any(isinstance(inner, Mapping | list | tuple) for inner in value):
        yield name, ", ".join(map(str, value))
    else:
        yield name, str(value)


def _several(texts: Sequence[str]) -> str:
    more = f" … ({len(texts)} values)" if len(texts) > _MANY else ""
    return " | ".join(texts[:_MANY]) + more


def warnings(outcomes: Sequence[Outcome]) -> list[str]:
    """Every warning once, with the number of trials that raised it."""
    trials_by_text: dict[str, list[int]] = {}
    for trial, outcome in enumerate(outcomes, 1):
        for text in dict.fromkeys(outcome.warnings):
            trials_by_text.setdefault(text, []).append(trial)
    n = len(outcomes)
    return [
        text if n == 1 else f"{text} (in {'all' if len(trials) == n else f'{len(trials)} of {n}'} trials)"
        for text, trials in trials_by_text.items()
    ]
