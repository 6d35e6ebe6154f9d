"""Arms: what one run compares, by name: a rule each, and settings of its own. They share split, student and batch order."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from wdistill import checks
from wdistill.confidence import Floats
from wdistill.errors import ConfigError, InputError
from wdistill.evidence import Evidence
from wdistill.methods.teaching import Teaching, best
from wdistill.options import CONFIDENCES, RULES
from wdistill.recipe import Recipe, checked, to_json
from wdistill.rules import Fitted, Rule, Weighed, compose, debiased

STAGES = ("teacher", "student", "labels")  # names that no arm can have
AnyRule = Callable[[Evidence], Floats]  # a rule of ours, or any function of the user's


@dataclass(frozen=True)
class Shuffled:
    """A control: the weights of another rule, dealt out at random. It tells a smaller step from a better weight."""

    rule: AnyRule = debiased
    seed: int = 0

    @property
    def name(self) -> str:
        inner = name_of(self.rule)
        return "shuffled" if inner == "debiased" else f"shuffled-{inner}"

    def __call__(self, evidence: Evidence) -> Floats:
        return explain(self, evidence)[0].weights

    def __str__(self) -> str:
        return f"shuffled({identity_of(self.rule)}, seed={self.seed})"


def shuffled(rule: AnyRule = debiased, *, seed: int = 0) -> Shuffled:
    """The control for a rule: its weights, each given to another row."""
    return Shuffled(rule, seed)


WEIGHING = ("confidence", "estimate", "neighbors", "threshold", "refresh")  # settings that change nothing but weights
SETTINGS = (  # that an arm may have of its own: all others would end the pairing, or belong to the run
    *("targets", "temperature", "temperature_squared", "vid", "vid_scale", "validation_in_training"),
    *WEIGHING,
)


@dataclass(frozen=True)
class Arm:
    """One arm: a rule, and the settings of the recipe in which it differs from the other arms."""

    rule: AnyRule
    settings: Mapping[str, Any] = field(default_factory=dict)  # as the recipe's fields hold them, in the order of SETTINGS

    def __post_init__(self) -> None:
        where = f"arm {name_of(self.rule)}"
        for name in self.settings:
            if name not in SETTINGS:
                close = difflib.get_close_matches(name, SETTINGS, 1)
                raise ConfigError(
                    "not a setting that an arm can have of its own",
                    where=where,
                    found=repr(name),
                    expected=", ".join(SETTINGS),
                    remedy=f"did you mean {close[0]}?" if close else "set it in the recipe, for all arms",
                )
        found = {name: checked(name, self.settings[name], f"{where}: {name}") for name in SETTINGS if name in self.settings}
        object.__setattr__(self, "settings", found)

    def recipe(self, base: Recipe) -> Recipe:
        """The recipe of this arm."""
        return replace(base, **self.settings)

    def differing(self, base: Recipe) -> dict[str, Any]:
        """Its settings that are not those of the recipe, as JSON can hold them."""
        before, own = to_json(base), to_json(self.recipe(base))
        return {name: own[name] for name in self.settings if own[name] != before[name]}

    def __str__(self) -> str:
        own = ", ".join(f"{name}={value}" for name, value in self.settings.items())
        return identity_of(self.rule) + (f" with {own}" if own else "")


def arm(rule: AnyRule, **settings: Any) -> Arm:
    """An arm with settings of its own, such as arm(debiased, refresh=1) beside arm(debiased)."""
    return Arm(rule, settings)


def explain(rule: AnyRule, evidence: Evidence) -> tuple[Weighed, Fitted | None]:
    """The weights with what the rule saw, and its fitted state where it has one."""
    if isinstance(rule, Rule):
        fitted = rule.fit(evidence)
        return fitted.weigh_rows(evidence.rows), fitted
    assert evidence.teacher is not None
    n = len(evidence.teacher)
    if isinstance(rule, Shuffled):
        inner, _ = explain(rule.rule, evidence)
        dealt = np.random.default_rng(rule.seed).permutation(inner.weights)
        return replace(inner, weights=dealt, error=None, distortion=None, factors={}), None
    return Weighed(_checked(rule(evidence), n, name_of(rule))), None


def arms_of(rule: Any, recipe: Recipe) -> dict[str, Arm]:
    """The arms by name: from the recipe's names, or from a rule or arm, a list of them, or a dict by name."""
    if rule is None:
        return {name: Arm(_by_name(name, recipe)) for name in recipe.rule}
    named = {str(name): each for name, each in rule.items()} if isinstance(rule, Mapping) else {}
    if not named:
        several = list(rule) if isinstance(rule, Sequence) and not isinstance(rule, str) else [rule]
        for each in several:
            named[_unused(name_of(each), named)] = each
    arms = {name: each if isinstance(each, Arm) else Arm(each) for name, each in named.items()}
    _check_arms(arms)
    return {name: replace(each, rule=_filled(each.rule, each.recipe(recipe))) for name, each in arms.items()}


