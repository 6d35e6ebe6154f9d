"""For scikit-learn's `Distiller`: what its `method` is, and what a student of scikit-learn cannot do of it."""

from __future__ import annotations

from typing import Any

from wdistill.core.errors import bad_value, not_one_of
from wdistill.methods.best import best
from wdistill.methods.context import CrossEntropy, Method, MethodArm, Supervision, as_rule_or_method, by_rule
from wdistill.weights.debiased import debiased
from wdistill.weights.rule import Rule

NAMED: dict[str, Any] = {"best": best, "paper": debiased}


def method_of(method: Any, student: Any, refresh: int | None) -> Method:
    """The method of this name, of an arm, or of a rule, whose weights are refreshed where `refresh` is a number."""
    if isinstance(method, str) and method not in NAMED:
        raise not_one_of("unknown method", "method", method, NAMED)
    arm = as_rule_or_method(NAMED[method] if isinstance(method, str) else method)
    if isinstance(arm, MethodArm):
        return arm.method
    if isinstance(arm, Rule) and "student" in arm.needs and not hasattr(student, "predict_proba"):
        found, remedy = f"{type(student).__name__} without predict_proba", 'take method="best", or another student'
        raise bad_value("these weights look at the student's probabilities", "method", found, "predict_proba", remedy)
    return by_rule(arm, refresh=refresh is not None)


def check_supervision(supervision: Supervision, method: Any, refresh: int | None) -> None:
    """Raise where a student of scikit-learn cannot be trained so."""
    if not isinstance(supervision.loss, CrossEntropy):
        found, remedy = type(supervision.loss).__name__, "train with it in PyTorch: wdistill.distill"
        raise bad_value("a loss that no student of scikit-learn has", "method", found, "a cross-entropy", remedy)
    if refresh is not None and (supervision.refresh is None or refresh < 1):
        found, expected = f"refresh={refresh!r} with method={method!r}", "a number of epochs, and a rule"
        remedy = 'leave refresh out, or take method="paper"'
        raise bad_value("there are no weights to refresh", "refresh", found, expected, remedy)
