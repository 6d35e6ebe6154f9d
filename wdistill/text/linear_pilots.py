"""Linear pilot students: where no student is at hand, regressions on features forecast what one would gain."""

from __future__ import annotations

import numpy as np

from wdistill.core.progress import say
from wdistill.methods.context import Context, supervise
from wdistill.methods.crossfit import Ints
from wdistill.methods.pilots import PilotPredictions, pilot_rows
from wdistill.methods.targets import Targets
from wdistill.text.linear import Rows, fit_linear
from wdistill.weights.confidence import Floats

MOST = 20_000  # unlabeled rows that pilots read
PENALTY = 0.1


def drawn_rows(n: int, seed: int) -> Ints:
    """At most MOST of n rows, drawn at random, in order."""
    return np.arange(n) if n <= MOST else np.sort(np.random.default_rng(seed).choice(n, MOST, replace=False))


def announce_linear_pilots(gold: int, unlabeled: int, classes: int, reads: str) -> None:
    """Say before they are trained what two linear pilots take: rows, classes and fits; `reads`: what they read."""
    taught, judged = pilot_rows(min(unlabeled, MOST))
    say(
        f"for the forecast two linear pilot students will be trained on {reads}, one regression each, of {classes:,} "
        f"classes: each learns {gold:,} gold rows and {len(taught):,} of the unlabeled rows, and predicts {len(judged):,} "
        "others"
    )


def linear_pilots(context: Context, targets: Targets, gold: Rows, drawn: Ints, rows: Rows) -> PilotPredictions:
    """Pilots that read sparse features: of the gold rows, and of some of the unlabeled ones.

    `drawn` (n,) are their numbers, `rows` (n, d) their features.
    """
    corrected = targets({name: values[drawn] for name, values in context.unlabeled.items()})
    plain = context.unlabeled["teacher"][drawn]
    taught, judged = pilot_rows(len(drawn), context.seed)
    predicted = (_predictions(context, gold, rows, each, taught, judged) for each in (plain, corrected))
    return PilotPredictions(corrected[judged], *predicted)


def _predictions(context: Context, gold: Rows, rows: Rows, distributions: Floats, taught: Ints, judged: Ints) -> Floats:
    """Probabilities (n, K) of a regression for the judged rows."""
    from scipy.sparse import vstack

    truth = np.eye(distributions.shape[1])[context.labels]
    lesson = np.concatenate([truth, supervise(distributions[taught], context).targets])
    model = fit_linear(vstack([gold, rows[taught]], format="csr"), lesson, penalty=PENALTY)
    return model(rows[judged])
