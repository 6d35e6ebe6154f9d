"""Tables in Markdown, made of lines alone: our accuracies, the paper's beside them, and paired differences of arms."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from experiments.captions import caption, short
from experiments.lines import Line, Measure, accuracies, arms_of, budgets, labels_of, trials
from wdistill.pages.accuracies import LEVEL, Difference, difference, holm
from wdistill.pages.words import count, gap, signed

Number = tuple[float, float | None]  # of the paper: mean and ± in %, as printed
Paper = Mapping[str, Mapping[int, Number]]  # arm, or "teacher" → number of labels → number
Place = TypeVar("Place", bound=Hashable)

MISSING = "–"
MARK = "†"  # of a difference beyond chance
GAINS = ("debiased", "debiased-refresh", "fidelity", "composition", "oracle", "shuffled")  # of the summary, over unweighted
MEANING = (
    "Test accuracy in %, mean ± standard deviation (trials); differences between arms of the same trial in points, "
    "mean ± standard error (pairs)."
)


def by_labels(lines: Sequence[Line], arms: Sequence[str], paper: Paper, title: str) -> str:
    """Accuracy against the number of labels: for every budget the best, as the paper has it, then final and chosen."""
    parts = [f"### {title}"]
    for group in budgets(lines):
        best, tested = _grid(group, arms, paper, ("best",))
        parts += [f"{_sentence(caption(group))} Best over the epochs, selected on the test rows as in the paper:", best]
        parts.append(_legend(tested))
        others, tested = _grid(group, arms, {}, ("final", "chosen"))
        parts += ["After the last epoch, and at the epoch chosen on the validation rows:", others, _legend(tested)]
    if not lines:
        parts += ["No results yet. The paper's:", _grid([], arms, paper, ("best",))[0]] if paper else ["No results yet."]
    return _joined(parts)


def by_temperature(lines: Sequence[Line], temperatures: Sequence[float], paper: Paper, title: str) -> str:
    """Best accuracy of both arms at every temperature; for every budget and number of labels."""
    parts = [f"### {title}"]
    for group in budgets(lines):
        for labels in labels_of(group):
            teacher = _number(paper, "teacher", labels)
            shown = f"teacher {_score(accuracies(group, labels, 'teacher'), teacher, shared=_shared(group))}"
            grid, tested = _temperatures(group, labels, temperatures, paper)
            parts += [f"{labels:,} labels, {shown}; {_sentence(caption(group))}", grid, _legend(tested)]
    return _joined(parts if lines else [*parts, "No results yet."])


def summary(lines: Mapping[str, Sequence[Line]]) -> str:
    """One row for every experiment, budget and number of labels: paired gains over unweighted, best / final."""
    places = [
        (name, group, labels) for name, each in lines.items() for group in budgets(each) for labels in labels_of(group)
    ]
    gaps = {
        (row, arm, measure): _difference(group, labels, arm, "unweighted", measure)
        for row, (_, group, labels) in enumerate(places)
        for arm in GAINS
        for measure in _BOTH
    }
    tested = corrected(gaps)
    rows = [
        [
            name,
            group[0]["data"]["name"],
            short(trials(group, labels)),
            f"{labels:,}",
            *(_gains(gaps, tested, row, arm) for arm in GAINS),
        ]
        for row, (name, group, labels) in enumerate(places)
    ]
    grid = _markdown(["experiment", "data", "budget", "labels", *GAINS], rows)
    meaning = "Gain over the unweighted student of the same trial in points of test accuracy ± standard error, best / final."
    return _joined([grid, f"{meaning} {_tests(len(tested))}"])


def corrected(differences: Mapping[Place, Difference | None]) -> dict[Place, float]:
    """The p of every difference that was tested, corrected after Holm for the number of all that were."""
    tested = {place: found.p for place, found in differences.items() if found is not None and found.p is not None}
    return dict(zip(tested, holm(list(tested.values())), strict=True))


def baseline(arm: str, arms: Sequence[str]) -> str | None:
    """What an arm is compared to: the same without weights; a refresh to weights estimated once, where there are such."""
    variant = arm.partition("-")[2]
    plain = f"unweighted-{variant}" if variant == "hard" or variant.startswith("T") else "unweighted"
    found = {"debiased-vid": "vid", "debiased-refresh": "debiased" if "debiased" in arms else plain}.get(arm, plain)
    return found if found in arms and found != arm else None


_BOTH: tuple[Measure, ...] = ("best", "final")


def _grid(group: Sequence[Line], arms: Sequence[str], paper: Paper, measures: Sequence[Measure]) -> tuple[str, int]:
    """Teacher and arms by number of labels, and how many differences were tested."""
    wanted = [*arms, *(arm for arm in arms_of(group) if arm not in arms)]
    columns = sorted({*labels_of(group), *(labels for numbers in paper.values() for labels in numbers)})
    rows = [(arm, base, measure) for arm in wanted for base in [baseline(arm, wanted)] for measure in measures]
    gaps = {
        (arm, measure, labels): _difference(group, labels, arm, base, measure)
        for arm, base, measure in rows
        for labels in columns
    }
    tested = corrected(gaps)
    models = {"teacher": "teacher", "student": "pretrained student"} if "best" in measures else {}
    shown = [[name, *(_model(group, labels, model, paper) for labels in columns)] for model, name in models.items()]
    for arm, base, measure in rows:
        name = arm if len(measures) == 1 else f"{arm}, {measure}"
        cells = []
        for labels in columns:
            ours = _score(accuracies(group, labels, arm, measure), _number(paper, arm, labels))
            place = arm, measure, labels
            cells.append(f"{ours}<br>{_gap(gaps[place], tested.get(place), _paper_gap(paper, arm, base, labels))}")
        shown.append([f"{name}<br>over {base}", *cells] if base else [name, *(cell.partition("<br>")[0] for cell in cells)])
    return _markdown(["labels", *(f"{labels:,}" for labels in columns)], shown), len(tested)


def _temperatures(group: Sequence[Line], labels: int, temperatures: Sequence[float], paper: Paper) -> tuple[str, int]:
    pairs = {at: (f"unweighted-T{at:g}", f"debiased-T{at:g}") for at in temperatures}
    gaps = {at: _difference(group, labels, ours, base, "best") for at, (base, ours) in pairs.items()}
    tested = corrected(gaps)
    rows = []
    for at, (base, ours) in pairs.items():
        scores = [_score(accuracies(group, labels, arm), _number(paper, arm, labels)) for arm in (base, ours)]
        rows.append([f"{at:.2f}", *scores, _gap(gaps[at], tested.get(at), _paper_gap(paper, ours, base, labels))])
    return _markdown(["temperature", "unweighted", "debiased", "debiased over unweighted"], rows), len(tested)


def _difference(group: Sequence[Line], labels: int, arm: str, base: str | None, measure: Measure) -> Difference | None:
    values = accuracies(group, labels, arm, measure)
    return difference(values, accuracies(group, labels, base, measure)) if base else None


def _model(group: Sequence[Line], labels: int, model: str, paper: Paper) -> str:
    return _score(accuracies(group, labels, model), _number(paper, model, labels), shared=_shared(group))


def _shared(group: Sequence[Line]) -> bool:
    """Whether all trials of a number of labels have the same teacher and pretrained student."""
    return any(line["repeat"] is None for line in group)


def _score(values: Sequence[float | None], paper: Number | None, *, shared: bool = False) -> str:
    """Ours and, where there is one, the paper's; of a model that trials share, no deviation and no number of trials."""
    known = [100 * value for value in values if value is not None]
    spread = f" ± {np.std(known, ddof=1):.2f}" if len(known) > 1 and not shared else ""
    ours = f"{np.mean(known):.2f}{spread}" + ("" if shared else f" ({len(known)})") if known else MISSING
    return ours + (f"; paper {_printed(paper)}" if paper else "")


