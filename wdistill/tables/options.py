"""What a user of `weigh`, `advise` and `inspect` may choose, and the checks that come before any table is opened."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from wdistill.core.errors import ConfigError, bad_value, unreadable, wrong_extension
from wdistill.core.settings import read_settings, setting, settings_of, to_json, words
from wdistill.methods.metric_text import written_out
from wdistill.weights.rules import RULES, RuleSettings, check_names, missing_settings, rules_taking, unused_settings

RULE_LIST = ", ".join(RULES)


class NamesFromFile(tuple[str, ...]):
    """Class names that were read from a file, which no output may replace."""

    file: str


def files_of_settings(flags: Mapping[str, Any]) -> list[str]:
    """The files that flags name, beside tables: class names, and costs."""
    names, metric = flags.get("classes"), flags.get("metric")
    named = [names.file] if isinstance(names, NamesFromFile) else []
    return named + ([metric.removeprefix("cost:")] if isinstance(metric, str) and metric.startswith("cost:") else [])


def read_class_names(text: str) -> tuple[str, ...]:
    """Class names from a list, or from a file with one a line."""
    if "," in text:
        return words(text)
    try:
        lines = Path(text).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        expected = "a text file with one name a line, or names separated by commas"
        remedy = "correct the path, or list the names: --classes cat,dog"
        raise unreadable("the file of class names cannot be read", f"--classes {text}", error, expected, remedy) from None
    names = NamesFromFile(line.strip() for line in lines if line.strip())
    names.file = text
    return names


@dataclass(frozen=True)
class Options(RuleSettings):
    """The options of a table job; the flags of the commands are these fields."""

    method: Literal["paper", "best"] = setting(
        "paper", "paper: weights by --rule; best: targets corrected by the gold rows (--validation)"
    )
    rule: tuple[str, ...] = setting(
        ("debiased",), f"{RULE_LIST}; several with commas are multiplied", least=1, metavar="RULE[,RULE…]"
    )
    kind: Literal["probabilities", "logits", "logprobs"] = setting("probabilities", "what the predictions are")
    classes: tuple[str, ...] | None = setting(
        None,
        "class names for string labels: a list, or a file, one a line",
        parse=read_class_names,
        metavar="A,B,… | FILE",
    )
    truth: str | None = setting(None, "column of U with true labels, for the rule oracle", metavar="COLUMN")
    soft_labels: bool = setting(False, "labels in V are one-hot or distributions")
    renormalize: bool = setting(False, "scale rows of probabilities to sum to 1")
    allow_subset: bool = setting(False, "use only the ids that all tables have")
    escape_formulas: bool = setting(False, "in a .csv output: ' before text that a spreadsheet would run as formulas")
    opinions: tuple[str, ...] = setting(
        (),
        "in V and U: predictions of models that never saw the validation rows, such as a second LLM",
        metavar="COLUMN[,COLUMN…]",
    )
    targets_from: str = setting(
        "average",
        "what best teaches: average, posterior, or an expert such as teacher or retrained, also with -recalibrated",
    )
    inputs: str | None = setting(
        None, "in V, U and L: numbers that a random forest is trained on, as another expert", metavar="COLUMN"
    )
    group: str | None = setting(
        None,
        "in V, and in L: documents, users or queries whose rows belong together; by default 'group', where V has it",
        metavar="COLUMN",
    )
    inclusion: str | None = setting(
        None,
        "in V: the probability with which a row was drawn; by default 'inclusion', where V has it",
        metavar="COLUMN",
    )
    metric: str | None = setting(
        None,
        "say what best gains by it too (the targets are the same): macro-f1, log-loss, f1:CLASS, cost:FILE, …",
        metavar="NAME",
    )


OF_METHOD = {  # options that one method alone looks at
    "paper": ("rule", *(name for name in settings_of(RuleSettings) if name != "targets"), "truth"),
    "best": ("opinions", "inputs", "targets_from", "group", "inclusion", "metric"),
}
TOLD = ("group", "inclusion", "metric")  # in records only where they were told
READING = ("targets", "kind", "classes", "soft_labels", "renormalize", "allow_subset")  # of both methods
RESERVED = ("id", "label", "teacher", "student", "forest", "second", "retrained")  # no names of opinions


@dataclass(frozen=True)
class Paths:
    """The tables of a job, as the command line names them."""

    validation: Sequence[str]
    unlabeled: Sequence[str] = ()
    labeled: Sequence[str] = ()
    settings: Sequence[str] = ()  # files that options name: class names, costs

    @property
    def all(self) -> list[str]:
        return [*self.validation, *self.unlabeled, *self.labeled]


def read_options(flags: Mapping[str, Any]) -> Options:
    """The options of flags, with the costs that a file of them holds.

    Those that the method does not look at are refused, even where they say the default.
    """
    options = read_settings(Options, flags)
    other = "best" if options.method == "paper" else "paper"
    for name in OF_METHOD[other]:
        if name in flags:
            raise _conflict(f"--{name}", f"needs --method {other}", f"--method {options.method}")
    return options if options.metric is None else replace(options, metric=written_out(options.metric))


def option_record(options: Options) -> dict[str, Any]:
    """The options that the method looks at, as JSON can hold them."""
    others = (*OF_METHOD["best" if options.method == "paper" else "paper"], "method")
    untold = [name for name in TOLD if getattr(options, name) is None]
    return {name: value for name, value in to_json(options).items() if name not in (*others, *untold)}


def takes_mean(options: Options) -> bool:
    """Whether a rule needs the mean entropy of all rows, which takes a pass over the tables of its own."""
    return not {*rules_taking("mean")}.isdisjoint(options.rule)


def check_options(options: Options, paths: Paths) -> None:
    """Refuse options that exclude each other."""
    if options.renormalize and options.kind == "logits":
        raise _conflict("--renormalize", "has no meaning with --kind logits", "--kind logits")
    if options.method == "paper":
        _check_rules(options, paths)
    else:
        _check_experts(options, paths)


def _check_rules(options: Options, paths: Paths) -> None:
    check_names(options.rule, "--rule")
    conflicts: list[tuple[str, str]] = []
    conflicts += [(f"--rule {rule}", f"needs --{name} VALUE") for name, rule in missing_settings(options, options.rule)]
    conflicts += [(f"--{name}", _needs(rules)) for name, rules in unused_settings(options, options.rule)]
    labeling = [name for name, rule in RULES.items() if "truth" in rule.needs]
    used = [name for name in labeling if name in options.rule]
    if used and options.truth is None:
        conflicts.append((f"--rule {used[0]}", "needs --truth COLUMN"))
    if options.truth is not None and not used:
        conflicts.append(("--truth", _needs(labeling)))
    if paths.labeled and not takes_mean(options):
        conflicts.append(("--labeled", _needs(rules_taking("mean"))))
    for where, what in conflicts:
        raise _conflict(where, what, f"--rule {','.join(options.rule)}")


def _needs(rules: Sequence[str]) -> str:
    return f"needs --rule {' or '.join(rules)}"


def _check_experts(options: Options, paths: Paths) -> None:
    from wdistill.methods.crossfit import need_sklearn
    from wdistill.methods.targets import check_source

    if paths.labeled and options.inputs is None:
        raise _conflict("--labeled", "needs --inputs COLUMN, which a forest learns from", "no --inputs")
    _check_columns("--inputs", [options.inputs] if options.inputs else [], RESERVED)
    _check_columns("--opinions", options.opinions, (*RESERVED, *([options.inputs] if options.inputs else [])))
    predictions = (*RESERVED, *options.opinions, *([options.inputs] if options.inputs else []))
    _check_columns("--group", [] if options.group is None else [options.group], predictions)
    drawn = (*predictions, *([options.group] if options.group else []))
    _check_columns("--inclusion", [] if options.inclusion is None else [options.inclusion], drawn)
    check_source(options.targets_from, ("teacher", "student", *options.opinions, "forest"), "--targets-from")
    if options.inputs:
        need_sklearn("--inputs")


def _check_columns(where: str, names: Sequence[str], reserved: Collection[str]) -> None:
    """Refuse columns that are something else already."""
    bad = [name for name in names if not name or name in reserved]
    if bad:
        found, expected = ", ".join(map(repr, bad)), f"columns of their own, not {', '.join(reserved)}"
        raise bad_value("names a column that is something else", where, found, expected, "name another column")


def _conflict(where: str, what: str, found: str) -> ConfigError:
    return bad_value(what, where, found, "options that belong together", "add what is needed, or leave this out")


def check_output(
    path: Path, extensions: Collection[str], paths: Paths, flag: str = "--output", *, escape_formulas: bool = False
) -> None:
    """Refuse an output that could not be written, or that is one of the inputs or would be read as one later."""
    where = f"{flag} {path}"
    if path.suffix.lower() not in extensions:
        raise wrong_extension("unknown kind of output", where, path, extensions)
    if escape_formulas and path.suffix.lower() != ".csv":
        raise _conflict("--escape-formulas", f"needs {flag} FILE.csv", where)
    if path.is_dir():
        raise bad_value("the output is a folder", where, "a folder", "a file name", f"name a file in it: {path / path.name}")
    if not path.parent.is_dir():
        remedy = f"make it first: mkdir -p {path.parent}"
        raise bad_value(
            "the output's folder does not exist", where, f"no folder {path.parent}", "an existing folder", remedy
        )
    check_not_read(path, [*paths.all, *paths.settings], where)


def check_not_read(path: Path, sources: Sequence[str], where: str) -> None:
    """Refuse an output that is one of the files that are read, or lies in a folder of them."""
    output = path.resolve()
    for source in filter(str.strip, sources):
        given = Path(source.partition("=")[2] if source.endswith(".npy") and "=" in source else source).resolve()
        if output == given or (output.parent == given and given.is_dir()) or output.match(str(given)):
            remedy = "write to another folder or under another name"
            raise bad_value("the output is among the inputs", where, f"{source} is read", "an output of its own", remedy)
