"""Tables in Markdown, made of lines alone: budgets, accuracies with the paper's beside them, paired differences of arms."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from experiments.lab.results import (
    PRECISION,
    Line,
    Measure,
    Number,
    Paper,
    accuracies,
    accuracy,
    arms_of,
    budgets,
    labels_of,
    paper_gap,
    trials,
)
from wdistill.report.accuracies import LEVEL, Difference, bases, difference, holm
from wdistill.report.words import count, gap, listed, signed
from wdistill.runs.arms import Arm

Place = TypeVar("Place", bound=Hashable)
MISSING = "–"
NONE_YET = "No results yet.\n"
BOTH: tuple[Measure, ...] = ("best", "final")
SHOWN = "max on test / final"  # how a cell with both is headed
MARK = "†"  # of a difference beyond chance
EVERY = "*"  # at the end of an arm: all arms that begin so
GAINS = {  # of the summary: an arm, and the one it is compared to
    **dict.fromkeys(("debiased", "debiased-refresh", "fidelity", "composition", "oracle", "shuffled"), "unweighted"),
    "debiased-hard": "unweighted-hard",
    "vid": "unweighted",
    "debiased-vid": "vid",
    "debiased-T*": "unweighted-T*",
}
MEANING = (
    "Test accuracy in %, mean ± standard deviation (trials); differences between arms of the same trial in points, "
    "mean ± standard error (pairs)."
)
MAX = "Max on test over the epochs, as in the paper:"
LATER = "After the last epoch, and at the epoch chosen on the validation rows"


def by_labels(
    lines: Sequence[Line],
    arms: Mapping[str, Any],
    paper: Paper,
    title: str,
    against: Mapping[str, str | None] | None = None,
) -> str:
    """Accuracy against the number of labels, for every budget: the max on test, as the paper has it, then final and chosen.

    `arms` are rules or arms by name; `against` names what some of them are compared to in place of an unweighted arm.
    """
    parts = [f"### {title}"]
    for group in budgets(lines):
        over = {**compared(group, arms), **(against or {})}
        parts += [budget_table(group), f"{provenance(group)}."]
        first, later = _grid(group, over, paper, ("best",)), _grid(group, over, {}, ("final", "chosen"))
        for heading, (grid, tested) in ((MAX, first), (_later(group), later)):
            parts += [heading, grid, f"{MEANING} {tests_note(tested)}"]
    if not lines:
        over = {**compared([], arms), **(against or {})}
        parts += ["No results yet. The paper's:", _grid([], over, paper, ("best",))[0]] if paper else [NONE_YET.strip()]
    return joined(parts)


def summary(lines: Mapping[str, Sequence[Line]]) -> str:
    """One row for every experiment, budget and number of labels: paired gains. What nobody has is left out."""
    places = [
        (name, trials(group, labels))
        for name, each in lines.items()
        for group in budgets(each)
        for labels in labels_of(group)
    ]
    gaps = {
        (row, arm, measure): paired([group], arm, base, measure)
        for row, (_, group) in enumerate(places)
        for arm, base in GAINS.items()
        for measure in BOTH
    }
    tested = corrected(gaps)
    known = [(row, arm) for (row, arm, _), found in gaps.items() if found]
    arms = [arm for arm in GAINS if arm in {arm for _, arm in known}]
    rows = [
        [
            name,
            group[0]["data"]["name"],
            short(group),
            f"{group[0]['labels']:,}",
            *(two_gains(gaps, tested, row, arm) for arm in arms),
        ]
        for row, (name, group) in enumerate(places)
        if row in {row for row, _ in known}
    ]
    if not rows:
        return NONE_YET
    over = "; ".join(f"{arm} over {base}" for arm, base in GAINS.items() if arm in arms and base != "unweighted")
    meaning = f"Gain over the unweighted student of the same trial in points of test accuracy ± standard error, {SHOWN}"
    grid = markdown(["experiment", "data", "budget", "labels", *arms], rows)
    return joined([grid, f"{meaning}{f'; {over}' if over else ''}. {tests_note(len(tested))}"])


# -------------------------------------------------------------------------------------------------------- budgets in text


def budget_table(group: Sequence[Line]) -> str:
    """What the lines cost, and the paper's budget beneath where it has one. For one budget."""
    ours, theirs = [line["budget"] for line in group], [line["paper_budget"] for line in group if line["paper_budget"]]
    names = dict.fromkeys(name for budget in (*ours, *theirs) for name in budget)
    rows = [["ours", *(_span(ours, name) for name in names)]]
    rows += [["the paper's", *(_span(theirs, name) for name in names)]] if theirs else []
    return markdown(["budget", *(name.replace("_", " ") for name in names)], rows)


