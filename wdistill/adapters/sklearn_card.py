"""For users of scikit-learn: the model card of a fitted `Distiller`, which `save_student` writes beside the student."""

from __future__ import annotations

import inspect
from typing import Any

from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

import wdistill
from wdistill.core import store
from wdistill.methods.advice import Advice
from wdistill.methods.context import MethodArm, as_rule_or_method
from wdistill.report.card import Measurement, Provenance, StudentFacts, model_card, plain
from wdistill.report.words import count

CODE = """\
from wdistill.adapters.skops import load_student

student = load_student("student.skops")
classes = student.predict(rows)"""
TRUSTED = "Types that skops does not know by itself, such as trees, must be named: `load_student(path, trusted=[…])`."
UNTOLD = "How often the student itself is right is not recorded here: measure it on rows with labels that it has not seen."
ASKED = "probabilities that were passed with the rows; the model behind them is not recorded"
SETTINGS = ("targets", "refresh", "negligible", "random_state")  # of the Distiller


def model_card_of(model: Any) -> str:
    """Of a fitted `Distiller`: its student, what gold says of the teacher and of targets, rows and settings.

    Without unlabeled rows there was no teacher: then it is of the student alone.
    """
    check_is_fitted(model)
    return model_card(_facts(model.student_), None if model.context_ is None else _provenance(model, model.advice_))


def _facts(student: Any) -> StudentFacts:
    """Of a fitted student of scikit-learn."""
    columns, names = getattr(student, "n_features_in_", None), getattr(student, "feature_names_in_", ())
    read = "It reads rows such as it was fitted on." if columns is None else f"It reads rows of {columns} columns."
    listed = [f"Their names, in this order: {', '.join(plain(name) for name in names)}."] if len(names) else []
    task, classes = "" if columns is None else "tabular-classification", tuple(map(str, student.classes_))
    return StudentFacts(_kind(student), "sklearn", task, " ".join([read, *listed]), classes, CODE, (TRUSTED,))


def _kind(student: Any) -> str:
    inner = [each for _, each in student.steps] if isinstance(student, Pipeline) else [student]
    return ", then ".join(type(each).__name__ for each in inner)


def _provenance(model: Any, advice: Advice) -> Provenance:
    rows, of_gold, arm = model._rows, count(advice.gold, "gold row"), _arm(model.method)
    known = {name: value for name, value in advice.accuracies.items() if arm == "best" or not name.startswith("corrected")}
    taught = {"targets": model.targets_, "weights": model.weight_}
    return Provenance(
        arm=arm,
        teacher=ASKED,
        rows={"labeled": len(rows.labeled), "validation": len(rows.gold), "unlabeled": len(rows.unlabeled)},
        findings=(advice.verdict, *(each.text for each in advice.concerns), UNTOLD),
        measured=tuple(Measurement(_who(name), "accuracy", of_gold, value) for name, value in known.items()),
        settings={**_chosen(model.student), **_plain({name: getattr(model, name) for name in SETTINGS})},
        digests={"all": {name: store.digest(values.tobytes()) for name, values in taught.items()}},
        version=wdistill.__version__,
    )


def _arm(method: Any) -> str:
    arm = method if isinstance(method, str) else as_rule_or_method(method)
    return arm.name if isinstance(arm, MethodArm) else str(arm)


def _who(name: str) -> str:
    """A source of `advice.accuracies`, not to be mistaken for the student that the card is of."""
    return f"targets {name}" if name.startswith("corrected") else name.replace(" alone", " of labels alone")


def _chosen(student: Any) -> dict[str, str]:
    """Numbers and texts among its settings that are not the default."""
    if isinstance(student, Pipeline):
        return {f"{step} {name}": value for step, each in student.steps for name, value in _chosen(each).items()}
    defaults = inspect.signature(type(student)).parameters
    settings = student.get_params(deep=False) if hasattr(student, "get_params") else {}
    said = _plain(settings).items()
    return {name: text for name, text in said if name not in defaults or settings[name] != defaults[name].default}


def _plain(settings: dict[str, Any]) -> dict[str, str]:
    """Numbers and texts: other objects are shown with their places in memory."""
    return {name: str(value) for name, value in settings.items() if isinstance(value, str | int | float)}
