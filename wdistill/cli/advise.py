"""`wdistill advise`: the verdict before training, printed with its reasons, and with --details all tables behind it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wdistill.cli.correct import add_sources, sources_of
from wdistill.cli.question_flags import QuestionFlags, questions_of
from wdistill.cli.weigh import EPILOG
from wdistill.core.errors import bad_value, printable

if TYPE_CHECKING:
    from rich.console import Console

    from wdistill.answers.verdict import AnswersAdvice
    from wdistill.methods.advice import Advice
    from wdistill.methods.agreement import AccuracyBeyondCeiling, AnnotatorAgreement
    from wdistill.tables.experts import SampledPredictions

FEW = 5  # texts that are shown without --details
METRIC = (
    "judge by it too: balanced-accuracy, macro-f1, log-loss, f1:CLASS, recall:CLASS, average-precision:CLASS, cost:FILE, …"
)


def add(commands: Any) -> None:
    """The command and its flags."""
    from wdistill.answers.request import AnswerOptions
    from wdistill.core.settings import add_flags, settings_of
    from wdistill.tables.options import OF_METHOD, READING, Options

    advise = commands.add_parser(
        "advise",
        help="a verdict before training: what your gold labels could win",
        description="How often the teacher is wrong, who finds it, what each method would change, roughly what a student\n"
        "would gain, and which rows to label next: from an LLM's answers and your gold labels (--answers, --gold), or\n"
        "from tables of predictions (--validation, --unlabeled). It needs scikit-learn: pip install 'wdistill[methods]'.",
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
    add_flags(advise, Options, [name for name in names if name != "metric"])
    add_flags(advise, AnswerOptions, [name for name in settings_of(AnswerOptions) if name not in names])
    add_flags(advise, QuestionFlags)
    advise.set_defaults(run=run_advise)


def run_advise(arguments: argparse.Namespace) -> None:
    from dataclasses import replace

    from rich.console import Console

    from wdistill.core import checks
    from wdistill.core.settings import flags_given
    from wdistill.methods.advice import advise
    from wdistill.methods.crossfit import need_sklearn
    from wdistill.tables.experts import open_experts, predict_sample
    from wdistill.tables.options import Options, Paths, check_options, read_options
    from wdistill.tables.pilots import table_pilots

    need_sklearn("advise")
    questions = questions_of(arguments)
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
        advice = advise(sample.context, sample.concerns, table_pilots(experts, sample), experts.metric, questions)
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
    advice = advise_answers(sources, read_settings(AnswerOptions, flags), arguments.metric, questions_of(arguments))
    if arguments.plan is not None:
        _write_plan(advice.plan, arguments.plan, bool(arguments.escape_formulas))
    print_answers_advice(advice, Console(), arguments.plan, details=arguments.details)


def print_answers_advice(found: AnswersAdvice, console: Console, plan: Path | None = None, *, details: bool = False) -> None:
    """The verdict, why, the teacher class by class, and rows to look at."""
    from wdistill.cli.advice_tables import class_table, confusion_table, costs_table, example_table, judged_table, tables
    from wdistill.cli.reasons import beyond, reasons

    def say(line: str, **style: Any) -> None:
        console.print(printable(line), highlight=False, markup=False, soft_wrap=True, **style)

    advice = found.advice
    say(f"Verdict: {found.verdict}", style="bold")
    say(found.found)
    say(f"{found.labels}; classes: {', '.join(found.classes[:20])}")
    if found.agreement is not None:
        say(agreement_in_words(found.agreement))
    if found.beyond_ceiling is not None:
        say(beyond_ceiling_in_words(found.beyond_ceiling))
    if found.hint:
        say(found.hint)
    for line in reasons(advice):
        say(line)
    raised = f"{found.recalibrated_likelihood:+.3f}".replace("-", "−")
    say(f"Recalibrated on gold, the teacher alone is right on {found.recalibrated.percent}; log-likelihood {raised} a row.")
    for line in beyond(advice):
        say(line)
    shown = [] if advice.costs is None else [costs_table(advice.costs)]
    shown += [] if advice.judged is None else [judged_table(advice.judged, found.classes)]
    shown += [class_table(found), *([confusion_table(found)] if found.confusions else [])]
    for title, rows in (("Rows whose label would change", found.changed), ("Rows to label next", found.next)):
        shown += [example_table(title, rows if details else rows[:FEW])] if rows else []
    for table in (*shown, *(tables(advice, found.classes) if details else ())):
        console.print(table, highlight=False)
    if plan is not None:
        say(f"Rows to label next: {plan}")
    if not details:
        say("All tables: --details")


def agreement_in_words(found: AnnotatorAgreement) -> str:
    """How often two annotators agree, and the ceiling that this sets."""
    ceiling = f"{100 * found.ceiling.value:.0f} % ({100 * found.ceiling.low:.0f}–{100 * found.ceiling.high:.0f})"
    return (
        f"Two annotators agree on {found.pairwise.percent} of {found.rows:,} rows: no model can be measured above about "
        f"{ceiling} on the labels of one of them."
    )


def beyond_ceiling_in_words(found: AccuracyBeyondCeiling) -> str:
    """The teacher's accuracy as annotators measure it, and as it is without their errors, with what that assumes."""
    return (
        f"On {found.rows:,} rows with several labels, ties too, the teacher agrees with {100 * found.measured:.1f} % of the "
        f"labels; against the truth it would be right on {found.corrected.percent}, if teacher and annotators err "
        "independently of each other, annotators equally often, and take any wrong class alike."
    )


