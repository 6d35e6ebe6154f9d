"""The model card of a student: Markdown with the front matter of Hugging Face. What it is, how good, and where it is from.

The same facts give the same bytes: no times, no paths, nothing of this machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wdistill.core.errors import bad_value, printable
from wdistill.core.settings import settings_of
from wdistill.methods.statistics import Interval, wilson
from wdistill.report.judged import decisions, pool_sentences
from wdistill.report.words import count
from wdistill.runs.arms import first_of
from wdistill.runs.checkpoints import CheckpointStore
from wdistill.runs.folder import read_run
from wdistill.runs.judgement import Judgement
from wdistill.runs.outcome import Outcome
from wdistill.runs.recipe import Recipe

CARD = "README.md"  # as Hugging Face names it
SPLITS = {"labeled": "labeled", "validation": "gold", "unlabeled": "pool", "test": "test"}
ESSENTIAL = (  # settings that a card always names; of the others, those that are not the default
    *("student_epochs", "epochs", "batch_size", "optimizer", "rate", "schedule"),
    *("targets", "temperature", "refresh", "metric", "seed"),
)
PIXELS = ("Its inputs were whole numbers from 0 to 255; it was given these divided by 255.",)
HERE = ("rule", "device", "threads")  # settings that are told elsewhere, or are this machine's


@dataclass(frozen=True)
class StudentFacts:
    """What a card says of the student itself, whatever library it is made with."""

    kind: str  # such as "mlp, 43 parameters"
    library: str  # as Hugging Face names it: pytorch, sklearn, keras
    task: str  # as Hugging Face names it: text-classification, …; "" where it is not known
    inputs: str  # what it reads; Markdown
    classes: tuple[str, ...]  # in the order of its outputs
    code: str  # Python that loads it and predicts
    notes: tuple[str, ...] = ()  # what else is to be known of its use; Markdown


@dataclass(frozen=True)
class Measurement:
    """How often somebody is right, or another metric, on some rows."""

    who: str
    metric: str
    on: str  # such as "20 test rows"
    interval: Interval


@dataclass(frozen=True)
class Provenance:
    """Where a student is from: what its run knows of teacher, data, settings and results."""

    arm: str  # with its options
    teacher: str
    rows: Mapping[str, int]  # by split
    findings: tuple[str, ...]
    measured: tuple[Measurement, ...]
    settings: Mapping[str, str]
    digests: Mapping[str, Mapping[str, str]]  # SHA-256 by split, then by what it is of
    version: str  # of wdistill
    notes: tuple[str, ...] = ()  # what else is to be known of teacher and data


def model_card(student: StudentFacts, provenance: Provenance | None = None) -> str:
    """The card; without a provenance it says that nothing is recorded of teacher and data."""
    task = [f"pipeline_tag: {student.task}"] if student.task else []
    head = ["---", f"library_name: {student.library}", *task, "tags:", "- wdistill", "- knowledge-distillation", "---"]
    parts = [*_student(student), *(_unknown() if provenance is None else _provenance(provenance))]
    return "\n".join([*head, "", "# A distilled student", "", "\n\n".join(parts), ""])


def _student(student: StudentFacts) -> Iterator[str]:
    yield f"A classifier of {len(student.classes)} classes ({plain(student.kind)}), distilled with `wdistill`."
    yield f"## How to use it\n\n{student.inputs}"
    yield f"```python\n{student.code}\n```"
    names = [f"{number}. {plain(name)}" for number, name in enumerate(student.classes)]
    yield "\n".join(["Its classes, in the order of its outputs:", "", *names])
    yield from student.notes


def _unknown() -> Iterator[str]:
    yield "## Where it is from\n\nNothing is recorded here of its teacher, its data and how good it is."


def _provenance(known: Provenance) -> Iterator[str]:
    yield "## How good it is\n\n" + "\n".join(f"- {plain(sentence)}" for sentence in known.findings)
    if known.measured:
        rows = [[each.who, each.metric, _value(each), each.on] for each in known.measured]
        yield _table(("who", "metric", "value (95 % interval)", "on"), rows)
        yield "Intervals are those of rows that were drawn one by one, at random, from what the student will see."
    from_where = [f"Teacher: {known.teacher}.", f"Arm: {known.arm}.", *known.notes]
    yield "## Where it is from\n\n" + "\n".join(f"- {plain(sentence)}" for sentence in from_where)
    sizes = [[name, f"{known.rows[split]:,}"] for split, name in SPLITS.items() if known.rows.get(split)]
    yield _table(("rows", "number"), sizes)
    yield "Gold rows have a true label and were not used to train the teacher."
    yield "## The recipe\n\n" + _table(("setting", "value"), [list(pair) for pair in known.settings.items()])
    digests = [[SPLITS.get(split, split), of, sha] for split, every in known.digests.items() for of, sha in every.items()]
    yield "## The data, by SHA-256\n\n" + _table(("rows", "of their", "SHA-256"), digests)
    yield f"Made with wdistill {known.version}."


def _value(measured: Measurement) -> str:
    interval = measured.interval
    if measured.metric == "accuracy":
        return interval.percent
    return f"{interval.value:.3f} ({interval.low:.3f}–{interval.high:.3f})"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *([plain(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def plain(text: str) -> str:
    """Text that Markdown and HTML show as it is, on one line: names of classes are anybody's."""
    one_line = printable(" ".join(text.split())).replace("&", "&amp;")
    return re.sub(r"([\\`*_#\[\]<>|])", r"\\\1", one_line)


