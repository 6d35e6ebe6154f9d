"""One page of what the experiments came to: verdicts, numbers, figures, and notes on the proofs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any

from wdistill.pages import svg
from wdistill.pages.figures import Panel, look
from wdistill.pages.house import rendered
from wdistill.pages.words import duration
from wdistill.theory import wording
from wdistill.theory.claims import Finding


@dataclass(frozen=True)
class Run:
    """A finding, and how long it took."""

    finding: Finding
    seconds: float

    @cached_property
    def panels(self) -> list[Panel]:
        """Its figures in the look of the page, drawn once however often the page is written."""
        with look():
            drawn = self.finding.draw()
            return [
                Panel(svg.inline(figure, f"{self.finding.name}-{number}", f"{self.finding.title}: {title}."), title)
                for number, (title, figure) in enumerate(drawn.items())
            ]


def page(runs: Sequence[Run], made: Mapping[str, str]) -> str:
    """One HTML page that needs nothing else; `made` says with what seed, scale, versions and hardware."""
    template = files("wdistill.theory").joinpath("theory.html.jinja").read_text("utf-8")
    filters: dict[str, Callable[..., Any]] = {
        "measured": wording.measured,
        "verdict": wording.verdict,
        "summary": wording.summary,
        "duration": duration,
    }
    return rendered(template, "The paper's claims, measured", filters=filters, runs=runs, made=made)