def _gap(found: Difference | None, p: float | None, paper: float | None) -> str:
    mark = MARK if p is not None and p < LEVEL else ""
    theirs = f"; paper {signed(paper)}" if paper is not None else ""
    return (f"{gap(found)}{mark} ({found.trials})" if found else MISSING) + theirs


def _gains(
    gaps: Mapping[tuple[int, str, Measure], Difference | None],
    tested: Mapping[tuple[int, str, Measure], float],
    row: int,
    arm: str,
) -> str:
    places = [(row, arm, measure) for measure in _BOTH]
    found = [(gaps[place], tested.get(place, 1.0)) for place in places]
    texts = [gap(each) + (MARK if p < LEVEL else "") for each, p in found if each]
    return " / ".join(texts) if len(texts) == len(found) else MISSING


def _number(paper: Paper, arm: str, labels: int) -> Number | None:
    return paper.get(arm, {}).get(labels)


def _paper_gap(paper: Paper, arm: str, base: str | None, labels: int) -> float | None:
    """Of the paper's means, in points."""
    pair = _number(paper, arm, labels), _number(paper, base, labels) if base else None
    return pair[0][0] - pair[1][0] if pair[0] and pair[1] else None


def _printed(number: Number) -> str:
    mean, spread = number
    return f"{mean:g}" + (f" ± {spread:g}" if spread is not None else "")


def _legend(tested: int) -> str:
    return f"{MEANING} {_tests(tested)}"


def _tests(tested: int) -> str:
    if not tested:
        return "No difference is tested: that needs three trials."
    many = f", corrected for {count(tested, 'comparison')} (Holm)" if tested > 1 else ""
    return f"{MARK} beyond chance in a paired t-test at the 5 % level{many}."


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(parts) + "\n"
