"""Tables in Markdown, made of lines alone: our accuracies, the paper's beside them, and paired differences of arms."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from experiments.captions import caption, short
from experiments.lines import Line, Measure, accuracies, arms_of, budgets, labels_of, trials
from wdistill.arms import Arm, name_of
from wdistill.pages.accuracies import EQUAL, FEWEST, LEVEL, Difference, bases, difference, holm
from wdistill.pages.words import count, gap, listed, signed

Number = tuple[float, float | None]  # of the paper: mean and ± in %, as printed
Paper = Mapping[str, Mapping[int, Number]]  # arm, or "teacher" → number of labels → number
Place = TypeVar("Place", bound=Hashable)

MISSING = "–"
BOTH: tuple[Measure, ...] = ("best", "final")
MARK = "†"  # of a difference beyond chance
GAINS = {  # of the summary: an arm, and the one it is compared to
    **dict.fromkeys(("debiased", "debiased-refresh", "fidelity", "composition", "oracle", "shuffled"), "unweighted"),
    "debiased-hard": "unweighted-hard",
    "vid": "unweighted",
    "debiased-vid": "vid",
}
MEANING = (
    "Test accuracy in %, mean ± standard deviation (trials); differences between arms of the same trial in points, "
    "mean ± standard error (pairs)."
)
BEST = "Best over the epochs, selected on the test rows as in the paper:"


def by_labels(
    lines: Sequence[Line], arms: Mapping[str, Any], paper: Paper, title: str, against: Mapping[str, str] | None = None
) -> str:
    """Accuracy against the number of labels: for every budget the best, as the paper has it, then final and chosen.

    `arms` are rules or arms by name; `against` names what some of them are compared to in place of an unweighted arm.
    """
    parts = [f"### {title}"]
    for group in budgets(lines):
        over = {**compared(group, arms), **(against or {})}
        best, said = _grid(group, over, paper, ("best",))
        parts += [f"{_sentence(caption(group))} {BEST}", best, f"{MEANING} {said}"]
        others, said = _grid(group, over, {}, ("final", "chosen"))
        parts += [_later(group), others, f"{MEANING} {said}"]
    if not lines:
        none = _grid([], compared([], arms), paper, ("best",))[0]
        parts += ["No results yet. The paper's:", none] if paper else ["No results yet."]
    return joined(parts)


def by_temperature(lines: Sequence[Line], temperatures: Sequence[float], paper: Paper, title: str) -> str:
    """Both arms at every temperature: the best, then final and chosen; for every budget and number of labels."""
    parts = [f"### {title}"]
    for group in budgets(lines):
        for labels in labels_of(group):
            teacher = _number(paper, "teacher", labels)
            shown = f"teacher {_score(accuracies(group, labels, 'teacher'), teacher, shared=_shared(group))}"
            best, said = _temperatures(group, labels, temperatures, paper, ("best",))
            parts += [f"{labels:,} labels, {shown}; {_sentence(caption(group))} {BEST}", best, f"{MEANING} {said}"]
            others, said = _temperatures(group, labels, temperatures, {}, ("final", "chosen"))
            parts += [_later(group), others, f"{MEANING} {said}"]
    if not lines:
        wanted = sorted({labels for numbers in paper.values() for labels in numbers})
        none = [(f"{labels:,} labels:", _temperatures([], labels, temperatures, paper, ("best",))[0]) for labels in wanted]
        parts += (
            ["No results yet. The paper's:", *(text for both in none for text in both)] if paper else ["No results yet."]
        )
    return joined(parts)


def summary(lines: Mapping[str, Sequence[Line]]) -> str:
    """One row for every experiment, budget and number of labels: paired gains, best / final. What nobody has is left out.

    An experiment with temperatures has the mean gain over them.
    """
    places = [
        (name, group, labels) for name, each in lines.items() for group in budgets(each) for labels in labels_of(group)
    ]
    gaps = {
        (row, arm, measure): _gain(group, labels, arm, base, measure)
        for row, (_, group, labels) in enumerate(places)
        for arm, base in GAINS.items()
        for measure in BOTH
    }
    tested = corrected(gaps)
    known = [place for place, found in gaps.items() if found]
    arms = [arm for arm in GAINS if any(arm == each for _, each, _ in known)]
    shown = [(row, *places[row]) for row in dict.fromkeys(row for row, _, _ in known)]
    rows = [
        [
            f"{name}, {len(_pairs(group))} temperatures" if _pairs(group) else name,
            group[0]["data"]["name"],
            short(trials(group, labels)),
            f"{labels:,}",
            *(two_gains(gaps, tested, row, arm) + (_gaining(group, labels) if arm == "debiased" else "") for arm in arms),
        ]
        for row, name, group, labels in shown
    ]
    if not rows:
        return "No results yet.\n"
    meaning = "Gain over the unweighted student of the same trial in points of test accuracy ± standard error, best / final"
    others = [f"{arm} over {base}" for arm, base in GAINS.items() if arm in arms and base != "unweighted"]
    hot = (
        ["of temperatures the mean over them (and how many gained)"]
        if any(_pairs(group) for _, _, group, _ in shown)
        else []
    )
    told = of_tests(gaps.values(), len(tested), [_shared(group) for _, _, group, _ in shown])
    grid = markdown(["experiment", "data", "budget", "labels", *arms], rows)
    return joined([grid, f"{'; '.join([meaning, *others, *hot])}. {told}"])


def corrected(differences: Mapping[Place, Difference | None]) -> dict[Place, float]:
    """The p of every difference that was tested, corrected after Holm for the number of all that were."""
    tested = {place: found.p for place, found in differences.items() if found is not None and found.p is not None}
    return dict(zip(tested, holm(list(tested.values())), strict=True))


def compared(group: Sequence[Line], arms: Mapping[str, Any]) -> dict[str, str | None]:
    """What every arm is compared to, also one that only lines have: as on a page, the unweighted arm trained like it."""
    rules = {name: name_of(each) for name, each in arms.items()}
    settings = {name: each.settings if isinstance(each, Arm) else {} for name, each in arms.items()}
    for line in group:
        for name in line["arms"]:
            rules.setdefault(name, line.get("rules", {}).get(name, name).partition("(")[0])
            settings.setdefault(name, line.get("settings", {}).get(name, {}))
    plain = {name: {k: list(v) if isinstance(v, tuple) else v for k, v in each.items()} for name, each in settings.items()}
    return bases(rules, plain)


def of_labels(lines: Sequence[Line], labels: int) -> list[Line]:
    """The lines of one number of labels; where there are none, all."""
    return [line for line in lines if line["labels"] == labels] or list(lines)


def _grid(
    group: Sequence[Line], over: Mapping[str, str | None], paper: Paper, measures: Sequence[Measure]
) -> tuple[str, str]:
    """Teacher and arms by number of labels, and what is said of the tests."""
    columns = sorted({*labels_of(group), *(labels for numbers in paper.values() for labels in numbers)})
    rows = [(arm, base, measure) for arm, base in over.items() for measure in measures]
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
            cells.append(f"{ours}<br>{_gap(gaps[place], tested.get(place), paper_gap(paper, arm, base, labels))}")
        shown.append([f"{name}<br>over {base}", *cells] if base else [name, *(cell.partition("<br>")[0] for cell in cells)])
    grid = markdown(["labels", *(f"{labels:,}" for labels in columns)], shown)
    return grid, of_tests(gaps.values(), len(tested), [_shared(group)])


def _temperatures(
    group: Sequence[Line], labels: int, temperatures: Sequence[float], paper: Paper, measures: Sequence[Measure]
) -> tuple[str, str]:
    pairs = [
        (f"{at:.2f}", f"unweighted-T{at:g}", f"debiased-T{at:g}", measure) for at in temperatures for measure in measures
    ]
    gaps = {place: _difference(group, labels, place[2], place[1], place[3]) for place in pairs}
    tested, rows = corrected(gaps), []
    for place in pairs:
        at, base, ours, measure = place
        scores = [_score(accuracies(group, labels, arm, measure), _number(paper, arm, labels)) for arm in (base, ours)]
        name = at if len(measures) == 1 else f"{at}, {measure}"
        rows.append([name, *scores, _gap(gaps[place], tested.get(place), paper_gap(paper, ours, base, labels))])
    grid = markdown(["temperature", "unweighted", "debiased", "debiased over unweighted"], rows)
    return grid, of_tests(gaps.values(), len(tested), [_shared(group)])


def _later(group: Sequence[Line]) -> str:
    """What stands above the accuracies that are not the best; rows that have trained an arm choose no epoch of it fairly."""
    trained = [arm for arm in arms_of(group) if any(_trained_on_validation(line, arm) for line in group)]
    which = "the arms" if trained == arms_of(group) else listed(trained)
    warning = f", which {which} were trained on too" if trained else ""
    return f"After the last epoch, and at the epoch chosen on the validation rows{warning}:"


def _trained_on_validation(line: Line, arm: str) -> bool:
    said = line.get("recipe", {}) | line.get("settings", {}).get(arm, {})
    return arm in line["arms"] and said.get("validation_in_training") == "yes"


def _pairs(group: Sequence[Line]) -> list[tuple[str, str]]:
    """Arms with and without weights at every temperature."""
    pairs = [(arm, arm.replace("debiased", "unweighted")) for arm in arms_of(group) if arm.startswith("debiased-T")]
    return [pair for pair in pairs if pair[1] in arms_of(group)]


def _gain(group: Sequence[Line], labels: int, arm: str, base: str, measure: Measure) -> Difference | None:
    """As in a table; where there are temperatures, of the means over them in the trials that have all."""
    pairs = _pairs(group) if arm == "debiased" else []
    if not pairs:
        return _difference(group, labels, arm, base, measure)
    sides = [[accuracies(group, labels, name, measure) for name in names] for names in zip(*pairs, strict=True)]
    ours, theirs = ([_mean(trial) for trial in zip(*side, strict=True)] for side in sides)
    return difference(ours, theirs)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if len(known) == len(values) else None


def _gaining(group: Sequence[Line], labels: int) -> str:
    """At how many temperatures the weights gained, best / final; nothing where there are none."""
    pairs = _pairs(group)
    found = [[_difference(group, labels, *pair, measure) for pair in pairs] for measure in BOTH]
    gained = " / ".join(str(sum(each is not None and each.mean > EQUAL for each in gaps)) for gaps in found)
    return f" ({gained} of {len(pairs)})" if pairs else ""


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


def two_gains(
    gaps: Mapping[tuple[int, str, Measure], Difference | None],
    tested: Mapping[tuple[int, str, Measure], float],
    row: int,
    arm: str,
) -> str:
    """A cell with both, best / final."""
    places = [(row, arm, measure) for measure in BOTH]
    found = [(gaps[place], tested.get(place, 1.0)) for place in places]
    texts = [gap(each) + (MARK if p < LEVEL else "") for each, p in found if each]
    return " / ".join(texts) if len(texts) == len(found) else MISSING


def _number(paper: Paper, arm: str, labels: int) -> Number | None:
    return paper.get(arm, {}).get(labels)


def paper_gap(paper: Paper, arm: str, base: str | None, labels: int) -> float | None:
    """Of the paper's means, in points; none where the same numbers stand beside both arms."""
    if base and paper.get(arm) == paper.get(base):
        return None
    pair = _number(paper, arm, labels), _number(paper, base, labels) if base else None
    return pair[0][0] - pair[1][0] if pair[0] and pair[1] else None


def _printed(number: Number) -> str:
    mean, spread = number
    return f"{mean:g}" + (f" ± {spread:g}" if spread is not None else "")


def of_tests(gaps: Iterable[Difference | None], tested: int, shared: Sequence[bool]) -> str:
    """What a mark means, where there is one teacher in all, none, or only some of the trials."""
    even = any(found and found.trials >= FEWEST and found.p is None for found in gaps)
    untested = "a difference that is the same in every trial is not tested"
    if not tested:
        return f"No difference is tested: that needs three trials{f', and {untested}' if even else ''}."
    one = "over splits, for this one teacher,"
    how = f"{one} " if all(shared) else ""
    many = f", corrected for {count(tested, 'comparison')} (Holm)" if tested > 1 else ""
    rest = [f"in rows without fresh teachers, {one[:-1]}"] if any(shared) and not all(shared) else []
    rest += [untested] if even else []
    return "; ".join([f"{MARK} beyond chance {how}in a paired t-test at the 5 % level{many}", *rest]) + "."


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def joined(parts: Iterable[str]) -> str:
    return "\n\n".join(parts) + "\n"
