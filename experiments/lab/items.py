"""The paper's tables and figures as items: which experiments each needs, and how their lines are shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from experiments.lab import tables
from experiments.lab.figures import best, each_budget, trajectories
from experiments.lab.results import Line, Paper
from experiments.lab.trial import Experiment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Figures = dict[str, "Figure"]  # by the stem of their file


@dataclass(frozen=True)
class View:
    """The lines of one experiment as a table in Markdown and as figures."""

    experiment: Experiment
    table: Callable[[list[Line]], str]
    figures: Callable[[list[Line]], Figures] = lambda lines: {}


@dataclass(frozen=True)
class Item:
    """A table or figure of the paper: views of experiments, and a figure of all of them where they share one."""

    name: str  # `wdistill reproduce NAME`
    shows: str  # what of the paper
    views: tuple[View, ...]
    overview: Callable[[Mapping[str, list[Line]]], Figures] | None = None  # in place of the views' figures

    @property
    def experiments(self) -> tuple[Experiment, ...]:
        return tuple(view.experiment for view in self.views)

    def tables(self, lines: Mapping[str, list[Line]]) -> str:
        """Of the lines by experiment."""
        return "\n".join(view.table(lines.get(view.experiment.name, [])) for view in self.views)

    def figures(self, lines: Mapping[str, list[Line]]) -> Figures:
        if self.overview:
            return self.overview(lines)
        each = [view.figures(lines.get(view.experiment.name, [])) for view in self.views]
        return {stem: figure for figures in each for stem, figure in figures.items()}


def by_labels(
    experiment: Experiment,
    title: str,
    paper: Paper,
    groups: Mapping[str, tuple[str, Sequence[str]]],
    against: Mapping[str, str | None] | None = None,
) -> View:
    """A table by number of labels; trajectories and accuracies of groups of arms, by the stem of their files and title."""

    def figures(lines: list[Line]) -> Figures:
        drawn: Figures = {}
        for stem, (name, arms) in groups.items():
            drawn |= each_budget(f"{stem}-trajectories", lines, partial(trajectories, arms=arms, title=name))
            drawn |= each_budget(f"{stem}-best", lines, partial(best, arms=arms, paper=paper, title=name))
        return drawn

    table = partial(tables.by_labels, arms=experiment.arms, paper=paper, title=title, against=against)
    return View(experiment, table, figures)
