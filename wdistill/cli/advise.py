"""`wdistill advise`: the verdict before training, printed with its reasons, and with --details all tables behind it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wdistill.cli.correct import add_sources, sources_of
from wdistill.cli.weigh import EPILOG
from wdistill.core.errors import bad_value, printable

if TYPE_CHECKING:
    from rich.console import Console

    from wdistill.answers.verdict import AnswersAdvice, Example
    from wdistill.methods.advice import Advice
    from wdistill.methods.gold_plan import PlanStep
    from wdistill.methods.judged import JudgedTargets
    from wdistill.methods.statistics import Interval
    from wdistill.tables.experts import SampledPredictions
    from wdistill.weights.diagnostics import Bin

CLASSES = 10  # shown at most, those with the lowest accuracies
KINDS = {"forest": "forest", "second": "second student", "student": "student"}  # models trained on labels alone
REASONS = 5  # lines after the verdict, at most
TEXT = 60  # characters of a text that are shown
FEW = 5  # texts that are shown without --details
METRIC = "judge by it too: balanced-accuracy, macro-f1, log-loss, f1:CLASS, recall:CLASS, average-precision:CLASS, …"
PILOTS = (
    "Two pilot students learned three quarters of the unlabeled rows, one the teacher's targets and one the corrected ones; "
    "the corrected targets judged both on the last quarter."
)
NO_PILOTS = "What a student makes of better targets only pilot students tell: name the inputs (--inputs) to train them."


def add(commands: Any) -> None:
    """The command and its flags."""
    from wdistill.answers.request import AnswerOptions
    from wdistill.core.settings import add_flags, settings_of
    from wdistill.tables.options import OF_METHOD, READING, Options

    advise = commands.add_parser(
        "advise",
        help="a verdict before training: what your gold labels could win",
        description="How often the teacher is wrong, who finds it, what each method would change, what a student would\n"
        "gain, and which rows to label next: from an LLM's answers and your gold labels (--answers, --gold), or from\n"
        "tables of predictions (--validation, --unlabeled). It needs scikit-learn: pip install 'wdistill[methods]'.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    flag = advise.add_argument
    gold = "your gold rows, with a true label; repeat to join tables by id"
    unlabeled = "rows that the student will be trained on; repeat to join tables by id"
    add_sources(advise, required=False)
    flag("--validation", action="append", metavar="V", help=gold)
    flag("--unlabeled", action="append", metavar="U", help=unlabeled)
    flag("--labeled", action="append", default=[], metavar="L", help="with --inputs: id, label and inputs of labeled rows")
    flag("--plan", type=Path, metavar="FILE", help="where the rows to label next go: .parquet or .csv")
    flag("--metric", metavar="NAME", help=METRIC)
    flag("--details", action="store_true", help="print all tables behind the verdict")
    names = (*OF_METHOD["best"], *READING, "escape_formulas")
    add_flags(advise, Options, names)
    add_flags(advise, AnswerOptions, [name for name in settings_of(AnswerOptions) if name not in names])
    advise.set_defaults(run=run_advise)


def run_advise(arguments: argparse.Namespace) -> None:
    from dataclasses import replace

    from rich.console import Console

    from wdistill.core import checks
    from wdistill.core.settings import flags_given
    from wdistill.methods.advice import advise
    from wdistill.methods.crossfit import need_sklearn
    from wdistill.methods.metric import parse_metric
    from wdistill.tables.experts import open_experts, predict_sample
    from wdistill.tables.options import Options, Paths, check_options, read_options
    from wdistill.tables.pilots import table_pilots

    need_sklearn("advise")
    if arguments.answers:
        run_on_answers(arguments)
        return
    if not arguments.validation or not arguments.unlabeled:
        expected = "--answers FILE and --gold FILE; or tables of predictions, --validation V and --unlabeled U"
        raise bad_value("nothing to advise on", "advise", "neither answers nor tables", expected, "name your files")
    refuse_answer_flags(arguments)
    paths = Paths(arguments.validation, arguments.unlabeled, arguments.labeled)
    options = read_options({**flags_given(arguments, Options), "method": "best"})
    check_options(options, paths)
    _check_plan(arguments, paths.all)
    with checks.collect_warnings():
        experts = open_experts(paths, options)
        sample = predict_sample(experts)
        experts.source.warn_of_scaling()
        if len(sample.ids) < sample.drawn:
            checks.warn(f"{sample.drawn - len(sample.ids):,} unlabeled rows are not in all tables, and are left out")
        names = experts.evidence.classes or [str(number) for number in range(experts.classes)]
        metric = None if arguments.metric is None else parse_metric(arguments.metric, names)
        advice = advise(sample.context, sample.concerns, table_pilots(experts, sample), metric)
        advice = replace(advice, unlabeled=sample.rows, sampled=sample.drawn)
    if arguments.plan is not None:
        _write_plan(_plan(advice, sample, experts.ids), arguments.plan, options.escape_formulas)
    print_advice(advice, Console(), experts.evidence.classes, arguments.plan, details=arguments.details)


TABLE_FLAGS = (
    "validation",
    "unlabeled",
    "labeled",
    "opinions",
    "kind",
    "soft_labels",
    "renormalize",
    "allow_subset",
)  # without a meaning for answers


def refuse_answer_flags(arguments: argparse.Namespace) -> None:
    """Refuse flags that only answers have, where tables are named."""
    from wdistill.answers.request import AnswerOptions
    from wdistill.core.settings import flags_given
    from wdistill.tables.options import Options

    own = [name for name in flags_given(arguments, AnswerOptions) if name not in flags_given(arguments, Options)]
    own += [name for name in ("gold", "pool") if getattr(arguments, name)]
    if own:
        flag = f"--{own[0].replace('_', '-')}"
        raise bad_value("needs --answers", flag, "tables of predictions", "options that belong together", "leave it out")


def run_on_answers(arguments: argparse.Namespace) -> None:
    from rich.console import Console

    from wdistill.answers.request import AnswerOptions
    from wdistill.answers.verdict import advise_answers
    from wdistill.core.settings import flags_given, read_settings, words

    given = [name for name in TABLE_FLAGS if getattr(arguments, name) not in (None, [])]
    if given:
        flag = f"--{given[0].replace('_', '-')}"
        raise bad_value("is for tables of predictions", flag, "--answers", "options that belong together", "leave it out")
    flags = flags_given(arguments, AnswerOptions)
    if isinstance(flags.get("inputs"), str):
        flags["inputs"] = words(flags["inputs"])
    sources = sources_of(arguments)
    _check_plan(arguments, sources.all)
    advice = advise_answers(sources, read_settings(AnswerOptions, flags), arguments.metric)
    if arguments.plan is not None:
        _write_plan(advice.plan, arguments.plan, bool(arguments.escape_formulas))
    print_answers_advice(advice, Console(), arguments.plan, details=arguments.details)


def print_answers_advice(found: AnswersAdvice, console: Console, plan: Path | None = None, *, details: bool = False) -> None:
    """The verdict, why, the teacher class by class, and rows to look at."""

    def say(line: str, **style: Any) -> None:
        console.print(printable(line), highlight=False, markup=False, soft_wrap=True, **style)

    advice = found.advice
    say(f"Verdict: {found.verdict}", style="bold")
    say(found.found)
    say(f"{found.labels}; classes: {', '.join(found.classes[:20])}")
    if found.hint:
        say(found.hint)
    for line in reasons(advice):
        say(line)
    raised = f"{found.recalibrated_likelihood:+.3f}".replace("-", "−")
    say(f"Recalibrated on gold, the teacher alone is right on {found.recalibrated.percent}; log-likelihood {raised} a row.")
    if advice.judged is not None:
        console.print(_judged_table(advice.judged, found.classes), highlight=False)
    console.print(_class_table(found), highlight=False)
    if found.confusions:
        console.print(_confusion_table(found), highlight=False)
    for title, rows in (("Rows whose label would change", found.changed), ("Rows to label next", found.next)):
        if rows:
            console.print(_example_table(title, rows if details else rows[:FEW]), highlight=False)
    for table in tables(advice, found.classes) if details else ():
        console.print(table, highlight=False)
    if plan is not None:
        say(f"Rows to label next: {plan}")
    if not details:
        say("All tables: --details")


def _class_table(found: AnswersAdvice) -> Any:
    shown = sorted(found.figures, key=lambda each: each.f1.value if each.f1.value == each.f1.value else 2.0)[:CLASSES]
    rows = [(each.name, f"{each.rows:,}", each.precision.percent, each.recall.percent, each.f1.percent) for each in shown]
    title = "The teacher on gold, class by class" + (f": the {CLASSES} lowest" if len(found.figures) > CLASSES else "")
    return _table(title, ("class", "rows", "precision", "recall", "F1"), rows)


def _confusion_table(found: AnswersAdvice) -> Any:
    rows = [(each.truth, each.answered, f"{each.rows:,}") for each in found.confusions[:5]]
    return _table("What it confuses", ("is", "was taken for", "gold rows"), rows)


def _example_table(title: str, examples: Sequence[Example]) -> Any:
    rows = [
        (each.id, each.text[:TEXT].replace("\n", " "), f"{each.teacher} → {each.target}", f"{100 * each.confidence:.0f} %")
        for each in examples
    ]
    return _table(title, ("id", "text", "teacher → target", "sure"), rows)


def print_advice(
    advice: Advice, console: Console, names: Sequence[str] | None = None, plan: Path | None = None, *, details: bool = False
) -> None:
    """The verdict in one line, why in at most five, and the tables behind it where details are wanted."""
    written = [] if plan is None else [f"Rows to label next: {plan}"]
    console.print(f"Verdict: {advice.verdict}", style="bold", highlight=False, markup=False, soft_wrap=True)
    for line in (*reasons(advice), *written, *([] if details else ["All tables: --details"])):
        console.print(printable(line), highlight=False, markup=False, soft_wrap=True)
    if advice.judged is not None:
        console.print(_judged_table(advice.judged, names), highlight=False)
    for table in tables(advice, names) if details else ():
        console.print(table, highlight=False)


def reasons(advice: Advice) -> list[str]:
    """Why, in at most five lines: first what would change the verdict, then teacher, targets, student and gold."""
    warnings = [f"Look first: {concern.text}." for concern in advice.concerns]
    if len(warnings) > REASONS:
        hidden = len(warnings) - REASONS + 1
        warnings[REASONS - 1 :] = [f"Look first: {hidden} more findings, which --details lists."]
    return [*warnings, *_why(advice)][:REASONS]


def _why(advice: Advice) -> Iterator[str]:
    last, targets, changed = advice.steps[-1], advice.accuracies["corrected, expected"], advice.changes[-1].changed
    if advice.alone:
        right = f"{100 * advice.accuracies[f'{advice.alone} alone'].value:.1f} %"
        yield f"Labels alone do better: a {KINDS[advice.alone]} is right on {right}. Try without the teacher."
    yield f"{_rows(advice)}; intervals are 95 %."
    yield f"The teacher is right on {advice.teacher.percent} of the gold rows."
    yield f"Corrected targets: {targets.percent} expected; {100 * changed.value:.1f} % of rows change class."
    yield _student_gain(advice)
    if advice.alone:
        return
    if advice.teaching is None:
        yield f"Even {last.more:,} more gold rows would hardly make better targets."
    else:
        yield f"{_more(advice.teaching, advice)}."


def _student_gain(advice: Advice) -> str:
    """What targets gain, and what pilot students made of it."""
    interval = advice.gain.interval
    targets = f"Targets gain {_points(interval.value)} points ({_span(interval)})"
    if advice.forecast is None:
        return f"{targets}; a student's gain is not foretold."
    return f"{targets}; pilot students {_points(advice.forecast.value)} ({_span(advice.forecast)})."


def _rows(advice: Advice) -> str:
    sample = f", of which {advice.sampled:,} drawn at random were read" if advice.sampled < advice.unlabeled else ""
    return f"{advice.gold:,} gold rows, {advice.unlabeled:,} unlabeled rows{sample}"


def _plan(advice: Advice, sample: SampledPredictions, gold: Any) -> Any:
    """A table of the ids to label next, no gold rows: for judging and for teaching, each in the order to label."""
    import numpy as np
    import pyarrow as pa

    from wdistill.methods.gold_plan import rows_to_label
    from wdistill.tables.experts import is_in

    n = len(sample.ids)
    labeled = np.flatnonzero(is_in(sample.ids, gold)) if sample.named else np.arange(0)
    judging, teaching = rows_to_label(n, advice.next, labeled)
    use = np.repeat(["judge", "teach"], [len(judging), len(teaching)])
    return pa.table({"id": sample.ids.take(pa.array(np.concatenate([judging, teaching]))), "use": pa.array(use)})


def _write_plan(table: Any, path: Path, escape: bool) -> None:
    from wdistill.tables import output

    assembly = output.Assembly(table.schema, table.num_rows, lambda: iter(table.to_batches()), escape)
    output.write_output(path, None, assembly, {"rows": table.num_rows})


def _check_plan(arguments: argparse.Namespace, sources: Sequence[str]) -> None:
    """Refuse a plan that could not be written, and what is said of a plan where there is none."""
    from wdistill.tables.options import Paths, check_output

    escape = bool(arguments.escape_formulas)
    if arguments.plan is not None:
        check_output(arguments.plan, (".parquet", ".csv"), Paths(sources), "--plan", escape_formulas=escape)
    elif escape:
        remedy = "add --plan next.csv, or leave it out"
        raise bad_value("needs --plan FILE.csv", "--escape-formulas", "no --plan", "options that belong together", remedy)


def tables(advice: Advice, names: Sequence[str] | None) -> Iterator[Any]:
    """All numbers behind the verdict, table by table, in 80 columns."""
    from rich.text import Text

    for concern in advice.concerns if len(advice.concerns) > REASONS else ():
        yield Text(f"Look first: {printable(concern.text)}.", style="bold")
    yield Text(f"\n{_rows(advice)}. In brackets: 95 % intervals.\n")
    yield _teacher_table(advice, names)
    yield _finder_table(advice)
    whole = advice.sampled == advice.unlabeled  # all rows were counted: no interval
    yield _table(
        "What each method would change",
        ("method", "rows changed", "effective sample size"),
        [
            (
                change.name,
                f"{100 * change.changed.value:.1f} %" if whole else change.changed.percent,
                f"{100 * change.effective:.1f} % of the rows",
            )
            for change in advice.changes
        ],
    )
    yield _table(
        "Expected accuracy of the targets",
        ("targets by", "accuracy"),
        [(name, accuracy.percent) for name, accuracy in advice.accuracies.items()],
    )
    yield _table(
        "What more gold rows would do",
        ("more rows", "gain, standard error", "projected gain"),
        [(f"{step.more:,}", f"± {step.error:.2f} points", f"{_points(step.gain)} points") for step in advice.steps],
    )
    yield Text(f"{_next(advice)} Rows for judging must be drawn at random; rows for teaching may be chosen.\n")
    if advice.alone:
        yield Text(f"{_without_teacher(advice)}\n")
    yield Text(f"{_student_gain(advice)} {PILOTS if advice.forecast else NO_PILOTS}\n")
    yield Text(
        f"`--method best` would teach the gold rows as labels, and for the others {printable(advice.correction.why)}."
    )


def _next(advice: Advice) -> str:
    """How many rows to label."""
    judging = [f"{advice.judging:,} more would tell whether other targets gain."] if advice.judging is not None else []
    teaching = f"Even {advice.steps[-1].more:,} more gold rows would hardly improve the correction"
    if advice.teaching is not None:
        teaching = _more(advice.teaching, advice)
    return " ".join([*judging, f"{teaching}, with the experts as they are; experts that learn from gold rows gain too."])


def _more(step: PlanStep, advice: Advice) -> str:
    last, now = advice.steps[-1], advice.gain.points
    part = f"{_points(step.gain - now)} of the {_points(last.gain - now)} points"
    return f"{step.more:,} more gold rows bring {part} that {last.more:,} would"


def _without_teacher(advice: Advice) -> str:
    own, teacher = (f"{100 * x.value:.1f} %" for x in (advice.accuracies[f"{advice.alone} alone"], advice.teacher))
    return (
        f"Labels alone do better than the teacher here: a {KINDS[advice.alone]} trained on labeled and gold rows is right "
        f"on {own} of gold, the teacher on {teacher}. Train a student without the teacher too, and compare."
    )


def _teacher_table(advice: Advice, names: Sequence[str] | None) -> Any:
    order = [c for c in range(len(advice.by_class)) if advice.class_rows[c]]
    lowest = sorted(sorted(order, key=lambda c: advice.by_class[c].value)[:CLASSES])
    rows = [("all", f"{advice.gold:,}", advice.teacher.percent)]
    rows += [(names[c] if names else str(c), f"{advice.class_rows[c]:,}", advice.by_class[c].percent) for c in lowest]
    title = "The teacher on gold" + (f", the {CLASSES} classes with the lowest accuracy" if len(order) > CLASSES else "")
    return _table(title, ("class", "rows", "accuracy"), rows)


def _judged_table(judged: JudgedTargets, names: Sequence[str] | None) -> Any:
    """Teacher and corrected targets by the user's metric, overall and by class."""
    shown = sorted(range(len(judged.by_class)), key=lambda c: judged.by_class[c][0].value)[:CLASSES]
    rows = [("all", _number(judged.teacher), _number(judged.corrected))]
    for c in sorted(shown):
        teacher, corrected = judged.by_class[c]
        rows.append((names[c] if names else str(c), _number(teacher), _number(corrected)))
    rows.append(("gain of the targets", "", _number(judged.gain, "+")))
    if judged.forecast is not None:
        rows.append(("gain of pilot students", "", _number(judged.forecast, "+")))
    return _table(
        f"By {judged.metric}, on gold, out of fold; 95 % intervals", ("class", "teacher", "corrected targets"), rows
    )