# from a run ------------------------------------------------------------------------------------------------------------


def read_provenance(run: str | Path, arm: str | None = None) -> Provenance:
    """Of the student of one arm of a finished run; by default of the first arm that is not a control."""
    outcome = read_run(run)
    return provenance_of(outcome, CheckpointStore(outcome.folder).state["identity"], arm_of(outcome, arm))


def arm_of(outcome: Outcome, arm: str | None) -> str:
    """The arm whose student is meant; an error where the run is not finished or has no such arm."""
    arm = arm or first_of({name: training.rule for name, training in outcome.arms.items()})
    if outcome.state != "finished" or arm not in outcome.arms:
        found, expected = f"{arm}, of a run that is {outcome.state}", f"an arm of a finished run: {', '.join(outcome.arms)}"
        remedy = "name one of them, or let the run finish first"
        raise bad_value("no such student", str(outcome.folder), found, expected, remedy)
    return arm


def at_chosen(outcome: Outcome, arm: str) -> Outcome:
    """The outcome as if the arm had ended with its chosen epoch; what was judged after its last one is left out."""
    training = outcome.arms[arm]
    if training.chosen is None:
        found, expected = "an arm whose validation rows were not measured", "an epoch that was best on them"
        raise bad_value("no epoch was chosen", f"{outcome.folder}, {arm}", found, expected, "export the final student")
    ended = replace(training, epochs=training.epochs[: training.chosen.epoch])
    return replace(outcome, arms={**outcome.arms, arm: ended}, judgement=Judgement())


def provenance_of(outcome: Outcome, identity: Mapping[str, Any], arm: str) -> Provenance:
    """What a run's outcome and identity say of the student of an arm."""
    told, students = outcome.judgement, outcome.judgement.students
    own = Judgement({arm: students[arm]} if arm in students else {}, tuple(gain for gain in told.pool if gain.arm == arm))
    of_arm = [replace(outcome, judgement=own)]
    accuracies = _accuracies(outcome, arm)
    return Provenance(
        arm=identity["rules"][arm],
        teacher=_teacher(identity, outcome),
        rows=outcome.rows,
        findings=(_verdict(outcome, accuracies), *pool_sentences(of_arm), *decisions(of_arm)),
        measured=(
            *(Measurement(who, "accuracy", _rows(outcome, split), value) for (who, split), value in accuracies.items()),
            *_by_metric(outcome, arm),
        ),
        settings=_settings(outcome, arm),
        digests={name: dict(_digests(identity, name)) for name in identity["data"]},
        version=str(outcome.environment["wdistill"]),
        notes=(*_epoch(outcome, arm), *(PIXELS if identity["data"]["validation"].get("dtype") == "uint8" else ())),
    )


def _epoch(outcome: Outcome, arm: str) -> Iterator[str]:
    """Where the student is not that of the last epoch."""
    after, epochs = len(outcome.arms[arm].epochs), int(_values(outcome, arm)["epochs"])
    if after < epochs:
        yield f"Its parameters are those after epoch {after} of {epochs}, the best on the gold rows."


