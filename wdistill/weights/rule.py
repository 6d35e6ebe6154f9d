"""A rule: a function from evidence to one weight in [0, 1] for every unlabeled row.

A rule is written as its fitting step, a function `Evidence → Fitted`; `@rule` makes of it
    debiased(evidence)          weights (n,)
    debiased.explain(evidence)  the same with error, distortion and counts
    debiased.fit(evidence)      the small frozen state, which weighs any number of chunks
All three take the rule's options; `debiased.using(targets="hard")` is the rule with options filled in.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import update_wrapper
from typing import Any, ClassVar, Concatenate, Generic, Literal, ParamSpec, Protocol, get_type_hints, overload

import numpy as np
from numpy.typing import NDArray

from wdistill.core import checks
from wdistill.core.errors import bad_input, bad_value, not_one_of, wrong_type
from wdistill.weights.confidence import Floats, Kind
from wdistill.weights.equations import effective_sample_size
from wdistill.weights.evidence import Evidence, Rows

Column = Literal["teacher", "student", "truth"]  # columns of the unlabeled rows that a rule uses
P = ParamSpec("P")


@dataclass(frozen=True, eq=False)
class Weighed:
    """Weights of some rows, with the estimates that they come from."""

    weights: Floats  # (n,)
    error: Floats | None = None  # (n,) estimated chance that the teacher is wrong
    distortion: Floats | None = None  # (n,) estimated loss distortion
    clipped: int = 0  # rows whose unclipped weight would be above 1
    tied: int = 0  # rows in which the teacher's two largest classes are equal
    floored: int = 0  # validation rows with a wrong teacher whose loss on the truth was floored
    largest_distortion: float = 0.0  # of any validation row
    factors: dict[str, Floats] = field(default_factory=dict)  # of a composition, by rule
    idle: str = ""  # why every weight is 1 although the teacher errs, where that is so

    @property
    def effective_sample_size(self) -> float:
        return effective_sample_size(self.weights)

    @property
    def share_below_one(self) -> float:
        return float(np.mean(self.weights < 1))


class Fitted(Protocol):
    """The state of a rule fitted on the validation rows."""

    @property
    def name(self) -> str: ...

    def weigh_rows(self, rows: Rows) -> Weighed: ...


class Rule(Generic[P]):
    """A rule made from its fitting step, and the columns of the unlabeled rows that its weights depend on."""

    auxiliary: ClassVar[tuple[str, ...]] = ()  # a rule uses no auxiliary model

    def __init__(
        self,
        fitting: Callable[Concatenate[Evidence, P], Fitted],
        needs: tuple[Column, ...] = ("teacher", "student"),
        filled: dict[str, Any] | None = None,
    ) -> None:
        self._fitting, self.needs, self._filled = fitting, needs, filled or {}
        update_wrapper(self, fitting)

    def fit(self, evidence: Evidence, *args: P.args, **options: P.kwargs) -> Fitted:
        """The rule's small state, from the validation part of the evidence."""
        self._check(options)
        return self._fitting(evidence, *args, **{**self._filled, **options})

    def explain(self, evidence: Evidence, *args: P.args, **options: P.kwargs) -> Weighed:
        """Weights of the unlabeled rows, with the estimates that they come from."""
        weighed = self.fit(evidence, *args, **options).weigh_rows(evidence.rows)
        if weighed.idle:
            checks.warn(f"every weight is 1: {weighed.idle}")
        return weighed

    def __call__(self, evidence: Evidence, *args: P.args, **options: P.kwargs) -> Floats:
        return self.explain(evidence, *args, **options).weights

    def using(self, **options: Any) -> Rule[P]:
        """The same rule with some of its options filled in."""
        self._check(options)
        return Rule(self._fitting, self.needs, {**self._filled, **options})

    def defaulting(self, **options: Any) -> Rule[P]:
        """The same rule with those options filled in that it takes and that are not filled in yet."""
        fitting: Any = self._fitting
        if hasattr(fitting, "rules"):  # of a product, or of a control
            fitting = replace(fitting, rules=tuple(part.defaulting(**options) for part in fitting.rules))
        open_options = {name: options[name] for name in self.options if name in options and name not in self._filled}
        return Rule(fitting, self.needs, {**self._filled, **open_options})

    def _check(self, options: Mapping[str, Any]) -> None:
        """Raise on options that the rule does not have."""
        kinds = [parameter.kind for parameter in inspect.signature(self._fitting).parameters.values()]
        unknown = [name for name in options if name not in self.options]
        if not unknown or inspect.Parameter.VAR_KEYWORD in kinds:
            return
        what, remedy = "unknown option of a rule", "leave it out, or correct its name"
        if not self.options:
            inner = ", ".join(part.name for part in self.parts if part is not self)
            remedy = f"fill in the options of its parts: {inner}" if inner else "leave it out: the rule has no options"
            raise bad_value(what, self.name, repr(unknown[0]), "no options", remedy)
        raise not_one_of(what, self.name, unknown[0], self.options, remedy)

    @property
    def name(self) -> str:
        return str(getattr(self._fitting, "__name__", "rule"))

    @property
    def parts(self) -> tuple[Rule[...], ...]:
        """The rules that a product or a control consists of; any other rule itself."""
        rules: tuple[Rule[...], ...] = getattr(self._fitting, "rules", ())
        return tuple(part for rule in rules for part in rule.parts) or (self,)

    @property
    def filled(self) -> Mapping[str, Any]:
        """Those of its options that are filled in."""
        return self._filled

    def is_made_from(self, other: Rule[...]) -> bool:
        """Whether it is that rule, with whatever options filled in."""
        return self._fitting is other._fitting

    @property
    def options(self) -> tuple[str, ...]:
        """The names of its options."""
        return tuple(inspect.signature(self._fitting).parameters)[1:]

    @property
    def required(self) -> tuple[str, ...]:
        """Those of its options that have no default."""
        parameters = inspect.signature(self._fitting).parameters
        return tuple(name for name in self.options if parameters[name].default is inspect.Parameter.empty)

    @property
    def record(self) -> type[Fitted]:
        """The class of its fitted state, which the fitting step is annotated with."""
        record: type[Fitted] = get_type_hints(self._fitting)["return"]
        return record

    def __str__(self) -> str:
        """The name with the options that are filled in, which identifies the rule."""
        rules = [str(part) for part in getattr(self._fitting, "rules", ())]
        options = [f"{name}={getattr(value, '__qualname__', repr(value))}" for name, value in sorted(self._filled.items())]
        called = getattr(self._fitting, "called", self.name)  # a user's function has its name alone
        return called if isinstance(self._fitting, PlainFunction) else f"{called}({', '.join([*rules, *options])})"

    def __reduce__(self) -> tuple[Any, ...]:
        """A rule is sent to another process by the name it is imported under, where it has one."""
        place = getattr(self._fitting, "__module__", ""), getattr(self._fitting, "__qualname__", "")
        original = getattr(sys.modules.get(place[0]), place[1], None)
        if isinstance(original, Rule) and original._fitting is self._fitting:
            return _import_rule, (*place, self._filled)
        return Rule, (self._fitting, self.needs, self._filled)