def name_of(rule: Any) -> str:
    """The own name of a rule or arm, as far as it can stand in a recipe."""
    rule = rule.rule if isinstance(rule, Arm) else rule
    found = str(getattr(rule, "name", None) or getattr(rule, "__name__", None) or type(rule).__name__)
    return re.sub(r"[^\w,.:-]", "", found) or "rule"


def identity_of(rule: AnyRule) -> str:
    """What tells a rule from another, as text: a function of the user's is known by its name alone."""
    return str(rule) if isinstance(rule, Rule | Shuffled | Teaching) else name_of(rule)


def rules_in(rule: AnyRule) -> list[str]:
    """The names of the rules of ours that it is made of."""
    inner = rule.rule if isinstance(rule, Shuffled) else rule
    return inner.name.split(",") if isinstance(inner, Rule) else []


def opinions_in(rule: AnyRule) -> tuple[str, ...]:
    """The second opinions that an arm asks for."""
    return rule.opinions if isinstance(rule, Teaching) else ()


def first_of(rules: Mapping[str, str]) -> str:
    """Of arms with the names of their rules, the first that is not a control; the first one, if all are."""
    found = (arm for arm, rule in rules.items() if rule not in ("unweighted", "oracle") and "shuffled" not in rule)
    return next(found, next(iter(rules)))


def folder_of(arm: str) -> str:
    """A name that is safe as a folder's."""
    return re.sub(r"[^\w.,+-]", "_", arm).lstrip(".")[:100] or "arm"


def _by_name(name: str, recipe: Recipe) -> AnyRule:
    if name == best.name:
        return best
    if name.partition("-")[0] == "shuffled":
        return shuffled(_by_name(name.partition("-")[2] or "debiased", recipe), seed=recipe.seed)
    parts = name.split(",")
    for part in parts:
        if part not in RULES:
            close = difflib.get_close_matches(part, [*RULES, "shuffled", best.name], 1)
            raise ConfigError(
                "unknown rule",
                where="rule",
                found=repr(part),
                expected=", ".join([*RULES, "shuffled", best.name]),
                remedy=f"did you mean {close[0]}?" if close else "name one of them, or several with commas to multiply them",
            )
    rules = [RULES[part] for part in parts]
    return _filled(rules[0] if len(rules) == 1 else compose(*rules), recipe)


def _filled(rule: Any, recipe: Recipe) -> AnyRule:
    """A rule with the recipe's settings where it takes them and the caller has left them open."""
    if isinstance(rule, Shuffled):
        return replace(rule, rule=_filled(rule.rule, recipe))
    if not isinstance(rule, Rule):
        function: AnyRule = rule
        return function
    settings: dict[str, Any] = {
        "targets": recipe.targets,
        "estimate": recipe.estimate,
        "confidence": CONFIDENCES[recipe.confidence],
        "neighbors": recipe.neighbors,
        "at": recipe.threshold,
    }
    return rule.defaulting(**{name: value for name, value in settings.items() if value is not None})


def _check_arms(named: Mapping[str, Arm]) -> None:
    """Refuse what is not a function, and names that would share a folder or stand for another stage."""
    if not named:
        raise ConfigError(
            "an empty list",
            where="rule",
            found="no rule",
            expected="at least one arm",
            remedy="write rule=[debiased], for example, or leave it out for the rules that the recipe names",
        )
    for each in named.values():
        inner = each.rule.rule if isinstance(each.rule, Shuffled) else each.rule
        if not callable(inner):
            raise ConfigError(
                "not a rule",
                where="rule",
                found=repr(inner),
                expected="a function from Evidence to weights, such as wdistill.debiased",
                remedy="pass the function itself, a list of functions, or a dict of them by name",
            )
    folders = [folder_of(name).lower() for name in named]
    alike = [name for name, folder in zip(named, folders, strict=True) if folders.count(folder) > 1 or folder in STAGES]
    if alike:
        raise ConfigError(
            "names of arms that cannot be told apart",
            where="rule",
            found=", ".join(map(repr, alike)),
            expected=f"names that differ in letters or digits, other than {' and '.join(STAGES)}",
            remedy="give the arms other names",
        )


def _unused(name: str, taken: Mapping[str, Any]) -> str:
    numbered = [name, *(f"{name}-{i}" for i in range(2, len(taken) + 2))]
    return next(each for each in numbered if each not in taken)


def _checked(weights: Any, n: int, name: str) -> Floats:
    """Weights of a user's function: (n,) finite, within [0, 1], and not all 0."""
    found = checks.scores(weights, f"weights of {name}")
    checks.same_length({"unlabeled rows": n, f"weights of {name}": len(found)})
    outside = np.flatnonzero((found < 0) | (found > 1))
    if len(outside) or not found.any():
        raise InputError(
            "not weights",
            where=f"rule {name}",
            found=f"{len(outside)} numbers from {found.min():.6g} to {found.max():.6g}" if len(outside) else "only zeros",
            expected="numbers within [0, 1], not all of them 0",
            remedy="divide by the largest, or clip",
            rows=outside[:5].tolist(),
        )
    return found