def _digests(identity: Mapping[str, Any], split: str) -> Iterator[tuple[str, str]]:
    """Of one split: what `Split.fingerprint` tells, and of the table of a teacher."""
    told = identity["data"][split]
    yield from _of_inputs(told, "inputs")
    yield from ((name, told[name]) for name in ("labels", "ids") if told[name])
    if split in (table := identity["teacher"].get("table", {})):
        yield "teacher's predictions", table[split]


def _of_inputs(told: Mapping[str, Any], name: str) -> Iterator[tuple[str, str]]:
    if "sha256" in told:
        yield f"{name}{', evenly spaced rows' if told['sampled'] else ''}", told["sha256"]
    for inner, column in told.get("columns", {}).items():
        yield from _of_inputs(column, f"{name} {inner}")
    for number, part in enumerate(told.get("parts", []), 1):
        yield from _of_inputs(part, f"{name}, part {number}")


def _teacher(identity: Mapping[str, Any], outcome: Outcome) -> str:
    told = identity["teacher"]
    if told.get("table"):
        return "a table of its predictions; the run does not know the model behind them"
    settings = ", ".join(f"{name} {value}" for name, value in told["arguments"].items())
    trained = f"trained on the labeled rows for {count(int(outcome.recipe['teacher_epochs']), 'epoch')}"
    came = (
        trained if outcome.recipe["teacher_epochs"] else f"which came trained (SHA-256 of its parameters {told['values']})"
    )
    return (
        f"{told['network'] or told['type']}{f' ({settings})' if settings else ''}, {told['parameters']:,} parameters, {came}"
    )


def _settings(outcome: Outcome, arm: str) -> dict[str, str]:
    values = _values(outcome, arm)
    fields = settings_of(Recipe)
    named = [name for name in fields if name in values and name not in HERE and fields[name].compared]
    default = {name: list(of.default) if isinstance(of.default, tuple) else of.default for name, of in fields.items()}
    return {name: _shown(values[name]) for name in named if name in ESSENTIAL or values[name] != default[name]}


def _values(outcome: Outcome, arm: str) -> dict[str, Any]:
    """The recipe with what this arm has of its own."""
    return {**outcome.recipe, **outcome.arms[arm].settings}


def _shown(value: Any) -> str:
    return "not set" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)


Accuracies = dict[tuple[str, str], Interval]  # of student or teacher, by split


def _accuracies(outcome: Outcome, arm: str) -> Accuracies:
    """Student and teacher on test rows, the teacher on gold rows, and on the pool where its truth is known."""
    said = outcome.accuracies.get("teacher", {})
    values = {("student", "test"): outcome.arms[arm].final}
    values |= {("teacher", split): said.get(split) for split in ("test", "validation", "unlabeled")}
    return {key: wilson(value, outcome.rows[key[1]]) for key, value in values.items() if value is not None}


def _by_metric(outcome: Outcome, arm: str) -> Iterator[Measurement]:
    """The metric that counts and those beside it, of the student as it decides."""
    if (judged := outcome.judgement.students.get(arm)) is None:
        return
    on = f"{judged.rows:,} {SPLITS.get(judged.measured_on, judged.measured_on)} rows"
    for each in judged.overall:
        if (interval := each.decided or each.likely) is not None and (each.name != "accuracy" or judged.accepted):
            yield Measurement("student, as it decides", each.name, on, interval)


def _rows(outcome: Outcome, split: str) -> str:
    return f"{outcome.rows[split]:,} {SPLITS[split]} rows"


def _verdict(outcome: Outcome, known: Accuracies) -> str:
    """Student against teacher on test rows: which interval is above the other, if one is."""
    student, teacher = known.get(("student", "test")), known.get(("teacher", "test"))
    if student is None:
        return "There were no test rows: how often this student is right was not measured."
    told = f"On {_rows(outcome, 'test')} the student is right on {student.percent}"
    if teacher is None:
        return f"{told}; the teacher was not measured there."
    better = "student" if student.low > teacher.high else "teacher" if teacher.low > student.high else ""
    which = f"the {better} is better" if better else "the intervals overlap, so these rows alone do not tell which is better"
    return f"{told}, the teacher on {teacher.percent}: {which}."