def _import_rule(module: str, name: str, filled: dict[str, Any]) -> Rule[...]:
    original: Rule[...] = getattr(importlib.import_module(module), name)
    return original.using(**filled)


@overload
def rule(fitting: Callable[Concatenate[Evidence, P], Fitted], /) -> Rule[P]: ...


@overload
def rule(*, needs: tuple[Column, ...]) -> Callable[[Callable[Concatenate[Evidence, P], Fitted]], Rule[P]]: ...


def rule(fitting: Any = None, /, *, needs: tuple[Column, ...] = ("teacher", "student")) -> Any:
    """Turn a fitting step into a rule; `needs`: the columns of the unlabeled rows that its weights depend on."""
    return Rule(fitting, needs) if fitting is not None else lambda fitting: Rule(fitting, needs)


def weigh(
    fitted: Fitted,
    teacher: NDArray[Any] | None = None,
    student: NDArray[Any] | None = None,
    truth: NDArray[Any] | None = None,
    *,
    kind: Kind = "probabilities",
    renormalize: bool = False,
    tolerance: float | None = None,
) -> Weighed:
    """Weigh one chunk with a fitted rule; the weights do not depend on the chunks."""
    checks.kind(kind)
    if not hasattr(fitted, "weigh_rows"):
        raise wrong_type(
            "not a fitted rule",
            "weigh",
            fitted,
            "what a rule's fit() returned",
            "fit the rule first: weigh(debiased.fit(evidence), teacher, student)",
        )
    rows = Rows(teacher, student, truth, kind=kind, renormalize=renormalize, tolerance=tolerance)
    if len(rows) == 0:
        raise checks.no_rows("teacher")
    return fitted.weigh_rows(rows)


