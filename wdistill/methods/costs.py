"""Money: what it costs to serve rows by the teacher, by a student of gold, by a distilled one, or after labeling more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wdistill.core.errors import bad_value
from wdistill.methods.statistics import Interval


@dataclass(frozen=True)
class Prices:
    """What is paid for, in one currency."""

    gold: float  # a gold label
    teacher: float  # a teacher's answer, for training and for serving
    student: float = 0.0  # a row served by the student
    error: float = 0.0  # a served row that is wrong

    def __post_init__(self) -> None:
        for name, price in vars(self).items():
            if not isinstance(price, int | float) or isinstance(price, bool) or not 0 <= price < float("inf"):
                where, expected = f"price of {name} (--price-{name})", "a number of at least 0"
                raise bad_value("not a price", where, repr(price), expected, "write 0 for what costs nothing")


@dataclass(frozen=True)
class Alternative:
    """One way to serve rows: what has to be bought for it still, and how often it is wrong."""

    name: str  # such as "the teacher"
    errors: Interval  # share of served rows that are wrong
    known_from: str = ""  # what the errors were estimated from
    served_by_teacher: bool = False
    gold: int = 0  # labels still to be bought: those that are paid for already cost nothing more
    answers: int = 0  # answers of the teacher still to be bought, for training


@dataclass(frozen=True)
class Total:
    """What an alternative costs in all."""

    way: Alternative
    before: float  # labels and answers, before the first row is served
    each: Interval  # for every served row, errors included
    total: Interval

    @property
    def name(self) -> str:
        return self.way.name


@dataclass(frozen=True)
class CostComparison:
    """Alternatives, the cheapest first, and a sentence."""

    served: int  # rows
    totals: tuple[Total, ...]
    sentence: str


def teacher_alone(errors: Interval, known_from: str = "") -> Alternative:
    """The teacher answers every served row."""
    return Alternative("the teacher", errors, known_from, served_by_teacher=True)


def gold_alone(errors: Interval, known_from: str = "", gold: int = 0) -> Alternative:
    """A student that is trained on labels alone."""
    return Alternative("a student of labels alone", errors, known_from, gold=gold)


def distilled(errors: Interval, known_from: str = "", gold: int = 0, answers: int = 0) -> Alternative:
    """A student that is trained on the teacher's answers and gold labels."""
    return Alternative("a distilled student", errors, known_from, gold=gold, answers=answers)


def labeling_more(errors: Interval, more: int, known_from: str = "", gold: int = 0, answers: int = 0) -> Alternative:
    """The same with so many more gold labels; `errors` are the projected ones."""
    name = f"a distilled student, with {more:,} more gold rows"
    return Alternative(name, errors, known_from, gold=gold + more, answers=answers)


def compare_costs(prices: Prices, served: int, alternatives: Sequence[Alternative]) -> CostComparison:
    """The total of every alternative for so many rows to serve, the cheapest first."""
    totals = sorted((_total(prices, served, each) for each in alternatives), key=lambda each: each.total.value)
    if len(totals) < 2:
        expected, remedy = "two alternatives or more", "name what to compare, such as teacher_alone(…) and distilled(…)"
        raise bad_value("nothing to compare", "alternatives", f"{len(totals)}", expected, remedy)
    first, second = totals[:2]
    sure = first.total.high < second.total.low
    margin = f"{second.total.value - first.total.value:,.2f} less than {second.name}"
    doubt = "" if sure else ", though their intervals overlap"
    sentence = f"for {served:,} rows {first.name} costs least: {first.total.value:,.2f}, {margin}{doubt}"
    even = break_even(first, second)
    return CostComparison(served, tuple(totals), sentence if even is None else f"{sentence}; they are even at {even:,} rows")


def break_even(first: Total, second: Total) -> int | None:
    """The number of served rows at which two alternatives cost the same; None where one is always cheaper."""
    before, each = first.before - second.before, second.each.value - first.each.value
    return round(before / each) if each != 0 and before / each > 0 else None


def _total(prices: Prices, served: int, way: Alternative) -> Total:
    before = prices.gold * way.gold + prices.teacher * way.answers
    row = prices.teacher if way.served_by_teacher else prices.student
    each = Interval(*(row + prices.error * share for share in (way.errors.value, way.errors.low, way.errors.high)))
    total = Interval(*(before + served * price for price in (each.value, each.low, each.high)))
    return Total(way, before, each, total)
