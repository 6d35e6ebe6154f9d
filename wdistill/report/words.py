"""Numbers and findings as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from wdistill.report.accuracies import FEWEST, LEVEL, Difference, Row, Score, holm
from wdistill.runs.outcome import Outcome

MINUS = "−"
_BREAKS = re.compile(r"(?<=[\dp]) (?=[±=<%])|(?<=[±=<]) (?=\d)")


@dataclass(frozen=True)
class Verdict:
    """The findings, and the tests they are based on."""

    findings: tuple[str, ...]
    basis: str = ""


def accuracy(score: Score | None) -> str:
    """In percent, with the standard deviation over trials where there are several."""
    if score is None:
        return ""
    return f"{100 * score.mean:.2f}" + (f" ± {100 * score.std:.2f}" if score.std is not None else "")


def gap(difference: Difference | None) -> str:
    """In percentage points, with the standard error where there are several trials."""
    if difference is None:
        return ""
    error = f" ± {100 * difference.standard_error:.2f}" if difference.standard_error is not None else ""
    return signed(100 * difference.mean) + error


def signed(value: float) -> str:
    rounded = round(value, 2)
    sign = "+" if rounded > 0 else MINUS if rounded < 0 else ""
    return f"{sign}{abs(rounded):.2f}"


def chance(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}" if p < 0.1 else f"p = {p:.2f}"


def unbroken(text: str) -> str:
    """The text with non-breaking spaces between numbers and their signs."""
    return _BREAKS.sub("\u00a0", text)


def count(n: int, word: str) -> str:
    return f"{n:,} {word}" if n == 1 else f"{n:,} {word}s"


def duration(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{1e6 * seconds:.0f} µs"
    if seconds < 0.9995:
        return f"{1e3 * seconds:.3g} ms"
    if seconds < 99.95:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


def listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def verdict(rows: Sequence[Row]) -> Verdict:
    """The findings on the final accuracy, with their significance."""
    arms = [row for row in rows if row.role == "arm"]
    if not arms:
        return Verdict(("No arm has been trained yet.",))
    if not any(row.final for row in arms):
        return Verdict(("Nothing can be said about accuracy: no arm was tested.",))
    compared = [(row, row.final.difference) for row in arms if row.final and row.final.difference]
    if not compared:
        ended = [f"{row.name} at {accuracy(row.final)} %" for row in arms if row.final]
        return Verdict((f"On the test rows: {listed(ended)}.",), "There is nothing to compare yet." if len(arms) > 1 else "")
    if min(difference.trials for _, difference in compared) < FEWEST:
        return _few([row for row in arms if any(other.base == row.name for other, _ in compared)], compared)
    return _tested(compared)


def _few(bases: Sequence[Row], compared: Sequence[tuple[Row, Difference]]) -> Verdict:
    """One or two trials: the observed differences, and that they are no evidence."""
    n, sentences = min(difference.trials for _, difference in compared), []
    for base in bases:
        others = listed([f"{row.name} {_above(difference)}" for row, difference in compared if row.base == base.name])
        sentences.append(f"On the test rows, {base.name} ended at {accuracy(base.final)} %; {others}.")
    few = "One trial cannot tell this from chance" if n == 1 else "Two trials are too few for a test"
    return Verdict((*sentences, f"{few}: repeat it with other seeds before believing it."))


def _above(difference: Difference) -> str:
    if difference.mean == 0:
        return "at exactly the same"
    size = f"{abs(100 * difference.mean):.2f}" + (
        f" ± {100 * difference.standard_error:.2f}" if difference.standard_error else ""
    )
    return f"{size} points {'higher' if difference.mean > 0 else 'lower'}"


def _tested(compared: Sequence[tuple[Row, Difference]]) -> Verdict:
    p_values = {row.name: difference.p for row, difference in compared if difference.p is not None}
    corrected = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    findings: list[str] = []
    for base in dict.fromkeys(row.base for row, _ in compared):
        groups: dict[str, list[str]] = {
            f"Better than {base}": [],
            f"Worse than {base}": [],
            f"No difference from {base} beyond chance": [],
            f"Exactly the same as {base} in every trial": [],
            f"As far from {base} in every trial, which no test can judge": [],
        }
        better, worse, none, same, even = groups.values()
        for row, difference in compared:
            if row.base != base:
                continue
            p = corrected.get(row.name)
            if p is None:
                even.append(f"{row.name} ({gap(difference)} points)")
            elif difference.standard_error == 0:
                same.append(row.name)
            else:
                group = none if p >= LEVEL else better if difference.mean > 0 else worse
                group.append(f"{row.name} ({gap(difference)} points, {chance(p)})")
        findings += [f"{start}: {listed(names)}." for start, names in groups.items() if names]
    trials = sorted({difference.trials for _, difference in compared})
    over = f"over {trials[0]}" + (f" to {trials[-1]}" if len(trials) > 1 else "") + " paired trials"
    many = f", corrected for {len(p_values)} comparisons (Holm)" if len(p_values) > 1 else ""
    tests = f"Paired t-tests of the final test accuracy {over}, at the 5 % level{many}; ± is the standard error."
    return Verdict(tuple(findings), tests if p_values else "")


def unfinished(outcomes: Sequence[Outcome]) -> list[str]:
    """One sentence for every trial that is not finished."""
    sentences = []
    for i, outcome in enumerate(outcomes, 1):
        if outcome.state != "finished":
            which = f"Trial {i} of {len(outcomes)}" if len(outcomes) > 1 else "This run"
            state = {"running": "is still running", "interrupted": "was interrupted"}.get(
                outcome.state, f"is “{outcome.state}”"
            )
            done = [f"{name} {count(len(arm.epochs), 'epoch')}" for name, arm in outcome.arms.items()]
            sentences.append(f"{which} {state}; done so far: {listed(done) if done else 'no arm yet'}.")
    return sentences
