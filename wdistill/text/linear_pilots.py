"""Linear pilot students: where no student is at hand, regressions on features forecast what one would gain."""

from __future__ import annotations

from typing import Any

import numpy as np

from wdistill.methods.context import Context, supervise
from wdistill.methods.crossfit import Ints
from wdistill.methods.pilots import forecast, pilot_rows
from wdistill.methods.statistics import Interval
from wdistill.methods.targets import Targets
from wdistill.text.linear import Rows, fit_linear

MOST = 20_000  # unlabeled rows that pilots read
PENALTY = 0.1


def drawn_rows(n: int, seed: int) -> Ints:
    """At most MOST of n rows, drawn at random, in order."""
    return np.arange(n) if n <= MOST else np.sort(np.random.default_rng(seed).choice(n, MOST, replace=False))


def forecast_by_regressions(context: Context, targets: Targets, gold: Rows, drawn: Ints, rows: Rows) -> Interval:
    """The forecast of pilots that read sparse features: of the gold rows, and of some of the unlabeled ones.

    `drawn` (n,) are their numbers, `rows` (n, d) their features.
    """
    corrected = targets({name: values[drawn] for name, values in context.unlabeled.items()})
    plain = context.unlabeled["teacher"][drawn]
    taught, judged = pilot_rows(len(drawn), context.seed)
    classes = {name: _classes(context, gold, rows, each, taught, judged) for name, each in (("p", plain), ("c", corrected))}
    return forecast(corrected[judged], classes["c"], classes["p"])


def _classes(context: Context, gold: Rows, rows: Rows, distributions: Any, taught: Ints, judged: Ints) -> Ints:
    """The classes that a regression predicts for the judged rows."""
    from scipy.sparse import vstack

    truth = np.eye(distributions.shape[1])[context.labels]
    lesson = np.concatenate([truth, supervise(distributions[taught], context).targets])
    model = fit_linear(vstack([gold, rows[taught]], format="csr"), lesson, penalty=PENALTY)
    return np.asarray(model(rows[judged]).argmax(axis=1), np.int64)