def short(group: Sequence[Line]) -> str:
    """The least that a figure must say: "8 of 200 epochs after 20 on the labels, 5,000 of 63,757 unlabeled rows, …"."""
    ours = [line["budget"] for line in group]
    theirs = [line["paper_budget"] or line["budget"] for line in group]
    first = dict.fromkeys(_span(ours, name) for name in ("teacher_epochs", "student_epochs") if name in ours[0])
    alike = list(first) in ([], [_span(ours, "epochs")])
    epochs = f"{_of(ours, theirs, 'epochs')} epochs" + ("" if alike else f" after {' and '.join(first)} on the labels")
    counts = sorted({len(trials(group, labels)) for labels in labels_of(group)})
    runs = count(counts[0], "trial") if len(counts) == 1 else f"{counts[0]}–{counts[-1]} trials"
    fresh = ["fresh teachers"] if group[0]["repeat"] is not None else []
    copy = ["unofficial copy"] if not group[0]["data"].get("official") else []
    return ", ".join([epochs, f"{_of(ours, theirs, 'unlabeled')} unlabeled rows", runs, *fresh, *copy])


def varied(group: Sequence[Line]) -> str:
    """What the spread of accuracies over trials is due to."""
    return "splits" if group[0]["repeat"] is None else "teachers"


def provenance(group: Sequence[Line]) -> str:
    """Trials, data, code and hardware of lines."""
    data, what = (
        group[0]["data"],
        {"splits": "only the split varied", "teachers": "each with its own labeled set and models"},
    )
    kind = "official files" if data.get("official") else "unofficial copy"
    source = f"{data.get('name', '?')}, {kind}" + (f" ({data['source']})" if data.get("source") else "")
    counts = {labels: len(trials(group, labels)) for labels in labels_of(group)}
    runs = f"trials: {', '.join(f'{n} of {labels:,} labels' for labels, n in counts.items())}, {what[varied(group)]}"
    return "; ".join([runs, f"data: {source}", commits(group), *hardware(group)])


def commits(group: Sequence[Line]) -> str:
    """The code that was run, by the first letters of its commits."""
    names = dict.fromkeys(re.sub(r"\b([0-9a-f]{7})[0-9a-f]+", r"\1", str(line.get("commit", "?"))) for line in group)
    return f"{'commits' if len(names) > 1 else 'commit'} {listed(list(names))}"


def hardware(group: Sequence[Line]) -> list[str]:
    """Processors, and devices where they are others; nothing where no line knows."""
    known = [line["environment"] for line in group if "environment" in line]
    names = [" ".join(re.sub(r"\((?:R|TM)\)|\b(?:CPU|Processor)\b", " ", each["processor"]).split()) for each in known]
    devices = ["" if each.get("device", "cpu") == "cpu" else f" with {each['device']}" for each in known]
    machines = dict.fromkeys(map("".join, zip(names, devices, strict=True)))
    return [f"on {listed(list(machines))}"] if machines else []


def _span(settings: Sequence[Mapping[str, Any]], name: str) -> str:
    """One value, or the smallest and the largest of numbers."""
    usual = PRECISION if name == "precision" else None
    values = dict.fromkeys(value for each in settings if (value := each.get(name, usual)) is not None)
    texts = [f"{value:,}" if isinstance(value, int) else str(value) for value in sorted(values)]
    return "–".join(dict.fromkeys([*texts[:1], *texts[-1:]])) or "?"


def _of(ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]], name: str) -> str:
    """Ours, and "of" the paper's where that is another."""
    return " of ".join(dict.fromkeys([_span(ours, name), _span(theirs, name)]))


# ------------------------------------------------------------------------------------------------------------ differences


def paired(groups: Iterable[Sequence[Line]], arm: str, base: str, measure: Measure) -> Difference | None:
    """One observation for every trial of every group: the mean over numbers of labels; trials that lack one do not count.

    With EVERY at the end of both names it is also the mean over all arms that begin so.
    """
    found = [each for group in groups for each in _differences(group, arm, base, measure)]
    return difference(found, [0.0] * len(found))


def _differences(group: Sequence[Line], arm: str, base: str, measure: Measure) -> Iterator[float]:
    pairs, wanted = pairs_of(arm, base, arms_of(group)), labels_of(group)
    for number in sorted({line["trial"] for line in group}):
        mine = [line for line in group if line["trial"] == number]
        known = [(accuracy(line, one, measure), accuracy(line, other, measure)) for line in mine for one, other in pairs]
        gaps = [ours - theirs for ours, theirs in known if ours is not None and theirs is not None]
        if pairs and len(gaps) == len(wanted) * len(pairs):
            yield float(np.mean(gaps))


def pairs_of(arm: str, base: str, arms: Sequence[str]) -> list[tuple[str, str]]:
    """The arms that are compared, of those that there are."""
    ours, theirs = arm.removesuffix(EVERY), base.removesuffix(EVERY)
    pairs = (
        [(each, theirs + each.removeprefix(ours)) for each in arms if each.startswith(ours)]
        if ours != arm
        else [(arm, base)]
    )
    return [pair for pair in pairs if {*pair} <= {*arms}]


def corrected(differences: Mapping[Place, Difference | None]) -> dict[Place, float]:
    """The p of every difference that was tested, corrected after Holm for the number of all that were."""
    tested = {place: found.p for place, found in differences.items() if found is not None and found.p is not None}
    return dict(zip(tested, holm(list(tested.values())), strict=True))


