"""Weighted distillation with unlabeled examples: debiasing weights for anyone's predictions, and students trained on them.

Names that have to do with training are imported when they are first used.
"""

import wdistill.core.module_path  # noqa: F401  # isort: skip  (first: what follows is not from the current folder)

from typing import TYPE_CHECKING, Any

from wdistill.core.errors import (
    BusyError,
    CheckpointError,
    ConfigError,
    FileError,
    InputError,
    LeakError,
    NumericalError,
    StorageError,
    UnfinishedError,
    WdistillError,
    WdistillWarning,
)
from wdistill.weights.confidence import entropy, margin
from wdistill.weights.debiased import debiased
from wdistill.weights.equations import debiasing_weight, distortion
from wdistill.weights.evidence import Evidence, Scores
from wdistill.weights.rule import Fitted, Rule, Weighed, compose, rule, weigh
from wdistill.weights.rules import EntropyMean, fidelity, oracle, threshold, unweighted
from wdistill.weights.saved import load, save

if TYPE_CHECKING:
    from wdistill.answers.api import Answers, Corrected, advise_answers, correct, read_answers
    from wdistill.answers.verdict import AnswersAdvice
    from wdistill.methods.best import best
    from wdistill.methods.costs import Prices
    from wdistill.runs.arms import Arm, arm
    from wdistill.runs.folder import read_run
    from wdistill.runs.outcome import Epoch, Outcome, Refresh, Training
    from wdistill.runs.recipe import Recipe
    from wdistill.tables.batch_function import BatchFunction, prepare_batches
    from wdistill.tables.labeler import Labeler
    from wdistill.training.answers import distill_answers
    from wdistill.training.data import Data
    from wdistill.training.distill import advise, distill
    from wdistill.training.export import export_student, load_student
    from wdistill.training.inputs import Streamed
    from wdistill.training.models.mobilenet import MobileNet
    from wdistill.training.models.networks import CNN, MLP
    from wdistill.training.models.resnet import CifarResNet, ResNet
    from wdistill.training.named_teacher import labeler
    from wdistill.training.run import Report
    from wdistill.weights.rules import shuffled

__version__ = "0.1.0"

_LATER = {
    "Answers": "answers.api",
    "BatchFunction": "tables.batch_function",
    "AnswersAdvice": "answers.verdict",
    "Arm": "runs.arms",
    "CNN": "training.models.networks",
    "CifarResNet": "training.models.resnet",
    "Corrected": "answers.api",
    "Data": "training.data",
    "Epoch": "runs.outcome",
    "Labeler": "tables.labeler",
    "MLP": "training.models.networks",
    "MobileNet": "training.models.mobilenet",
    "Outcome": "runs.outcome",
    "Prices": "methods.costs",
    "Recipe": "runs.recipe",
    "Refresh": "runs.outcome",
    "Report": "training.run",
    "ResNet": "training.models.resnet",
    "Streamed": "training.inputs",
    "Training": "runs.outcome",
    "arm": "runs.arms",
    "advise": "training.distill",
    "advise_answers": "answers.api",
    "best": "methods.best",
    "correct": "answers.api",
    "distill": "training.distill",
    "distill_answers": "training.answers",
    "export_student": "training.export",
    "labeler": "training.named_teacher",
    "load_student": "training.export",
    "read_answers": "answers.api",
    "prepare_batches": "tables.batch_function",
    "read_run": "runs.folder",
    "shuffled": "weights.rules",
}

__all__ = [
    "CNN",
    "MLP",
    "Answers",
    "AnswersAdvice",
    "Arm",
    "BatchFunction",
    "BusyError",
    "CheckpointError",
    "CifarResNet",
    "ConfigError",
    "Corrected",
    "Data",
    "EntropyMean",
    "Epoch",
    "Evidence",
    "FileError",
    "Fitted",
    "InputError",
    "Labeler",
    "LeakError",
    "MobileNet",
    "NumericalError",
    "Outcome",
    "Prices",
    "Recipe",
    "Refresh",
    "Report",
    "ResNet",
    "Rule",
    "Scores",
    "StorageError",
    "Streamed",
    "Training",
    "UnfinishedError",
    "WdistillError",
    "WdistillWarning",
    "Weighed",
    "advise",
    "advise_answers",
    "arm",
    "best",
    "compose",
    "correct",
    "debiased",
    "debiasing_weight",
    "distill",
    "distill_answers",
    "distortion",
    "entropy",
    "export_student",
    "fidelity",
    "labeler",
    "load",
    "load_student",
    "margin",
    "oracle",
    "prepare_batches",
    "read_answers",
    "read_run",
    "rule",
    "save",
    "shuffled",
    "threshold",
    "unweighted",
    "weigh",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'wdistill' has no attribute {name!r}")
    import importlib

    try:
        found = getattr(importlib.import_module(f"wdistill.{_LATER[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"wdistill.{name} needs torch: pip install 'wdistill[torch]'") from None
    globals()[name] = found
    return found