def print_advice(
    advice: Advice, console: Console, names: Sequence[str] | None = None, plan: Path | None = None, *, details: bool = False
) -> None:
    """The verdict in one line, why in at most five, rows and costs, and the tables behind it where details are wanted."""
    from wdistill.cli.advice_tables import costs_table, judged_table, tables
    from wdistill.cli.reasons import beyond, reasons

    written = [] if plan is None else [f"Rows to label next: {plan}"]
    console.print(printable(f"Verdict: {advice.verdict}"), style="bold", highlight=False, markup=False, soft_wrap=True)
    for line in (*reasons(advice), *beyond(advice), *written, *([] if details else ["All tables: --details"])):
        console.print(printable(line), highlight=False, markup=False, soft_wrap=True)
    shown = [] if advice.costs is None else [costs_table(advice.costs)]
    shown += [] if advice.judged is None else [judged_table(advice.judged, names)]
    for table in (*shown, *(tables(advice, names) if details else ())):
        console.print(table, highlight=False)


def _plan(advice: Advice, sample: SampledPredictions, gold: Any) -> Any:
    """A table of the ids to label next, no gold rows: for judging and for teaching, each in the order to label."""
    import numpy as np
    import pyarrow as pa

    from wdistill.methods.gold_plan import inclusion_column, judging_inclusion, rows_to_label
    from wdistill.tables.experts import is_in

    n = len(sample.ids)
    labeled = np.flatnonzero(is_in(sample.ids, gold)) if sample.named else np.arange(0)
    judging, teaching = rows_to_label(n, advice.next, labeled)
    use = np.repeat(["judge", "teach"], [len(judging), len(teaching)])
    inclusion = inclusion_column(judging_inclusion(sample.context, sample.rows), len(judging), len(teaching))
    ids = sample.ids.take(pa.array(np.concatenate([judging, teaching])))
    return pa.table({"id": ids, "use": pa.array(use), "inclusion": pa.array(inclusion, pa.float64())})


def _write_plan(table: Any, path: Path, escape: bool) -> None:
    from wdistill.tables import output
    from wdistill.tables.content import ContentDigest

    assembly, content = (
        output.Assembly(table.schema, table.num_rows, lambda: iter(table.to_batches()), escape),
        ContentDigest(),
    )
    with output.open_output(path, None, assembly) as sink:
        for batch in assembly.batches():
            content.add(batch)
            sink.add(batch)
        sink.finish({"rows": table.num_rows, "sha256": content.hexdigest()})


def _check_plan(arguments: argparse.Namespace, sources: Sequence[str]) -> None:
    """Refuse a plan that could not be written, and what is said of a plan where there is none."""
    from wdistill.tables.options import Paths, check_output, files_of_settings

    escape = bool(arguments.escape_formulas)
    if arguments.plan is not None:
        read = Paths(sources, settings=files_of_settings(vars(arguments)))
        check_output(arguments.plan, (".parquet", ".csv"), read, "--plan", escape_formulas=escape)
    elif escape:
        remedy = "add --plan next.csv, or leave it out"
        raise bad_value("needs --plan FILE.csv", "--escape-formulas", "no --plan", "options that belong together", remedy)