def compared(group: Sequence[Line], arms: Mapping[str, Any]) -> dict[str, str | None]:
    """What every arm is compared to, also one that only lines have: as on a page, the unweighted arm trained like it."""
    rules = {name: (each if isinstance(each, Arm) else Arm(each)).rule.name for name, each in arms.items()}
    settings = {name: each.settings if isinstance(each, Arm) else {} for name, each in arms.items()}
    for line in group:
        for name in line["arms"]:
            rules.setdefault(name, line.get("rules", {}).get(name, name).partition("(")[0])
            settings.setdefault(name, line.get("settings", {}).get(name, {}))
    plain = {name: {k: list(v) if isinstance(v, tuple) else v for k, v in each.items()} for name, each in settings.items()}
    return bases(rules, plain)


def two_gains(
    gaps: Mapping[tuple[int, str, Measure], Difference | None],
    tested: Mapping[tuple[int, str, Measure], float],
    row: int,
    arm: str,
) -> str:
    """A cell with both, max on test / final."""
    found = [(gaps[row, arm, measure], tested.get((row, arm, measure), 1.0)) for measure in BOTH]
    texts = [gap(each) + (MARK if p < LEVEL else "") for each, p in found if each]
    return " / ".join(texts) if len(texts) == len(found) else MISSING


def tests_note(tested: int) -> str:
    """What a mark means."""
    return (
        f"{MARK} p < {LEVEL:g} in a paired t-test over trials, corrected for {count(tested, 'comparison')} (Holm); where "
        "trials share a teacher, over splits for this one teacher. Not tested: fewer than three trials, equal differences."
    )


# ------------------------------------------------------------------------------------------------------------------ cells


def _grid(
    group: Sequence[Line], over: Mapping[str, str | None], paper: Paper, measures: Sequence[Measure]
) -> tuple[str, int]:
    """Teacher and arms by number of labels, and how many differences were tested."""
    columns = sorted({*labels_of(group), *(labels for numbers in paper.values() for labels in numbers)})
    rows = [(arm, base, measure) for arm, base in over.items() for measure in measures]
    gaps = {
        (arm, measure, labels): difference(accuracies(group, labels, arm, measure), accuracies(group, labels, base, measure))
        for arm, base, measure in rows
        for labels in columns
        if base
    }
    tested, shown = corrected(gaps), []
    shared = any(line["repeat"] is None for line in group)  # the teacher and the pretrained student of all trials
    for model, name in (("teacher", "teacher"), ("student", "pretrained student")) if "best" in measures else ():
        printed = paper.get(model, {})
        shown.append([name, *(_score(accuracies(group, at, model), printed.get(at), shared=shared) for at in columns)])
    for arm, base, measure in rows:
        name = arm if len(measures) == 1 else f"{arm}, {measure}"
        cells = [_score(accuracies(group, at, arm, measure), paper.get(arm, {}).get(at)) for at in columns]
        if base:
            places = [(arm, measure, at) for at in columns]
            more = [_gap(gaps[at], tested.get(at), paper_gap(paper, arm, base, at[2])) for at in places]
            name, cells = f"{name}<br>over {base}", [f"{one}<br>{other}" for one, other in zip(cells, more, strict=True)]
        shown.append([name, *cells])
    return markdown(["labels", *(f"{labels:,}" for labels in columns)], shown), len(tested)


def _later(group: Sequence[Line]) -> str:
    """The heading of final and chosen; rows that have trained an arm choose no epoch of it fairly."""
    trained = [arm for arm in arms_of(group) if any(_trained_on_validation(line, arm) for line in group)]
    which = "the arms" if trained == arms_of(group) else listed(trained)
    return LATER + (f", which {which} were trained on too:" if trained else ":")


def _trained_on_validation(line: Line, arm: str) -> bool:
    settings = line.get("recipe", {}) | line.get("settings", {}).get(arm, {})
    return arm in line["arms"] and settings.get("validation_in_training") == "yes"


def _score(values: Sequence[float | None], paper: Number | None, *, shared: bool = False) -> str:
    """Ours and, where there is one, the paper's; of a model that trials share, no deviation and no number of trials."""
    known = [100 * value for value in values if value is not None]
    spread = f" ± {np.std(known, ddof=1):.2f}" if len(known) > 1 and not shared else ""
    ours = f"{np.mean(known):.2f}{spread}" + ("" if shared else f" ({len(known)})") if known else MISSING
    deviation = f" ± {paper[1]:g}" if paper and paper[1] is not None else ""
    return ours + (f"; paper {paper[0]:g}{deviation}" if paper else "")


def _gap(found: Difference | None, p: float | None, paper: float | None) -> str:
    mark = MARK if p is not None and p < LEVEL else ""
    theirs = f"; paper {signed(paper)}" if paper is not None else ""
    return (f"{gap(found)}{mark} ({found.trials})" if found else MISSING) + theirs


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def joined(parts: Iterable[str]) -> str:
    return "\n\n".join(parts) + "\n"
