"""Weighted distillation with unlabeled examples: exact debiasing weights for anyone's predictions."""

from wdistill.confidence import entropy, margin
from wdistill.errors import (
    BusyError,
    ConfigError,
    FileError,
    InputError,
    StorageError,
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

__version__ = "0.1.0"

__all__ = [
    "BusyError",
    "ConfigError",
    "EntropyMean",
    "Evidence",
    "FileError",
    "Fitted",
    "InputError",
    "Rule",
    "Scores",
    "StorageError",
    "WdistillError",
    "WdistillWarning",
    "Weighed",
    "compose",
    "debiased",
    "debiasing_weight",
    "distortion",
    "entropy",
    "fidelity",
    "load",
    "margin",
    "oracle",
    "rule",
    "save",
    "threshold",
    "unweighted",
    "weigh",
]
