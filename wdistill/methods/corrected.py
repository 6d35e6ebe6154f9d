"""Methods that use gold as labels: targets from models that were trained on the gold rows, in place of the teacher's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wdistill.methods.context import Context, Method, Supervision, supervise
from wdistill.methods.crossfit import floored_logs
from wdistill.methods.posterior import fit_posterior
from wdistill.weights.confidence import Floats


def with_gold(method: Method) -> Method:
    """The same method, with the gold rows trained on as labels."""
    return lambda context: method(context).with_gold


def retrained(context: Context) -> Supervision:
    """The targets of a teacher retrained on labeled and gold rows: more labels for the teacher's own recipe."""
    return supervise(context.unlabeled["retrained"], context)


def corrected(*experts: str) -> Method:
    """The posterior over the truth as target, from the teacher and these experts."""

    def method(context: Context) -> Supervision:
        return supervise(posterior_of(context, experts), context)

    return method


def posterior_of(context: Context, experts: tuple[str, ...]) -> Floats:
    """The posterior of these experts, fitted on the gold rows, over the truth of the unlabeled rows (n, K)."""
    gold = {name: context.validation[name] for name in experts}
    return fit_posterior(gold, context.labels)(context.unlabeled)


def posterior_weighted(*experts: str) -> Method:
    """The teacher's own targets, weighted by 1 − the posterior's chance that its label is wrong."""

    def method(context: Context) -> Supervision:
        truth, teacher_label = posterior_of(context, experts), context.unlabeled["teacher"].argmax(axis=1)
        return supervise(context.unlabeled["teacher"], context, truth[np.arange(len(truth)), teacher_label])

    return method


def posterior_debiased(*experts: str) -> Method:
    """The teacher's own targets, weighted by the student's expected loss on the truth over its loss on the target."""

    def method(context: Context) -> Supervision:
        truth, losses = posterior_of(context, experts), -floored_logs(context.unlabeled["student"])
        supervision = supervise(context.unlabeled["teacher"], context)
        on_truth, on_target = (truth * losses).sum(axis=1), (supervision.targets * losses).sum(axis=1)
        return replace(supervision, weights=np.minimum(1.0, on_truth / np.maximum(on_target, 1e-6)))

    return method


def supervised_only(context: Context) -> Supervision:
    """Labeled and gold rows only: all unlabeled rows have weight 0."""
    return replace(supervise(context.unlabeled["teacher"], context, np.zeros(len(context.unlabeled["teacher"]))), gold=True)
