"""What a user of `wdistill weigh` may choose, and the rule that comes of it."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from wdistill.confidence import entropy, margin
from wdistill.errors import ConfigError
from wdistill.rules import EntropyMean, Rule, compose, debiased, fidelity, oracle, threshold, unweighted

RULES: dict[str, Rule[...]] = {
    "debiased": debiased,
    "unweighted": unweighted,
    "fidelity": fidelity,
    "threshold": threshold,
    "oracle": oracle,
}
NEEDS = {  # the columns of the unlabeled table that each rule looks at
    "debiased": ("teacher", "student"),
    "unweighted": (),
    "fidelity": ("teacher",),
    "threshold": ("teacher",),
    "oracle": ("teacher", "truth"),
}
CONFIDENCES = {"margin": margin, "entropy": entropy}


@dataclass(frozen=True)
class Options:
    """What a user may choose; the command line's flags are these fields."""

    rule: tuple[str, ...] = ("debiased",)  # rules whose weights are multiplied
    confidence: str = "margin"  # margin or entropy
    targets: str = "soft"  # soft or hard
    estimate: str = "paper"  # paper, conditional or ratio
    neighbors: int | None = None  # k; None is ceil(sqrt(m) / 2)
    threshold: float | None = None  # of the rule of that name
    kind: str = "probabilities"  # probabilities, logits or logprobs
    classes: tuple[str, ...] | None = None  # class names, where labels are strings
    truth: str | None = None  # column of the unlabeled table with true labels, for the oracle
    soft_labels: bool = False  # validation labels are distributions
    renormalize: bool = False  # scale rows of probabilities to sum to 1
    allow_subset: bool = False  # weigh only ids that all tables have


@dataclass(frozen=True)
class BestOptions(Options):
    """The same for `--method best` and for `wdistill advise`, whose experts may be more than teacher and student."""

    opinions: tuple[str, ...] = ()  # columns with predictions of models that never saw the validation rows
    inputs: str | None = None  # column of numbers that a random forest learns from


TAKEN = ("id", "label", "teacher", "student", "forest", "second", "retrained")  # no names of opinions


def check_options(options: Options, labeled: bool) -> None:
    """Choices that exclude each other."""
    for name in options.rule:
        if name not in RULES:
            close = difflib.get_close_matches(name, RULES, 1)
            remedy = f"did you mean {close[0]}?" if close else "name one of them, or several with commas"
            raise ConfigError("unknown rule", where="--rule", found=repr(name), expected=", ".join(RULES), remedy=remedy)
    conflicts = [
        ("threshold" in options.rule and options.threshold is None, "--rule threshold", "needs --threshold VALUE"),
        ("threshold" not in options.rule and options.threshold is not None, "--threshold", "needs --rule threshold"),
        ("oracle" in options.rule and options.truth is None, "--rule oracle", "needs --truth COLUMN"),
        ("oracle" not in options.rule and options.truth is not None, "--truth", "needs --rule oracle"),
        ("fidelity" not in options.rule and labeled, "--labeled", "needs --rule fidelity"),
        ("debiased" not in options.rule and options.neighbors is not None, "--neighbors", "needs --rule debiased"),
        (options.renormalize and options.kind == "logits", "--renormalize", "has no meaning with --kind logits"),
        ("debiased" not in options.rule and options.targets != "soft", "--targets", "needs --rule debiased"),
        ("debiased" not in options.rule and options.estimate != "paper", "--estimate", "needs --rule debiased"),
        (
            not {"debiased", "threshold"} & set(options.rule) and options.confidence != "margin",
            "--confidence",
            "needs --rule debiased or threshold",
        ),
        (len(set(options.rule)) < len(options.rule), "--rule", "names a rule twice"),
    ]
    _refuse(conflicts, f"--rule {','.join(options.rule)}")


def check_best(options: BestOptions, labeled: bool) -> None:
    """Choices that exclude each other where targets are corrected: no rule weighs, so nothing about rules may be chosen."""
    own = Options()
    rules = ("rule", "confidence", "estimate", "neighbors", "threshold", "truth")
    conflicts = [
        *((getattr(options, name) != getattr(own, name), f"--{name}", "needs --method paper") for name in rules),
        (labeled and options.inputs is None, "--labeled", "needs --inputs COLUMN, which a forest learns from"),
        (options.renormalize and options.kind == "logits", "--renormalize", "has no meaning with --kind logits"),
    ]
    _refuse(conflicts, "targets to be corrected, not weights by a rule")
    _check_columns("--inputs", [options.inputs] if options.inputs else [], TAKEN)
    _check_columns("--opinions", options.opinions, (*TAKEN, options.inputs))


def _check_columns(where: str, names: Sequence[str], taken: Collection[str | None]) -> None:
    """Columns that are something else already, or are named twice."""
    bad = [name for i, name in enumerate(names) if not name or name in taken or name in names[:i]]
    if bad:
        raise ConfigError(
            "names a column that is something else, or twice",
            where=where,
            found=", ".join(map(repr, bad)),
            expected=f"columns of their own, each once; not {', '.join(name for name in taken if name)}",
            remedy="name another column, or leave this out",
        )


def check_method(best: bool, given: Iterable[str]) -> None:
    """Options of the one method that were given to the other."""
    _refuse([(not best, f"--{name}", "needs --method best") for name in given], "--method paper")


def _refuse(conflicts: Iterable[tuple[bool, str, str]], found: str) -> None:
    for holds, where, what in conflicts:
        if holds:
            raise ConfigError(
                what,
                where=where,
                found=found,
                expected="options that belong together",
                remedy="add what is needed, or leave this out",
            )


def make_rule(options: Options, mean: EntropyMean | None) -> Rule[...]:
    """The rule, or the product of rules, with the options filled in."""
    measure = CONFIDENCES[options.confidence]
    filled: dict[str, dict[str, Any]] = {
        "debiased": {
            "confidence": measure,
            "targets": options.targets,
            "estimate": options.estimate,
            "neighbors": options.neighbors,
        },
        "fidelity": {"mean": mean},
        "threshold": {"at": options.threshold, "confidence": measure},
    }
    rules = [RULES[name].using(**filled.get(name, {})) for name in options.rule]
    return rules[0] if len(rules) == 1 else compose(*rules)
