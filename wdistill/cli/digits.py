"""`wdistill demo`: the whole pipeline on real data, twice, over several paired trials, reported as it comes out.

scikit-learn's handwritten digits, 80 of them labeled. In every trial a convolutional teacher and a tiny student learn from
those; the teacher labels some 900 others; the student is trained on them once for every arm. Then all of it again with a
teacher whose errors are injected by the noise model of the paper's §2.2: with probability 0.9·(1 − margin) its answer is
rolled to the next class. The truth of the unlabeled rows is known, and used by the oracle and the report alone.

How the settings came about: sizes and numbers of epochs were chosen on training losses and on the validation accuracies of
teacher and pretrained student of one split (seed 1000) that is not among the trials. No test accuracy was looked at.
"""

from __future__ import annotations

import io
import os
import time
from concurrent.futures import as_completed
from contextlib import redirect_stderr
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from wdistill.core import store
from wdistill.core.processes import process_pool
from wdistill.core.progress import say
from wdistill.core.signals import die_with_parent
from wdistill.report.page import page
from wdistill.report.seal import check_page, write_page
from wdistill.report.tables import terminal_table
from wdistill.runs.folder import read_run
from wdistill.runs.outcome import Outcome
from wdistill.runs.recipe import Recipe
from wdistill.training.distill import distill
from wdistill.training.labels import read_labels
from wdistill.training.models.networks import CNN, MLP
from wdistill.weights.confidence import margin
from wdistill.weights.debiased import debiased
from wdistill.weights.rules import oracle, shuffled, unweighted

LABELED, VALIDATION, TEST = 80, 300, 500  # the rest of the 1797 rows is unlabeled
TRIALS = 6
RECIPE = Recipe(teacher_epochs=100, student_epochs=200, epochs=40, batch_size=32, rate=0.005, targets="hard", device="cpu")
ARMS = (unweighted, debiased, shuffled(), oracle)
SETTINGS = {"natural": "Errors as the teacher makes them", "injected": "Errors injected by the noise model of §2.2"}


def demo(folder: Path) -> None:
    """Run all trials, both settings, side by side; print a table for each setting, and write the page."""
    from rich.console import Console

    output = folder / "report.html"
    check_page(output)
    store.make_folder(folder, parents=True)
    workers = min(TRIALS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    say(f"{TRIALS} trials of two settings on {workers} cores: about two minutes")
    started = time.monotonic()
    with process_pool(workers, die_with_parent) as pool:
        trials = [pool.submit(run_trial, folder, seed) for seed in range(TRIALS)]
        for number, trial in enumerate(as_completed(trials), 1):
            trial.result()
            left = (time.monotonic() - started) / number * (TRIALS - number)
            say(f"trial {number} of {TRIALS} done, {left:.0f} s left")
    console = Console()
    groups: dict[str, list[Outcome]] = {}
    for name, meaning in SETTINGS.items():
        groups[meaning] = [read_run(folder / name / f"trial-{seed}") for seed in range(TRIALS)]
        console.print(terminal_table(meaning, groups[meaning]))
        console.print(reason(groups[meaning]) + "\n", highlight=False)
    write_page(output, page(groups, "wdistill demo: handwritten digits"))
    console.print(f"The page with all figures: {output}", highlight=False, soft_wrap=True)


def run_trial(folder: Path, seed: int) -> None:
    """One split: natural errors first, then the same predictions with errors injected."""
    parts = splits(seed)
    natural, injected = (folder / name / f"trial-{seed}" for name in SETTINGS)
    recipe = Recipe(**{**RECIPE.__dict__, "seed": seed})
    models = {"teacher": lambda: CNN(1, 10, 16), "student": lambda: MLP(64, 10, (16,))}
    with redirect_stderr(io.StringIO()):  # trials would talk over each other
        distill(models["teacher"], models["student"], **parts, rule=list(ARMS), recipe=recipe, run=natural)
    logits = {name: found for name in parts if (found := read_labels(natural / "labels", name)) is not None}
    table = {name: inject(values, seed) for name, values in logits.items() if name != "labeled"}
    answers = Recipe(**{**recipe.__dict__, "kind": "logits"})
    with redirect_stderr(io.StringIO()):
        distill(table, models["student"], **parts, rule=list(ARMS), recipe=answers, run=injected)


def splits(seed: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Labeled, validation, test and unlabeled rows (n, 1, 8, 8) with their labels."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    inputs = torch.from_numpy(pixels.reshape(-1, 1, 8, 8) / 16).float()
    rows = np.random.default_rng(seed).permutation(len(labels))
    names = ("labeled", "validation", "test", "unlabeled")
    parts = zip(names, np.split(rows, np.cumsum([LABELED, VALIDATION, TEST])), strict=True)
    return {name: (inputs[part], torch.from_numpy(labels[part])) for name, part in parts}


def inject(logits: np.ndarray, seed: int) -> np.ndarray:
    """Logits (n, K), each row rolled by one class with probability 0.9·(1 − margin): §2.2's stochastic adversary."""
    chance = 0.9 * (1 - margin(logits, "logits"))
    hit = np.random.default_rng(seed).random(len(logits)) < chance
    return np.where(hit[:, None], np.roll(logits, 1, axis=1), logits)


def reason(outcomes: list[Outcome]) -> str:
    """Why the weights did what they did, as far as the numbers show it."""
    firsts = [outcome.arms["debiased"].refreshes[0] for outcome in outcomes]
    right = float(np.mean([each.right.mean for each in firsts if each.right]))
    wrong = float(np.mean([each.wrong.mean for each in firsts if each.wrong]))
    faults = float(np.mean([1 - outcome.accuracies["teacher"]["unlabeled"] for outcome in outcomes]))
    gains = {name: np.mean([_gain(outcome, name) for outcome in outcomes]) for name in ("debiased", "oracle")}
    return (
        f"Why: the teacher labels {100 * faults:.1f} % of the unlabeled rows wrongly. The oracle gives those rows weight 0 "
        f"and the others 1, and gains {100 * gains['oracle']:+.2f} points over unweighted. The debiased weights are "
        f"{wrong:.2f} on those rows and {right:.2f} on the others on average: they take away {1 - wrong:.0%} of what is "
        f"wrong and {1 - right:.0%} of what is right, and gain {100 * gains['debiased']:+.2f} points."
    )


def _gain(outcome: Outcome, arm: str) -> float:
    """Final test accuracy of an arm over that of the unweighted one."""
    return (outcome.arms[arm].final or 0.0) - (outcome.arms["unweighted"].final or 0.0)
