"""The report page of runs, and the rendering of any page: one template, one style, no external resources, no scripts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from wdistill.core.errors import printable
from wdistill.report import figures, judged, tables, words
from wdistill.report.accuracies import Row, arm_names, baseline, headline
from wdistill.report.figures import Panel
from wdistill.runs.outcome import Outcome


@dataclass(frozen=True)
class ArmSection:
    """The figures of one arm's weights."""

    name: str
    panels: tuple[Panel, ...]
    maps: tuple[Panel, ...]


@dataclass(frozen=True)
class TrialGroup:
    """One group of trials, as the template renders it."""

    name: str
    anchor: str
    verdict: words.Verdict
    unfinished: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    choices: tuple[tuple[str, str], ...]  # arms whose method chose, and why
    pool: tuple[str, ...]  # what the corrected targets say of the students
    decisions: tuple[str, ...]  # how the students decide, where the metric is not accuracy
    metric: tuple[tables.Grid, ...]  # what they reach by it, overall and by class
    gold_note: str  # about arms that were trained on the gold rows
    rows: tuple[Row, ...]
    columns: dict[str, str]  # of the headline: field of a row, and its title
    base: str | None
    several: bool  # whether arms are compared to different ones
    trials: int
    accuracy: tuple[Panel, ...]
    beforehand: tables.Grid | None
    teacher: Panel | None
    arms: tuple[ArmSection, ...]
    flat: tuple[str, ...]  # arms whose weights are all 1
    costs: tables.Grid | None
    times: Panel | None
    recipe: tuple[tuple[str, str], ...]
    arm_settings: tuple[tuple[str, str], ...]  # settings of single arms
    environment: tuple[tuple[str, str], ...]
    folders: tuple[str, ...]
    warnings: tuple[str, ...]


def page(groups: Mapping[str, Sequence[Outcome]], title: str) -> str:
    """One HTML page of several settings, each a name and its trials; the same outcomes give the same bytes."""
    settings = [_setting(name, trials, f"s{i}") for i, (name, trials) in enumerate(groups.items(), 1) if trials]
    pictures = any(arm.maps for setting in settings for arm in setting.arms)
    template = _text("report.html.jinja")
    filters: dict[str, Callable[..., str]] = {
        "accuracy": words.accuracy,
        "gap": words.gap,
        "against": tables.against,
        "called": tables.called,
        "progress": tables.progress,
    }
    return rendered(template, title, pictures=pictures, filters=filters, settings=settings)


def _setting(name: str, outcomes: Sequence[Outcome], mark: str) -> TrialGroup:
    rows, names = headline(outcomes), arm_names(outcomes)
    flat = tuple(arm for arm in names if _all_ones(outcomes, arm))
    arms = [_arm(outcomes, arm, f"{mark}a{i}") for i, arm in enumerate(names) if arm not in flat]
    accuracy = [figures.trajectory(outcomes, rows, f"{mark}-trajectory"), figures.max_on_test(rows, f"{mark}-max")]
    tested = {key: text for key, text in tables.COLUMNS.items() if any(getattr(row, key) for row in rows)}
    return TrialGroup(
        name=name,
        anchor=mark,
        verdict=words.verdict(rows),
        unfinished=tuple(words.unfinished(outcomes)),
        facts=tuple(tables.facts(outcomes)),
        choices=tuple(tables.choices(outcomes)),
        pool=(*judged.pool_sentences(outcomes), *judged.without_base(outcomes)),
        decisions=tuple(judged.decisions(outcomes)),
        metric=tuple(judged.grids(outcomes)),
        gold_note=tables.trained_on_gold(outcomes),
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
        recipe=tuple(tables.settings([outcome.recipe for outcome in outcomes])),
        arm_settings=tuple(tables.arm_settings(outcomes)),
        environment=tuple(tables.settings([outcome.environment for outcome in outcomes])),
        folders=tuple(str(outcome.folder) for outcome in outcomes),
        warnings=tuple(tables.warnings(outcomes)),
    )


def _arm(outcomes: Sequence[Outcome], name: str, mark: str) -> ArmSection:
    trainings = [outcome.arms[name] for outcome in outcomes if name in outcome.arms]
    panels = [figures.weights(trainings, f"{mark}-weights"), figures.movement(trainings, f"{mark}-movement")]
    stored = next((i for i, training in enumerate(trainings) if training.fitted), None)
    which = f"trial {stored + 1} of {len(trainings)}; " if stored is not None and len(trainings) > 1 else ""
    maps = figures.maps(trainings[stored], f"{mark}m", which) if stored is not None else []
    return ArmSection(name, tuple(panel for panel in panels if panel), tuple(maps))


def _all_ones(outcomes: Sequence[Outcome], name: str) -> bool:
    refreshes = [refresh for outcome in outcomes if name in outcome.arms for refresh in outcome.arms[name].refreshes]
    return bool(refreshes) and all(refresh.weights.ones == refresh.weights.rows for refresh in refreshes)


# ------------------------------------------------------------------------------------------------------------ template


def rendered(
    template: str,
    title: str,
    *,
    pictures: bool = False,
    filters: Mapping[str, Callable[..., Any]] | None = None,
    **values: Any,
) -> str:
    """A page without external resources or scripts; the same values give the same bytes.

    The template extends `layout.html.jinja` and may import from `parts.html.jinja`. `pictures`: whether figures hold pixels.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    def shown(value: Any) -> Any:
        """Control characters are escaped here; Jinja escapes HTML."""
        return words.unbroken(printable(value)) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = Environment(
        loader=FunctionLoader(_text),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"listed": words.listed, "svg": Markup, **(filters or {})}
    style = "\n" + _text("report.css")
    compiled = environment.from_string(template)
    return compiled.render(title=title, style=Markup(style), policy=_policy(style, pictures), **values)


def _text(name: str) -> str:
    return files("wdistill.report").joinpath(name).read_text("utf-8")


def _policy(style: str, pictures: bool) -> str:
    """A content security policy: no resources or scripts, this style alone, and images inside the page."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    images = " img-src data:;" if pictures else ""
    return f"default-src 'none'; style-src 'sha256-{digest}';{images} base-uri 'none'; form-action 'none'"
