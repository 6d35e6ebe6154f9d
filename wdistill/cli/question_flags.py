"""Flags of what may be asked beside the verdict: a width in points, prices, and rows to serve."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from wdistill.core.errors import bad_value
from wdistill.core.settings import Settings, flags_given, read_settings, setting
from wdistill.methods.costs import Prices
from wdistill.methods.questions import WITHIN, Questions


@dataclass(frozen=True)
class QuestionFlags(Settings):
    """The flags of `advise`, in tables, answers and runs alike."""

    within: float = setting(
        WITHIN, "say how many gold rows know the teacher's metric within ± X points", above=0, metavar="X"
    )
    price_gold: float | None = setting(None, "with --serve: what a gold label costs", least=0, metavar="X")
    price_teacher: float | None = setting(None, "with --serve: what an answer of the teacher costs", least=0, metavar="X")
    price_student: float | None = setting(None, "with --serve: a row served by a student; 0 if not given", least=0)
    price_error: float | None = setting(None, "with --serve: a served row that is wrong; 0 if not given", least=0)
    serve: int | None = setting(None, "compare what it costs to serve N rows, with the prices", least=1)


def questions_of(arguments: argparse.Namespace) -> Questions:
    """What the flags ask."""
    flags = read_settings(QuestionFlags, flags_given(arguments, QuestionFlags))
    prices = {
        name: price
        for name in ("gold", "teacher", "student", "error")
        if (price := getattr(flags, f"price_{name}")) is not None
    }
    missing = [f"--price-{name}" for name in ("gold", "teacher") if name not in prices]
    if (prices or flags.serve is not None) and (missing or flags.serve is None):
        given = [*(f"--price-{name}" for name in prices), *([] if flags.serve is None else ["--serve"])]
        absent = [*missing, *([] if flags.serve is not None else ["--serve"])]
        expected = "--serve N with --price-gold and --price-teacher; --price-student and --price-error are 0 if not given"
        found, remedy = f"{', '.join(given)} without {', '.join(absent)}", f"add {', '.join(absent)}"
        raise bad_value("costs need prices and rows to serve", given[0], found, expected, remedy)
    return Questions(flags.within, Prices(**prices) if prices else None, flags.serve)
