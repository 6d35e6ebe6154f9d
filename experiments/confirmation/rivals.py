"""The arms of the confirmation: `best`, all simple rivals, and what nobody can have (the truth)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from wdistill.methods.best import best
from wdistill.methods.context import Context, Method, Supervision, by_rule, one_hot, supervise
from wdistill.methods.corrected import supervised_only, with_gold
from wdistill.methods.crossfit import floored_logs, log_softmax
from wdistill.methods.robust import mixed
from wdistill.methods.targets import fit_targets
from wdistill.weights.debiased import debiased
from wdistill.weights.rules import oracle, shuffled, unweighted

BASE, LABELS = "unweighted+gold", "labels+gold"
FINE_TUNED, DOUBLY_ROBUST = "fine-tuned", "doubly-robust"  # trained in ways of their own: see trial.py


def targets_from(source: str) -> Method:
    """The targets of this name, with the gold rows as labels."""
    return lambda context: supervise(fit_targets(context, source).of(context.unlabeled), context).with_gold


def scaled(context: Context) -> Supervision:
    """Temperature scaling (Guo et al., ICML 2017): the one slope of the teacher's logarithms that gold finds likeliest."""
    from scipy.optimize import minimize_scalar

    logs, rows = floored_logs(context.validation["teacher"]), np.arange(len(context.labels))

    def loss(slope: float) -> float:
        return -float(log_softmax(slope * logs)[rows, context.labels].sum())

    slope = float(minimize_scalar(loss, bounds=(0.05, 20.0), method="bounded").x)
    return supervise(np.exp(log_softmax(slope * floored_logs(context.unlabeled["teacher"]))), context).with_gold


def truth(context: Context) -> Supervision:
    """The ceiling: every unlabeled row with its true label."""
    assert context.evidence.truth is not None
    classes = context.unlabeled["teacher"].shape[1]
    return supervise(one_hot(context.evidence.truth, classes), context).with_gold


BOTH: Mapping[str, Method] = {  # with soft and with hard targets
    BASE: with_gold(by_rule(unweighted)),
    "recalibrated+gold": targets_from("teacher-recalibrated"),
    "retrained+gold": targets_from("retrained"),
    "best": best.method,
}
SOFT: Mapping[str, Method] = {
    LABELS: supervised_only,
    "retrained-recalibrated+gold": targets_from("retrained-recalibrated"),
    "temperature-scaled+gold": scaled,
    "paper+gold": with_gold(by_rule(debiased)),
    "shuffled+gold": with_gold(by_rule(shuffled(seed=None))),
    "mixed+gold": with_gold(mixed),
    "oracle+gold": with_gold(by_rule(oracle)),
    "truth+gold": truth,
}
NOT_RIVALS = ("best", "best, hard", "oracle+gold", "truth+gold", "shuffled+gold")  # controls, ceilings, and itself


def arms_of(context: Context) -> dict[str, Supervision]:
    """The supervision of every arm; a teacher that cannot be retrained has fewer."""
    kept = {name for name in (*BOTH, *SOFT) if "retrained" in context.validation or not name.startswith("retrained")}
    hard = replace(context, targets="hard")
    found = {name: method(context) for name, method in {**BOTH, **SOFT}.items() if name in kept}
    return found | {f"{name}, hard": method(hard) for name, method in BOTH.items() if name in kept}


def rivals_in(arms: Mapping[str, float]) -> list[str]:
    """The simple rivals among the arms of a line."""
    return [name for name in arms if name not in NOT_RIVALS]
