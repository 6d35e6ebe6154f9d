"""`wdistill demo`: what to train a student on, told by paired trials on real data; then the story of the paper.

scikit-learn's handwritten digits: 80 are labeled, 300 are gold, 500 test, the rest has no labels. In every trial a
convolutional teacher and a tiny student learn from the labeled rows, and the teacher labels the rest. `advise` says what
the gold rows could win; then the student is trained once for every arm, all with the gold rows as labels. Each trial has its
own split, teacher and student. The second story repeats it with hard targets of a teacher whose errors are injected by the
noise model of the paper's §2.2: with probability 0.9·(1 − margin) its answer is rolled to the next class; there gold rows
only weigh, as in the paper. The truth of the unlabeled rows is used by the oracle and the report alone.

How the settings came about: sizes and numbers of epochs were chosen on training losses, on the gold accuracies of teacher
and pretrained student, and on the time it takes, on one split (seed 1000) that is not among the trials and without its test
rows; test accuracies of an older demo with other settings and arms were known. All else is the recipe's default.
"""

from __future__ import annotations

import io
import os
import textwrap
from collections.abc import Sequence
from concurrent.futures import as_completed
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wdistill import __version__
from wdistill.core import store
from wdistill.core.processes import process_pool
from wdistill.core.progress import progress, say
from wdistill.core.signals import die_with_parent
from wdistill.methods.best import best
from wdistill.methods.context import MethodArm
from wdistill.methods.corrected import supervised_only
from wdistill.report.accuracies import LEVEL, Difference, difference, headline, holm
from wdistill.report.page import page
from wdistill.report.seal import check_page, write_page
from wdistill.report.words import gap, listed, signed
from wdistill.runs.arms import arm
from wdistill.runs.folder import read_run
from wdistill.runs.outcome import Outcome
from wdistill.runs.recipe import Recipe
from wdistill.training.distill import advise, distill
from wdistill.training.labels import read_labels
from wdistill.training.models.networks import CNN, MLP
from wdistill.weights.confidence import margin
from wdistill.weights.debiased import debiased
from wdistill.weights.rules import oracle, shuffled, unweighted

LABELED, GOLD, TEST = 80, 300, 500  # the rest of the 1797 rows is unlabeled
TRIALS = 4
RECIPE = Recipe(teacher_epochs=60, student_epochs=150, epochs=30, batch_size=64, rate=0.01, device="cpu")
AS_LABELS: dict[str, Any] = {"validation_in_training": "yes"}
NATURAL = {
    "unweighted + gold": arm(unweighted, **AS_LABELS),
    "labels alone": arm(MethodArm("labels", supervised_only)),
    "paper + gold": arm(debiased, **AS_LABELS),
    "best": arm(best),
    "shuffled + gold": arm(shuffled(), **AS_LABELS),
    "oracle + gold": arm(oracle, **AS_LABELS),
}
INJECTED = {"unweighted": unweighted, "paper": debiased, "shuffled": shuffled(), "oracle": oracle}
USABLE = ("unweighted + gold", "labels alone", "paper + gold", "best")  # without the truth, and no control
MEANING = {
    "unweighted + gold": "the teacher's targets, gold as labels",
    "labels alone": "labeled and gold rows, no teacher",
    "paper + gold": "the same, with the paper's weights",
    "best": "corrected targets, gold as labels",
    "shuffled + gold": "control: those weights at random",
    "oracle + gold": "knows which targets are wrong",
    "unweighted": "the teacher's targets",
    "paper": "the same, with the paper's weights",
    "shuffled": "control: those weights at random",
    "oracle": "knows which targets are wrong",
}


@dataclass(frozen=True)
class Forecast:
    """What `advise` said before a trial's students were trained."""

    verdict: str
    teacher: str  # its accuracy on gold, with the interval
    points: float  # predicted gain of `best` over unweighted + gold


