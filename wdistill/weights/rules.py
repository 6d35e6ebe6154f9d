"""All rules but `debiased`, RULES, the list of all, and RuleSettings, their options.

A new rule is its fitting step and a line in RULES; an option that no other rule has is a line in RuleSettings.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wdistill.core import checks
from wdistill.core.errors import bad_value, empty, not_one_of
from wdistill.core.settings import Settings, setting, settings_of
from wdistill.weights._elementary import exp64
from wdistill.weights.confidence import Confidence, Floats, Scan, entropy, margin, scan
from wdistill.weights.debiased import debiased
from wdistill.weights.evidence import Evidence, Rows, check_confidence
from wdistill.weights.rule import FixedWeights, Rule, Weighed, as_rule, compose, rule


@rule(needs=())
def unweighted(evidence: Evidence) -> Unweighted:
    """Every row counts in full: conventional distillation."""
    return Unweighted()


@dataclass(frozen=True)
class Unweighted:
    name = "unweighted"

    def weigh_rows(self, rows: Rows) -> Weighed:
        return Weighed(np.ones(len(rows)))


@rule(needs=("teacher",))
def fidelity(evidence: Evidence, *, mean: EntropyMean | None = None, over: Literal["all", "unlabeled"] = "all") -> Fidelity:
    """exp(−entropy / mean entropy) of the teacher: fidelity weighting as in Appendix C.3 of the paper.

    The mean runs over labeled and unlabeled rows, or the unlabeled ones only; pass `mean` where chunks are streamed.
    """
    checks.one_of("over", over, ("all", "unlabeled"))
    if mean is None:
        mean = EntropyMean()
        parts = {"teacher": evidence.teacher, "labeled_teacher": evidence.labeled_teacher if over == "all" else None}
        for name, values in parts.items():
            if values is not None:
                mean = mean.plus(values, name=name, **evidence.reading)
        if over == "all" and evidence.labeled_teacher is None and evidence.teacher is not None:
            checks.warn("fidelity's mean entropy runs over the unlabeled rows only: no labeled rows were given")
    if mean.count == 0:
        raise empty(
            "fidelity needs the teacher's mean entropy",
            "teacher",
            "the teacher's predictions on the unlabeled rows",
            "pass them to Evidence, or a mean of your own as `mean`",
        )
    return Fidelity(mean)


@dataclass(frozen=True)
class EntropyMean:
    """A running mean of entropies, exact in any order: a sum in quanta of 2^-50 nats, and a count."""

    quanta: int = 0
    count: int = 0

    def plus(self, values: NDArray[Any] | Scan, **reading: Any) -> EntropyMean:
        """The mean with another chunk of predictions (n, K), or a scan of them, added; `reading` is as for `scan`."""
        entropies = (values if isinstance(values, Scan) else scan(values, entropy=True, **reading)).entropy
        assert entropies is not None
        whole = np.rint(entropies * 2.0**50).astype(np.int64)
        # the two halves of each number are summed separately: no sum can overflow
        total = (int((whole >> 20).sum()) << 20) + int((whole & 0xFFFFF).sum())
        return EntropyMean(self.quanta + total, self.count + len(entropies))

    def __add__(self, other: EntropyMean) -> EntropyMean:
        return EntropyMean(self.quanta + other.quanta, self.count + other.count)

    @property
    def value(self) -> float:
        return self.quanta / self.count / 2.0**50


@dataclass(frozen=True)
class Fidelity:
    mean: EntropyMean
    name = "fidelity"

    def __post_init__(self) -> None:
        if self.mean.count < 1 or abs(self.mean.quanta) > self.mean.count << 60:  # in a file: of more than e^1024 classes
            raise ValueError(f"a mean entropy of {self.mean.count} rows that no rows have")

    def weigh_rows(self, rows: Rows) -> Weighed:
        entropies, mean = rows.confidence("teacher", entropy), self.mean.value
        ratio = entropies / mean if mean > 0 else np.zeros_like(entropies)
        weights: Floats = exp64(-np.maximum(ratio, 0.0))
        return Weighed(weights)


@rule(needs=("teacher",))
def threshold(evidence: Evidence, *, threshold: float, confidence: Confidence = margin) -> Threshold:
    """1 where the teacher's confidence is at least `threshold`, else 0; for entropy, where it is at most `threshold`."""
    check_confidence(confidence)
    if not isinstance(threshold, int | float | np.number) or not np.isfinite(threshold):
        raise bad_value("not a threshold", "threshold", repr(threshold), "a finite number", "try threshold=0.5")
    return Threshold(float(threshold), confidence)


@dataclass(frozen=True, eq=False)
class Threshold:
    threshold: float
    confidence: Confidence
    name = "threshold"

    def weigh_rows(self, rows: Rows) -> Weighed:
        measured = rows.confidence("teacher", self.confidence)
        kept = measured <= self.threshold if self.confidence is entropy else measured >= self.threshold
        return Weighed(kept.astype(np.float64))


