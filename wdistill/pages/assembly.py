"""One page of all that runs came to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from wdistill.outcome import Outcome
from wdistill.pages import figures, tables, words
from wdistill.pages.accuracies import Row, arm_names, baseline, headline
from wdistill.pages.figures import Panel
from wdistill.pages.house import rendered


@dataclass(frozen=True)
class Arm:
    """What is shown of the weights of one arm."""

    name: str
    panels: tuple[Panel, ...]
    maps: tuple[Panel, ...]


@dataclass(frozen=True)
class Setting:
    """One group of trials, ready to be written down."""

    name: str
    anchor: str
    verdict: words.Verdict
    unfinished: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    choices: tuple[tuple[str, str], ...]  # arms whose method chose, and why
    taught: str  # what to know of arms that were trained on the validation rows
    rows: tuple[Row, ...]
    columns: dict[str, str]  # of the headline: field of a row, and its title
    base: str | None
    several: bool  # whether arms are compared to different ones
    trials: int
    accuracy: tuple[Panel, ...]
    beforehand: tables.Grid | None
    teacher: Panel | None
    arms: tuple[Arm, ...]
    flat: tuple[str, ...]  # arms whose weights are all 1
    costs: tables.Grid | None
    times: Panel | None
    recipe: tuple[tuple[str, str], ...]
    own: tuple[tuple[str, str], ...]  # settings of single arms
    environment: tuple[tuple[str, str], ...]
    folders: tuple[str, ...]
    warnings: tuple[str, ...]


def page(groups: Mapping[str, Sequence[Outcome]], title: str) -> str:
    """One HTML page of several settings, each a name and its trials; the same outcomes give the same bytes."""
    settings = [_setting(name, trials, f"s{i}") for i, (name, trials) in enumerate(groups.items(), 1) if trials]
    pictures = any(arm.maps for each in settings for arm in each.arms)
    template = files("wdistill.pages").joinpath("report.html.jinja").read_text("utf-8")
    filters: dict[str, Callable[..., str]] = {
        "accuracy": words.accuracy,
        "gap": words.gap,
        "against": tables.against,
        "called": tables.called,
        "progress": tables.progress,
    }
    return rendered(template, title, pictures=pictures, filters=filters, settings=settings)


def _setting(name: str, outcomes: Sequence[Outcome], mark: str) -> Setting:
    rows, names = headline(outcomes), arm_names(outcomes)
    flat = tuple(each for each in names if _all_ones(outcomes, each))
    arms = [_arm(outcomes, each, f"{mark}a{i}") for i, each in enumerate(names) if each not in flat]
    accuracy = [figures.trajectory(outcomes, rows, f"{mark}-trajectory"), figures.best(rows, f"{mark}-best")]
    tested = {key: text for key, text in tables.COLUMNS.items() if any(getattr(row, key) for row in rows)}
    return Setting(
        name=name,
        anchor=mark,
        verdict=words.verdict(rows),
        unfinished=tuple(words.unfinished(outcomes)),
        facts=tuple(tables.facts(outcomes)),
        choices=tuple(tables.choices(outcomes)),
        taught=tables.trained_on_gold(outcomes),
        rows=rows,
        columns=tested,
        base=baseline(rows),
        several=any(tables.against(row, baseline(rows)) for row in rows),
        trials=len(outcomes),
        accuracy=tuple(panel for panel in accuracy if panel),
        beforehand=tables.beforehand(outcomes),
        teacher=figures.teacher(outcomes, f"{mark}-teacher"),
        arms=tuple(arm for arm in arms if arm.panels or arm.maps),
        flat=flat,
        costs=tables.costs(outcomes),
        times=figures.times(tables.stages(outcomes), len(outcomes), f"{mark}-times"),
        recipe=tuple(tables.settings([each.recipe for each in outcomes])),
        own=tuple(tables.own_settings(outcomes)),
        environment=tuple(tables.settings([each.environment for each in outcomes])),
        folders=tuple(str(each.folder) for each in outcomes),
        warnings=tuple(tables.warnings(outcomes)),
    )


def _arm(outcomes: Sequence[Outcome], name: str, mark: str) -> Arm:
    trainings = [each.arms[name] for each in outcomes if name in each.arms]
    panels = [figures.weights(trainings, f"{mark}-weights"), figures.movement(trainings, f"{mark}-movement")]
    stored = next((i for i, each in enumerate(trainings) if each.fitted), None)
    which = f"trial {stored + 1} of {len(trainings)}; " if stored is not None and len(trainings) > 1 else ""
    maps = figures.maps(trainings[stored], f"{mark}m", which) if stored is not None else []
    return Arm(name, tuple(panel for panel in panels if panel), tuple(maps))


def _all_ones(outcomes: Sequence[Outcome], name: str) -> bool:
    refreshes = [refresh for each in outcomes if name in each.arms for refresh in each.arms[name].refreshes]
    return bool(refreshes) and all(refresh.weights.ones == refresh.weights.rows for refresh in refreshes)
