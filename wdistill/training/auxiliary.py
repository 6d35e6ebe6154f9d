"""Auxiliary models: trained on gold rows too, each without one fold, and their predictions of every row.

A gold row is predicted by the model that has not seen its fold; an unlabeled row by all of them, by the mean of their
log-probabilities. The predictions are stored as the teacher's labels are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from wdistill.core import checks
from wdistill.methods.crossfit import FoldForests, Ints, combine_folds, fit_fold_forests, folds_of
from wdistill.runs.checkpoints import CheckpointStore
from wdistill.runs.recipe import Recipe
from wdistill.text.directions import DIRECTIONS, SAMPLE, Directions, directions
from wdistill.text.features import weigh_ngrams
from wdistill.text.integers import ngrams_in
from wdistill.training import tensors
from wdistill.training.batch import as_float
from wdistill.training.data import Split
from wdistill.training.inputs import Inputs, first_row
from wdistill.training.jobs import STUDENTS, TrainingJob
from wdistill.training.labels import FOLDED_STUDENT, store_predictions
from wdistill.training.models.text import TextBag
from wdistill.training.placed import placed
from wdistill.training.predict import predict
from wdistill.training.stage import Callbacks, StoppedError
from wdistill.weights.equations import probabilities

if TYPE_CHECKING:
    from wdistill.training.prepare import Prepared
    from wdistill.training.run import Run

NETWORKS = {FOLDED_STUDENT: "student", "second": "student", "retrained": "teacher"}  # whose shape auxiliary networks have
LONGEST = 4096  # numbers in a row up to which there is a forest; it reads all of them

PredictPart = Callable[[Split, slice], NDArray[Any]]
Numbers = Callable[[Inputs, slice], NDArray[Any]]


def available(wanted: Sequence[str], recipe: Recipe, inputs: Inputs, student: nn.Module, *, table: bool) -> list[str]:
    """Of the models asked for, those that can be trained: a table and a model that comes trained cannot be retrained."""
    trained = {"second": recipe.student_epochs > 0, "retrained": not table and recipe.teacher_epochs > 0}
    row = first_row(inputs)
    numbers = isinstance(row, Tensor) and (row.is_floating_point() or row.dtype == torch.uint8)
    text = isinstance(student, TextBag)
    if "forest" in wanted and isinstance(row, Tensor) and numbers and row.numel() > LONGEST:
        checks.warn(f"no forest as an auxiliary model: rows have {row.numel():,} numbers, and it reads at most {LONGEST:,}")
        numbers = False
    if "forest" in wanted and (numbers or text) and find_spec("sklearn") is None:
        checks.warn("no forest as an auxiliary model: it needs scikit-learn (pip install 'wdistill[methods]')")
        numbers = text = False
    return [name for name in wanted if trained.get(name, numbers or text)]


def gold_folds(validation: Split, recipe: Recipe) -> Ints:
    """The fold of every gold row (m,)."""
    assert validation.labels is not None
    groups = validation.design.groups
    return folds_of(validation.labels.numpy(), seed=recipe.seed % 2**32, same=validation.same, groups=groups)


def auxiliary_jobs(run: Run, prepared: Prepared) -> list[TrainingJob]:
    """Every auxiliary network, once for each fold that it leaves out."""
    folds = gold_folds(prepared.splits["validation"], run.recipe)
    common = (prepared.training_splits, prepared.classes, run.recipe, str(run.device))
    parts = dict.fromkeys(NETWORKS, run.recipe.micro_batches or 1)
    parts |= dict.fromkeys(STUDENTS, run.parts) if run.recipe.sharded else {}
    return [
        TrainingJob(run.folder, name, copy.deepcopy(model), *common, fold=fold, folds=folds, parts=parts[name])
        for name, model in _initial_networks(run, prepared).items()
        for fold in np.unique(folds).tolist()
    ]


def predict_auxiliary(run: Run, prepared: Prepared, callbacks: Callbacks) -> None:
    """Every auxiliary model predicts gold and unlabeled rows once."""
    splits = prepared.training_splits
    gold, unlabeled = splits["validation"], splits["unlabeled"]
    folds, networks = gold_folds(gold, run.recipe), _initial_networks(run, prepared)
    for name in prepared.auxiliary:
        if name in networks:
            sharded = run.recipe.sharded and name in STUDENTS
            models = _trained(run, name, networks[name], folds)
            predict_part = by_networks(models, folds, run.recipe.precision, callbacks, run.device, sharded)
        else:
            numbers = _text_numbers(prepared.student, unlabeled) if isinstance(prepared.student, TextBag) else _numbers
            predict_part = by_forests(splits["labeled"], gold, folds, prepared.classes, run.recipe.seed, numbers)
        read = {"validation": gold, "unlabeled": unlabeled}
        store_predictions(run.folder / "auxiliary" / name, read, predict_part, callbacks, name)


def _initial_networks(run: Run, prepared: Prepared) -> dict[str, nn.Module]:
    """Copies of student and teacher with the parameters that the run began with."""
    models = {"student": prepared.student, "teacher": prepared.teacher}
    networks: dict[str, nn.Module] = {}
    for name in prepared.auxiliary:
        model = models.get(NETWORKS.get(name, ""))
        if model is not None:
            networks[name], file = copy.deepcopy(model), f"initial/{NETWORKS[name]}.safetensors"
            tensors.load_parameters(networks[name], tensors.from_bytes(run.store.read(file), file), NETWORKS[name])
    return networks


def _trained(run: Run, name: str, network: nn.Module, folds: Ints) -> list[nn.Module]:
    """The networks of all folds, with the parameters that their training ended with."""
    models = []
    for fold in np.unique(folds):
        models.append(copy.deepcopy(network))
        parameters = CheckpointStore(run.folder / "auxiliary" / f"{name}-{fold}").read("parameters.safetensors")
        tensors.load_parameters(models[-1], tensors.from_bytes(parameters, name), name)
    return models


def by_networks(
    models: Sequence[nn.Module],
    folds: Ints,
    precision: str,
    callbacks: Callbacks,
    device: torch.device,
    sharded: bool,
) -> PredictPart:
    """Predictions of networks, of which each has left out one fold."""

    def on_batch(rows: int) -> None:
        if callbacks.stopping():
            raise StoppedError("stopped inside a chunk of auxiliary predictions")

    place = np.unique(folds, return_inverse=True)[1]

    def predict_part(split: Split, part: slice) -> NDArray[Any]:
        logits = []
        for model in models:
            with placed(model, device, sharded) as here:
                logits.append(predict(here, split.inputs, precision, part, on_batch))
        distributions = np.stack([probabilities(values, "logits") for values in logits])
        return combine_folds(distributions, place[part] if split.name == "validation" else None).astype(np.float32)

    return predict_part


def by_forests(
    labeled: Split, validation: Split, folds: Ints, classes: int, seed: int, numbers: Numbers | None = None
) -> PredictPart:
    """Predictions of random forests, of which each has left out one fold; they are fitted when first needed.

    `numbers` makes (n, d) numbers of inputs; by default all that they have.
    """
    read = numbers or _numbers

    @cache
    def forests() -> FoldForests:
        assert labeled.labels is not None and validation.labels is not None
        gold = read(validation.inputs, slice(0, len(validation)))
        rows = read(labeled.inputs, slice(0, len(labeled))) if len(labeled) else gold[:0]
        labels = labeled.labels.numpy(), validation.labels.numpy()
        return fit_fold_forests((rows, labels[0]), (gold, labels[1]), folds, classes, seed % 2**32)

    def predict_part(split: Split, part: slice) -> NDArray[Any]:
        place = part if split.name == "validation" else None
        return forests().log_probabilities(read(split.inputs, part), place).astype(np.float32)

    return predict_part


def _numbers(inputs: Inputs, part: slice) -> NDArray[np.float32]:
    batches: Any = inputs.batches(torch.arange(part.start, part.stop).split(4096))  # type: ignore[no-untyped-call]
    return np.concatenate([as_float(each).flatten(1).cpu().numpy() for each in batches])


def _text_numbers(student: TextBag, unlabeled: Split) -> Numbers:
    """Rows of texts by their main directions, which are those of the first unlabeled rows."""
    idf = student.idf[1:].cpu().numpy()

    def features(inputs: Inputs, part: slice) -> Any:
        rows: Any = next(iter(inputs.batches([torch.arange(part.start, part.stop)])))
        return weigh_ngrams(ngrams_in(rows.cpu().numpy()), idf)

    @cache
    def main() -> Directions:
        return directions(features(unlabeled.inputs, slice(0, min(SAMPLE, len(unlabeled)))), DIRECTIONS)

    return lambda inputs, part: main()(features(inputs, part))
