"""The tables of a page and of the terminal, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from wdistill.errors import printable
from wdistill.outcome import Outcome, Training
from wdistill.pages.accuracies import Row, arm_names, baseline, headline
from wdistill.pages.words import accuracy, count, duration, gap, listed

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

COLUMNS = {"final": "final", "chosen": "chosen on validation", "best": "best (on test)"}
SPLITS = ("labeled", "validation", "unlabeled", "test")
KINDS = ("train", "evaluate", "forward", "estimate", "store")  # of work that are told apart
_MANY = 12  # different values of a setting that are listed


@dataclass(frozen=True)
class Grid:
    """A table of texts; the first column names the row."""

    columns: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


def called(row: Row) -> str:
    return _called(row.role) if row.role != "arm" else row.name


def progress(row: Row) -> str:
    """How far an arm has come that is behind others."""
    return f"{row.epochs} of {row.of} epochs"


def against(row: Row, base: str | None) -> str:
    """The arm that a row is compared to, where it is not the one of the others."""
    return f"over {row.base}" if row.base not in (None, base) and row.final and row.final.difference else ""


def _called(role: str) -> str:
    return "pretrained student" if role == "student" else role


def terminal_table(name: str, outcomes: Sequence[Outcome]) -> Table:
    """The headline for the terminal: accuracies in percent, differences to the baseline in points."""
    from rich.table import Table
    from rich.text import Text

    rows = headline(outcomes)
    base = baseline(rows)
    n, compared = len(outcomes), any(score and score.difference for row in rows for score in (row.final, row.best))
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
    """Where no run has test rows: final accuracies on the validation rows, which the weights come from too."""
    from rich.table import Table
    from rich.text import Text

    seen = f"; {trained_on_gold(outcomes)}" if trained_on_gold(outcomes) else ""
    caption = Text(printable(f"validation accuracy, %: there are no test rows, and the weights have seen these{seen}"))
    table = Table("", title=title, caption=caption, title_justify="left", caption_justify="left")
    table.add_column("final", justify="right")
    known: dict[str, list[float | None]] = {
        _called(role): [each.accuracies.get(role, {}).get("validation") for each in outcomes]
        for role in ("teacher", "student")
    }
    for name in arm_names(outcomes):
        arms = [each.arms.get(name) for each in outcomes]
        known[name] = [arm.epochs[-1].validation if arm and arm.epochs else None for arm in arms]
    for name, values in known.items():
        table.add_row(Text(printable(name)), _mean(values))
    return table


def _cell(score: Any) -> str:
    beneath = f"\n{gap(score.difference)}" if score and score.difference else ""
    return accuracy(score) + beneath


# ---------------------------------------------------------------------------------------------------- teacher and data


def facts(outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    """How much of everything there is."""
    sizes = {split: [each.rows[split] for each in outcomes if each.rows.get(split)] for split in SPLITS}
    found = [(split, _range(rows)) for split, rows in sizes.items() if rows]
    return [("trials", f"{len(outcomes)}"), ("classes", _range([each.classes for each in outcomes])), *found]


def _range(values: Sequence[int]) -> str:
    return f"{min(values):,}" if min(values) == max(values) else f"{min(values):,} to {max(values):,}"


def beforehand(outcomes: Sequence[Outcome]) -> Grid | None:
    """Accuracies of the teacher and the pretrained student on every split where they are known."""
    splits = [s for s in SPLITS if any(s in known for each in outcomes for known in each.accuracies.values())]
    names = [n for n in ("teacher", "student") if any(each.accuracies.get(n) for each in outcomes)]
    lines = [(_called(n), *(_mean([e.accuracies.get(n, {}).get(s) for e in outcomes]) for s in splits)) for n in names]
    return Grid(("accuracy, %", *splits), tuple(lines)) if lines else None


def _mean(values: Sequence[float | None]) -> str:
    known = [100 * value for value in values if value is not None]
    if not known:
        return ""
    return f"{np.mean(known):.2f}" + (f" ± {np.std(known, ddof=1):.2f}" if len(known) > 1 else "")


# ---------------------------------------------------------------------------------------------------------------- time


def stages(outcomes: Sequence[Outcome]) -> dict[str, dict[str, float]]:
    """Mean seconds over trials of every stage, by kind of work; what no kind accounts for is "other"."""
    found: dict[str, dict[str, float]] = {}
    for name in dict.fromkeys([*(name for each in outcomes for name in each.seconds), *arm_names(outcomes)]):
        trials = [_kinds(each, name) for each in outcomes if name in each.seconds or _training(each, name)]
        kinds = dict.fromkeys(kind for trial in trials for kind in trial)
        found[name] = {kind: float(np.mean([trial.get(kind, 0.0) for trial in trials])) for kind in kinds}
    return {name: kinds for name, kinds in found.items() if sum(kinds.values()) > 0}


def _training(outcome: Outcome, name: str) -> Training | None:
    return {"teacher": outcome.teacher, "student": outcome.student}.get(name) or outcome.arms.get(name)


def _kinds(outcome: Outcome, name: str) -> dict[str, float]:
    training = _training(outcome, name)
    known = training.seconds if training else {}
    kinds = {kind: known[kind] for kind in KINDS if known.get(kind, 0) > 0}
    other = max(outcome.seconds.get(name, 0.0), sum(known.values())) - sum(kinds.values())
    return {**kinds, "other": other} if other > 0 else kinds


def costs(outcomes: Sequence[Outcome]) -> Grid | None:
    """What every stage takes, and what one refresh takes of an epoch: reading all rows, and estimating the weights."""
    lines = []
    for name, kinds in stages(outcomes).items():
        trainings = [found for each in outcomes if (found := _training(each, name))]
        epochs = [epoch.seconds for each in trainings for epoch in each.epochs]
        refreshes = [refresh for each in trainings for refresh in each.refreshes]
        epoch = float(np.mean(epochs)) if epochs else 0.0
        forward = _share([refresh.forward_seconds for refresh in refreshes], epoch)
        estimate = _share([refresh.estimate_seconds for refresh in refreshes], epoch)
        each_trial = f"{len(refreshes) / len(trainings):g}" if refreshes else ""
        lines.append((name, duration(sum(kinds.values())), duration(epoch) if epoch else "", each_trial, forward, estimate))
    columns = ("stage", "total", "one epoch", "refreshes", "forward pass of one refresh", "estimation of one refresh")
    return _without_empty_columns(Grid(columns, tuple(lines))) if lines else None


def _share(seconds: Sequence[float], epoch: float) -> str:
    if not seconds:
        return ""
    mean = float(np.mean(seconds))
    return duration(mean) + (f" ({100 * mean / epoch:.2g} % of an epoch)" if epoch else "")


def _without_empty_columns(grid: Grid) -> Grid:
    kept = [i for i in range(len(grid.columns)) if any(line[i] for line in grid.lines)]
    return Grid(tuple(grid.columns[i] for i in kept), tuple(tuple(line[i] for i in kept) for line in grid.lines))


# ---------------------------------------------------------------------------------------------- recipe and environment


def settings(found: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Nested settings of all trials, one line a setting; several values where trials differ."""
    values: dict[str, list[str]] = {}
    for each in found:
        for name, value in _flat(each, ""):
            values.setdefault(name, []).append(value)
    return [(name, _several(list(dict.fromkeys(texts)))) for name, texts in values.items()]