def demo(folder: Path) -> None:
    """Run all trials side by side; print verdict, tables and what they say, and write the page."""
    output = folder / "report.html"
    check_page(output)
    # runs of another version of the demo stay beside these
    runs = folder / f"runs-{store.digest(Path(__file__).read_bytes() + __version__.encode())[:8]}"
    store.make_folder(runs, parents=True)
    workers = min(TRIALS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    say(
        f"{TRIALS} trials with {len(NATURAL) + len(INJECTED)} students each on {workers} cores: less than two minutes on two"
    )
    with process_pool(workers, die_with_parent) as pool, progress("demo", TRIALS, "trials") as tick:
        trials = [pool.submit(run_trial, runs, seed) for seed in range(TRIALS)]
        for trial in as_completed(trials):
            trial.result()
            tick(1)
    natural, injected = ([read_run(_folders(runs, seed)[i]) for seed in range(TRIALS)] for i in range(2))
    for line in story([trial.result() for trial in trials], natural, injected):
        print(line)
    groups = {"What to train on": natural, "The paper's story: injected errors": injected}
    write_page(output, page(groups, "wdistill demo: handwritten digits"))
    print(f"The page with all figures: {output}")


def _folders(runs: Path, seed: int) -> tuple[Path, Path]:
    """Where a trial's two runs are: natural errors, and injected ones."""
    return runs / "natural" / f"trial-{seed}", runs / "injected" / f"trial-{seed}"


def run_trial(runs: Path, seed: int) -> Forecast:
    """One split: advice, then all arms; then the same predictions with errors injected."""
    parts, recipe = splits(seed), replace(RECIPE, seed=seed)
    natural, injected = _folders(runs, seed)
    with redirect_stderr(io.StringIO()):  # trials would talk over each other
        advice = advise(teacher, student, **parts, rule=NATURAL, recipe=recipe, run=natural)
        distill(teacher, student, **parts, rule=NATURAL, recipe=recipe, run=natural)
        logits = {name: found for name in parts if (found := read_labels(natural / "labels", name)) is not None}
        table = {name: inject(values, seed) for name, values in logits.items() if name != "labeled"}
        hard = replace(recipe, targets="hard", kind="logits")
        distill(table, student, **parts, rule=INJECTED, recipe=hard, run=injected)
    assert advice.forecast is not None
    return Forecast(advice.verdict, advice.teacher.percent, advice.forecast.value)


def teacher() -> CNN:
    return CNN(1, 10, 16)


def student() -> MLP:
    return MLP(64, 10, (16,))


def splits(seed: int) -> dict[str, Any]:
    """Labeled, validation (gold), test and unlabeled rows (n, 1, 8, 8) with their labels."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    inputs = torch.from_numpy(pixels.reshape(-1, 1, 8, 8) / 16).float()
    rows = np.random.default_rng(seed).permutation(len(labels))
    names = ("labeled", "validation", "test", "unlabeled")
    parts = zip(names, np.split(rows, np.cumsum([LABELED, GOLD, TEST])), strict=True)
    return {name: (inputs[part], torch.from_numpy(labels[part])) for name, part in parts}


def inject(logits: np.ndarray, seed: int) -> np.ndarray:
    """Logits (n, K), each row rolled by one class with probability 0.9·(1 − margin): §2.2's stochastic adversary."""
    chance_of_error = 0.9 * (1 - margin(logits, "logits"))
    hit = np.random.default_rng(seed).random(len(logits)) < chance_of_error
    return np.where(hit[:, None], np.roll(logits, 1, axis=1), logits)


# ------------------------------------------------------------------------------------------------------------ in words


def story(forecasts: Sequence[Forecast], natural: Sequence[Outcome], injected: Sequence[Outcome]) -> list[str]:
    """All that is printed, in 80 columns: the verdict, the arms of both stories, and what the numbers say."""
    rows, points = natural[0].rows, float(np.mean([forecast.points for forecast in forecasts]))
    return [
        *_wrapped(f"Verdict of `advise` before training: {forecasts[0].verdict}"),
        *_wrapped(f"{rows['validation']} gold rows; the teacher is right on {forecasts[0].teacher} of them"),
        *table(natural),
        *_wrapped(leader(natural)),
        *_wrapped(
            f"For `best`, `advise` predicted {signed(points)} points over unweighted + gold in the mean of all trials; "
            f"{gap(compared(natural, 'best', 'unweighted + gold'))} came."
        ),
        *_wrapped(f"Means of {len(natural)} trials, each with its own split, teacher and student; ± standard error."),
        "",
        *_wrapped("The paper's story: hard targets, errors injected by its noise model; gold rows only weigh."),
        *table(injected),
        *_wrapped(reason(injected)),
        "",
        *_wrapped("No setting was chosen by test accuracy: the first lines of wdistill/cli/digits.py say how."),
    ]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 80)


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """One line an arm: mean test accuracy in percent, the paired difference to the first arm in points, and what it is."""
    lines = [f"{'':17}  {'test %':>6}  {'over the first':>14}"]
    for row in headline(outcomes):
        if row.role == "arm" and row.final:
            lines.append(f"{row.name:17}  {100 * row.final.mean:6.2f}  {gap(row.final.difference):>14}  {MEANING[row.name]}")
    return lines


def leader(outcomes: Sequence[Outcome]) -> str:
    """Which of the arms that need no truth is ahead, and of which others beyond chance (t-tests, Holm-corrected)."""
    mean = {name: np.mean([outcome.arms[name].final or 0.0 for outcome in outcomes]) for name in USABLE}
    first, *others = sorted(USABLE, key=lambda name: -mean[name])
    found = [compared(outcomes, first, name) for name in others]
    p_values = holm([1.0 if each.p is None else each.p for each in found])
    clear = [p < LEVEL for p in p_values]
    named = [f"{name} ({gap(each)})" for name, each in zip(others, found, strict=True)]
    beyond, within = (
        [text for text, is_clear in zip(named, clear, strict=True) if is_clear == wanted] for wanted in (True, False)
    )
    ahead = f"beyond chance above {listed(beyond)}" if beyond else "not beyond chance above any other"
    rest = f", but not above {listed(within)}" if beyond and within else ""
    return f"Of what can be used without the truth, {first} is highest: {ahead}{rest}."


def compared(outcomes: Sequence[Outcome], arm: str, other: str) -> Difference:
    """The paired difference of two arms' final test accuracies."""
    found = difference(*([outcome.arms[name].final for outcome in outcomes] for name in (arm, other)))
    assert found is not None
    return found


def reason(outcomes: Sequence[Outcome]) -> str:
    """Why the paper's weights did what they did, as far as the numbers show it."""
    firsts = [outcome.arms["paper"].refreshes[0] for outcome in outcomes]
    right = float(np.mean([each.right.mean for each in firsts if each.right]))
    wrong = float(np.mean([each.wrong.mean for each in firsts if each.wrong]))
    faults = float(np.mean([1 - outcome.accuracies["teacher"]["unlabeled"] for outcome in outcomes]))
    return (
        f"The teacher labels {100 * faults:.1f} % of the unlabeled rows wrongly. The paper's weights are {wrong:.2f} on "
        f"those rows and {right:.2f} on the others on average: they take away {1 - wrong:.0%} of what is wrong and "
        f"{1 - right:.0%} of what is right."
    )