def _number(interval: Interval, sign: str = "") -> str:
    """To three digits, with its interval."""
    return f"{interval.value:{sign}.3f} ({interval.low:{sign}.3f} to {interval.high:{sign}.3f})".replace("-", "−")


def _finder_table(advice: Advice) -> Any:
    rows = []
    for finder in advice.detectors:
        auc = _area(finder.auc, finder.auc_error) if finder.auc == finder.auc else "no errors"
        rows.append((finder.name, auc, f"{finder.calibration_error:.3f}", _predicted_and_observed(finder.bins)))
    return _table(
        "Who finds the teacher's errors on gold, out of fold",
        ("evidence", "AUC", "calibration\nerror", "% wrong,\npredicted/observed"),
        rows,
    )


def _area(auc: float, error: float) -> str:
    """With its 95 % interval."""
    from wdistill.methods.statistics import Z

    low, high = max(0.0, auc - Z * error), min(1.0, auc + Z * error)
    return f"{auc:.2f} ({low:.2f}–{high:.2f})"


def _predicted_and_observed(bins: Sequence[Bin]) -> str:
    """Percentages of errors in fifths of the gold rows, from the most trusted."""
    return " ".join(f"{100 * (1 - fifth.mean):.0f}/{100 * (1 - fifth.accuracy):.0f}" for fifth in reversed(bins))


def _points(value: float) -> str:
    """With its sign, to one digit."""
    from wdistill.report.words import MINUS

    return f"{value:+.1f}".replace("-", MINUS)


def _span(interval: Interval) -> str:
    return f"{_points(interval.low)} to {_points(interval.high)}"


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(*header, title=title, title_justify="left")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))  # Text: brackets of users are no markup
    return table
