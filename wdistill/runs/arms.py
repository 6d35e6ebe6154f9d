"""Arms: the rules and methods that one run compares, by name, each with its own settings.

All arms share split, initial student and batch order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from wdistill.core.errors import bad_value, not_one_of
from wdistill.core.settings import check_value, settings_of, to_json
from wdistill.methods.best import best
from wdistill.methods.context import MethodArm, as_rule_or_method
from wdistill.runs.recipe import Recipe
from wdistill.weights.confidence import Floats
from wdistill.weights.evidence import Evidence
from wdistill.weights.rule import Rule
from wdistill.weights.rules import RULES, rule_named, rule_options

NO_FACTORS = {best.name: "a method", "shuffled": "a control"}  # of a product of rules
STAGES = ("teacher", "student", "labels")  # names that no arm can have
AnyRule = Rule[...] | MethodArm | Callable[[Evidence], Floats]
WEIGHING = ("confidence", "estimate", "neighbors", "threshold", "refresh")  # settings that only change weights
SETTINGS = (  # that may differ between arms: all others would break the pairing, or belong to the run
    *("targets", "temperature", "temperature_squared", "vid", "vid_scale", "validation_in_training"),
    *WEIGHING,
)


@dataclass(frozen=True)
class Arm:
    """One arm: a rule or a method, and the settings of the recipe in which it differs from the other arms."""

    rule: Rule[...] | MethodArm
    settings: Mapping[str, Any] = field(default_factory=dict)  # as the recipe's fields hold them, in the order of SETTINGS

    def __post_init__(self) -> None:
        object.__setattr__(self, "rule", as_rule_or_method(self.rule))
        where = f"arm {self.rule.name}"
        for name in self.settings:
            if name not in SETTINGS:
                what, remedy = "not a setting that an arm can have of its own", "set it in the recipe, for all arms"
                raise not_one_of(what, where, name, SETTINGS, remedy)
        fields_of_recipe = settings_of(Recipe)
        ordered = {name: self.settings[name] for name in SETTINGS if name in self.settings}
        settings = {name: check_value(fields_of_recipe[name], value, f"{where}: {name}") for name, value in ordered.items()}
        object.__setattr__(self, "settings", settings)

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the rules that it consists of."""
        return tuple(part.name for part in self.rule.parts)

    @property
    def auxiliary(self) -> tuple[str, ...]:
        """The auxiliary models that its method uses."""
        return self.rule.auxiliary

    def recipe(self, base: Recipe) -> Recipe:
        """The recipe of this arm."""
        return replace(base, **self.settings)

    def differing(self, base: Recipe) -> dict[str, Any]:
        """Its settings that are not those of the recipe, as JSON can hold them."""
        before, after = to_json(base), to_json(self.recipe(base))
        return {name: after[name] for name in self.settings if after[name] != before[name]}

    def filled(self, base: Recipe) -> Arm:
        """The arm with the recipe's settings for those options of its rule that are not set."""
        return replace(self, rule=self.rule.defaulting(**rule_options(self.recipe(base))))

    def __str__(self) -> str:
        settings = ", ".join(f"{name}={value}" for name, value in self.settings.items())
        return str(self.rule) + (f" with {settings}" if settings else "")


def arm(rule: AnyRule, **settings: Any) -> Arm:
    """An arm with its own settings, such as arm(debiased, refresh=1) beside arm(debiased)."""
    return Arm(rule, settings)  # type: ignore[arg-type]


def arms_of(rule: Any, recipe: Recipe) -> dict[str, Arm]:
    """The arms by name: from the recipe's names, or from a rule or arm, a list of them, or a dict by name."""
    if rule is None:
        return {name: Arm(_by_name(name, recipe)).filled(recipe) for name in recipe.rule}
    named = {str(name): arm for name, arm in rule.items()} if isinstance(rule, Mapping) else {}
    arms = {name: arm if isinstance(arm, Arm) else Arm(arm) for name, arm in named.items()}
    if not arms:
        for item in list(rule) if isinstance(rule, Sequence) and not isinstance(rule, str) else [rule]:
            arm = item if isinstance(item, Arm) else Arm(item)
            arms[_unused(arm.rule.name, arms)] = arm
    _check_arms(arms)
    return {name: arm.filled(recipe) for name, arm in arms.items()}


def first_of(rules: Mapping[str, str]) -> str:
    """The first arm that is not a control, from the rules' names by arm; the first one, if all are controls."""
    treated = (arm for arm, rule in rules.items() if rule not in ("unweighted", "oracle") and "shuffled" not in rule)
    return next(treated, next(iter(rules)))


def folder_of(arm: str) -> str:
    """A name that is safe as a folder's."""
    return re.sub(r"[^\w.,+-]", "_", arm).lstrip(".")[:100] or "arm"


def _by_name(name: str, recipe: Recipe) -> Rule[...] | MethodArm:
    rule = best if name == best.name else rule_named(name, recipe.seed)
    if rule is None:
        names, parts = [*RULES, "shuffled", best.name], name.removeprefix("shuffled-").split(",")
        alone = next((part for part in parts if part in NO_FACTORS), None)
        if alone is not None:
            what = f"{alone} is {NO_FACTORS[alone]}: it can be neither multiplied with rules nor shuffled"
            others = [",".join(part for part in parts if part != alone)] if len(parts) > 1 else []
            remedy = f"write {' '.join(f'--rule {each}' for each in [*others, alone])}"
            raise bad_value(what, "rule", repr(name), "it in an arm of its own", remedy)
        unknown = next(part for part in parts if part not in RULES)
        raise not_one_of("unknown rule", "rule", unknown, names, "name one of them, or several with commas to multiply them")
    return rule


def _check_arms(arms: Mapping[str, Arm]) -> None:
    """Raise where there is no arm, or where names of arms would share a folder or are those of other stages."""
    example = "write rule=[debiased], for example, or leave it out for the rules that the recipe names"
    if not arms:
        raise bad_value("an empty list", "rule", "no rule", "at least one arm", example)
    folders = [folder_of(name).lower() for name in arms]
    alike = [name for name, folder in zip(arms, folders, strict=True) if folders.count(folder) > 1 or folder in STAGES]
    if alike:
        raise bad_value(
            "names of arms that cannot be told apart",
            "rule",
            ", ".join(map(repr, alike)),
            f"names that differ in letters or digits, other than {' and '.join(STAGES)}",
            "give the arms other names",
        )


def _unused(name: str, taken: Mapping[str, Any]) -> str:
    numbered = [name, *(f"{name}-{i}" for i in range(2, len(taken) + 2))]
    return next(candidate for candidate in numbered if candidate not in taken)