def compose(*rules: Rule[...]) -> Rule[[]]:
    """The product of several rules' weights, each factor kept."""
    others = [part for part in rules if not isinstance(part, Rule)]
    if others or not rules:
        raise bad_value(
            "not a rule" if others else "nothing to compose",
            "compose",
            repr(others[0]) if others else "no rules",
            "one or more rules such as debiased",
            "name the rules: compose(debiased, fidelity); write one of your own with @rule on its fitting step",
        )
    needs = dict.fromkeys(column for part in rules for column in part.needs)
    return Rule(Composition(rules), tuple(needs))


@dataclass(frozen=True)
class Composition:
    """The fitting step of a product of rules."""

    rules: tuple[Rule[...], ...]
    called = "compose"

    @property
    def __name__(self) -> str:
        return ",".join(part.name for part in self.rules)

    def __call__(self, evidence: Evidence) -> Product:
        return Product(tuple(part.fit(evidence) for part in self.rules))


@dataclass(frozen=True)
class Product:
    parts: tuple[Fitted, ...]

    @property
    def names(self) -> list[str]:
        """Of the factors; a rule that occurs again gets a number."""
        plain = [part.name for part in self.parts]
        return [name if plain.index(name) == i else f"{name}_{i + 1}" for i, name in enumerate(plain)]

    @property
    def name(self) -> str:
        return ",".join(self.names)

    def weigh_rows(self, rows: Rows) -> Weighed:
        factors = [part.weigh_rows(rows) for part in self.parts]
        informed = next((factor for factor in factors if factor.distortion is not None), factors[0])
        weights = np.prod([factor.weights for factor in factors], axis=0)
        return Weighed(
            weights,
            informed.error,
            informed.distortion,
            clipped=informed.clipped,
            tied=informed.tied,
            floored=informed.floored,
            largest_distortion=informed.largest_distortion,
            factors=dict(zip(self.names, (factor.weights for factor in factors), strict=True)),
            idle=informed.idle if np.all(weights == 1) else "",
        )


@dataclass(frozen=True, eq=False)
class FixedWeights:
    """The fitted state of a rule that has weighed all unlabeled rows already."""

    weighed: Weighed
    name = "fixed"

    def weigh_rows(self, rows: Rows) -> Weighed:
        return self.weighed


@dataclass(frozen=True)
class PlainFunction:
    """The fitting step of a function of the user's: Evidence → weights (n,)."""

    function: Callable[[Evidence], Any]
    zeros: bool = False  # all weights may be 0: labels alone are trained on

    @property
    def __name__(self) -> str:
        name = (
            getattr(self.function, "name", None) or getattr(self.function, "__name__", None) or type(self.function).__name__
        )
        return re.sub(r"[^\w,.:-]", "", str(name)) or "rule"

    def __call__(self, evidence: Evidence) -> FixedWeights:
        assert evidence.teacher is not None
        weights = _checked(self.function(evidence), len(evidence.teacher), self.__name__, self.zeros)
        return FixedWeights(Weighed(weights))


def as_rule(rule: Rule[...] | Callable[[Evidence], Any]) -> Rule[...]:
    """A rule as it is; any function from evidence to weights (n,) as a rule."""
    if not callable(rule):
        expected = "a function from Evidence to weights, such as wdistill.debiased"
        remedy = "pass the function itself, a list of functions, or a dict of them by name"
        raise bad_value("not a rule", "rule", repr(rule), expected, remedy)
    return rule if isinstance(rule, Rule) else Rule(PlainFunction(rule))


def _checked(weights: Any, n: int, name: str, zeros: bool) -> Floats:
    """Weights of a user's function: (n,) finite, within [0, 1], and not all 0 unless `zeros`."""
    values = checks.scores(weights, f"weights of {name}")
    checks.same_length({"unlabeled rows": n, f"weights of {name}": len(values)})
    outside = np.flatnonzero((values < 0) | (values > 1))
    if len(outside) or not (zeros or values.any()):
        found = f"{len(outside)} numbers from {values.min():.6g} to {values.max():.6g}" if len(outside) else "only zeros"
        expected = "numbers within [0, 1], not all of them 0"
        remedy = "divide by the largest, or clip" if len(outside) else "give at least one row a weight above 0"
        raise bad_input("not weights", f"rule {name}", found, expected, remedy, outside)
    return values