def own_settings(outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    """Arms with settings that are not the recipe's, one line an arm."""
    arms = [{name: _flat(arm.settings, "") for name, arm in each.arms.items() if arm.settings} for each in outcomes]
    return settings([{name: "; ".join(map(" = ".join, own)) for name, own in each.items()} for each in arms])


def trained_on_gold(outcomes: Sequence[Outcome]) -> str:
    """What to know of arms that were trained on the validation rows; "" where none was."""
    names = [name for name in arm_names(outcomes) if any(each.arms[name].gold for each in outcomes if name in each.arms)]
    if not names:
        return ""
    who, their = (f"{listed(names)} were", "their") if len(names) > 1 else (f"{names[0]} was", "its")
    return (
        f"{who} trained on the validation rows: {their} accuracy on them is too good, and an epoch chosen by it says little"
    )


def choices(outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    """Arms whose method chose what to teach, and why."""
    found: dict[str, list[str]] = {}
    for each in outcomes:
        for name, arm in each.arms.items():
            if arm.why:
                found.setdefault(name, []).append(arm.why)
    return [(name, "; ".join(dict.fromkeys(reasons))) for name, reasons in found.items()]


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
    """Every warning once, with the trials it came from."""
    seen: dict[str, list[int]] = {}
    for trial, each in enumerate(outcomes, 1):
        for text in dict.fromkeys(each.warnings):
            seen.setdefault(text, []).append(trial)
    n = len(outcomes)
    return [
        text if n == 1 else f"{text} (in {'all' if len(trials) == n else f'{len(trials)} of {n}'} trials)"
        for text, trials in seen.items()
    ]
