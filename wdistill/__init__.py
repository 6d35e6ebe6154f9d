"""Weighted distillation with unlabeled examples: debiasing weights for anyone's predictions, and students trained on them.

Names that have to do with training are imported when they are first used.
"""

from typing import TYPE_CHECKING, Any

from wdistill.confidence import entropy, margin
from wdistill.errors import (
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
from wdistill.evidence import Evidence, Scores
from wdistill.rules import (
    EntropyMean,
    Fitted,
    Rule,
    Weighed,
    compose,
    debiased,
    fidelity,
    oracle,
    rule,
    threshold,
    unweighted,
    weigh,
)
from wdistill.states import load, save
from wdistill.weighting import debiasing_weight, distortion

if TYPE_CHECKING:
    from wdistill.arms import Arm, arm, shuffled
    from wdistill.distillation import Report, advise, distill
    from wdistill.exporting import export_student, load_student
    from wdistill.methods.teaching import best
    from wdistill.outcome import Epoch, Outcome, Refresh, Training
    from wdistill.recipe import Recipe
    from wdistill.runs import read_run
    from wdistill.training.data import Data
    from wdistill.training.inputs import Streamed
    from wdistill.training.mobilenet import MobileNet
    from wdistill.training.networks import CNN, MLP
    from wdistill.training.resnet import CifarResNet, ResNet

__version__ = "0.1.0"

_LATER = {
    "Arm": "arms",
    "CNN": "training.networks",
    "CifarResNet": "training.resnet",
    "Data": "training.data",
    "Epoch": "outcome",
    "MLP": "training.networks",
    "MobileNet": "training.mobilenet",
    "Outcome": "outcome",
    "Recipe": "recipe",
    "Refresh": "outcome",
    "Report": "distillation",
    "ResNet": "training.resnet",
    "Streamed": "training.inputs",
    "Training": "outcome",
    "arm": "arms",
    "advise": "distillation",
    "best": "methods.teaching",
    "distill": "distillation",
    "export_student": "exporting",
    "load_student": "exporting",
    "read_run": "runs",
    "shuffled": "arms",
}

__all__ = [
    "CNN",
    "MLP",
    "Arm",
    "BusyError",
    "CheckpointError",
    "CifarResNet",
    "ConfigError",
    "Data",
    "EntropyMean",
    "Epoch",
    "Evidence",
    "FileError",
    "Fitted",
    "InputError",
    "LeakError",
    "MobileNet",
    "NumericalError",
    "Outcome",
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
    "arm",
    "best",
    "compose",
    "debiased",
    "debiasing_weight",
    "distill",
    "distortion",
    "entropy",
    "export_student",
    "fidelity",
    "load",
    "load_student",
    "margin",
    "oracle",
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