@rule(needs=("teacher", "truth"))
def oracle(evidence: Evidence) -> Oracle:
    """1 where the teacher is right, 0 where it is wrong: the ceiling for any filter. Needs `truth`."""
    return Oracle()


@dataclass(frozen=True)
class Oracle:
    name = "oracle"

    def weigh_rows(self, rows: Rows) -> Weighed:
        wrong = rows.scan("teacher").argmax != rows.need("truth")
        return Weighed(1.0 - wrong, error=wrong.astype(np.float64))


def shuffled(rule: Rule[...] | Callable[[Evidence], Any] = debiased, *, seed: int | None = 0) -> Rule[...]:
    """The control for a rule: its weights in random order, which separates good weights from a smaller step.

    With `seed=None` the run chooses the seed.
    """
    inner = as_rule(rule)
    control: Rule[...] = Rule(Shuffle((inner,)), inner.needs)
    return control if seed is None else control.using(seed=seed)


@dataclass(frozen=True)
class Shuffle:
    """The fitting step of a control."""

    rules: tuple[Rule[...]]  # whose weights are shuffled
    called = "shuffled"

    @property
    def __name__(self) -> str:
        inner = self.rules[0].name
        return "shuffled" if inner == "debiased" else f"shuffled-{inner}"

    def __call__(self, evidence: Evidence, *, seed: int = 0) -> FixedWeights:
        weighed = self.rules[0].explain(evidence)
        weights = np.random.default_rng(seed).permutation(weighed.weights)
        return FixedWeights(replace(weighed, weights=weights, error=None, distortion=None, factors={}))


CONFIDENCES: dict[str, Confidence] = {"margin": margin, "entropy": entropy}
RULES: dict[str, Rule[...]] = {rule.name: rule for rule in (debiased, unweighted, fidelity, threshold, oracle)}


@dataclass(frozen=True, kw_only=True)
class RuleSettings(Settings):
    """The options of the rules that flags and recipes offer; what a command or a run may choose besides is added to them."""

    confidence: Literal["margin", "entropy"] = setting("margin", "of teacher and student")
    targets: Literal["soft", "hard"] = setting(
        "soft", "what the student is trained on: the teacher's distribution, or its most likely class"
    )
    estimate: Literal["paper", "conditional", "ratio"] = setting("paper", "how neighbours are averaged")
    neighbors: int | None = setting(None, "neighbours to average; ceil(sqrt(validation rows) / 2) unless given", least=1)
    threshold: float | None = setting(None, "of the rule threshold: smallest margin (or largest entropy) kept")


def confidences_of(rule: Rule[...]) -> set[Any] | None:
    """The confidences that a rule looks at, where it needs no more of the unlabeled rows than a scan of each.

    None where it may: a rule or a confidence of the user's.
    """
    if not all(any(part.is_made_from(each) for each in RULES.values()) for part in rule.parts):
        return None
    found = [entropy if part.is_made_from(fidelity) else part.filled.get("confidence", margin) for part in rule.parts]
    return {*found} if all(each is margin or each is entropy for each in found) else None  # others need not have a hash


# rules by name --------------------------------------------------------------------------------------------------------


def rules_taking(option: str) -> list[str]:
    """The names of the rules that take an option."""
    return [name for name, rule in RULES.items() if option in rule.options]


def check_names(names: Sequence[str], where: str) -> None:
    """Raise on names of rules that do not exist."""
    for name in names:
        if name not in RULES:
            raise not_one_of("unknown rule", where, name, RULES, "name one of them, or several with commas")


def unused_settings(settings: RuleSettings, rules: Collection[str]) -> Iterator[tuple[str, list[str]]]:
    """Settings that differ from their default although none of these rules takes them, each with the rules that do."""
    for name, item in settings_of(type(settings)).items():
        takers = rules_taking(name)
        if takers and getattr(settings, name) != item.default and not {*takers} & {*rules}:
            yield name, takers


def missing_settings(settings: RuleSettings, rules: Collection[str]) -> Iterator[tuple[str, str]]:
    """Settings that are None although one of these rules requires them, each with that rule."""
    for name in (name for name in rules if name in RULES):
        for option in RULES[name].required:
            if getattr(settings, option) is None:
                yield option, name


def rule_options(settings: RuleSettings) -> dict[str, Any]:
    """Those of the settings that any rule takes and that are not None, as `Rule.defaulting` takes them."""
    options: dict[str, Any] = {name: getattr(settings, name) for name in settings_of(type(settings)) if rules_taking(name)}
    options["confidence"] = CONFIDENCES[options["confidence"]]
    return {name: value for name, value in options.items() if value is not None}


def rule_named(name: str, seed: int | None = None) -> Rule[...] | None:
    """The rule that a user names: one of RULES, several with commas as their product, or a control as shuffled-NAME."""
    control, _, inner = name.partition("-")
    if control == "shuffled":
        rule = rule_named(inner or debiased.name)
        return rule and shuffled(rule, seed=seed)
    parts = [RULES.get(part) for part in name.split(",")]
    rules = [part for part in parts if part is not None]
    return None if len(rules) < len(parts) else rules[0] if len(rules) == 1 else compose(*rules)
