"""Weighted distillation with unlabeled examples: debiasing weights for anyone's predictions, and students trained on them.

Names that need torch are imported when they are first used.
"""

from typing import TYPE_CHECKING, Any

from wdistill.arms import shuffled
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
from wdistill.outcome import Epoch, Outcome, Refresh, Training
from wdistill.recipe import Recipe
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
from wdistill.runs import read_run
from wdistill.states import load, save
from wdistill.weighting import debiasing_weight, distortion

if TYPE_CHECKING:
    from wdistill.distillation import Report, distill
    from wdistill.exporting import export_student, load_student
    from wdistill.training.data import Data
    from wdistill.training.inputs import Streamed
    from wdistill.training.networks import CNN, MLP

__version__ = "0.1.0"

_WITH_TORCH = {
    "CNN": "wdistill.training.networks",
    "Data": "wdistill.training.data",
    "MLP": "wdistill.training.networks",
    "Report": "wdistill.distillation",
    "Streamed": "wdistill.training.inputs",
    "distill": "wdistill.distillation",
    "export_student": "wdistill.exporting",
    "load_student": "wdistill.exporting",
}

__all__ = [
    "CNN",
    "MLP",
    "BusyError",
    "CheckpointError",
    "ConfigError",
    "Data",
    "EntropyMean",
    "Epoch",
    "Evidence",
    "FileError",
    "Fitted",
    "InputError",
    "LeakError",
    "NumericalError",
    "Outcome",
    "Recipe",
    "Refresh",
    "Report",
    "Rule",
    "Scores",
    "StorageError",
    "Streamed",
    "Training",
    "UnfinishedError",
    "WdistillError",
    "WdistillWarning",
    "Weighed",
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
    if name not in _WITH_TORCH:
        raise AttributeError(f"module 'wdistill' has no attribute {name!r}")
    import importlib

    try:
        found = getattr(importlib.import_module(_WITH_TORCH[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"wdistill.{name} needs torch: pip install 'wdistill[torch]'") from None
    globals()[name] = found
    return found
