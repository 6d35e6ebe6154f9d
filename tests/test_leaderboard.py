"""The leaderboard: every method on a tiny task, stacked students, standings by hand, resuming, boards, page, documents."""

from __future__ import annotations

import inspect
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import torch

from experiments import boards, contest, leaderboard, lines, standings
from experiments.boards import Plan
from experiments.documents import END, filled
from experiments.figures import rendered
from experiments.leaderboard import EVERYWHERE, HERE, MARK, METHODS, NEEDED, PREDICTED, methods_of, missing
from experiments.leaderboard_page import DRAWN, overview, page
from experiments.models import linear, perceptrons, stacked
from experiments.running import processes
from experiments.stacked import Networks, Perceptrons, Students, predictions, train
from experiments.standings import BASE, Line
from experiments.tasks import SPLITS, TASKS, Pool, Task, keel
from tests import standing as made
from tests.browser import chromium
from tests.standing import PLAN
from tests.test_documents import same_picture
from tests.test_pages import CONTRAST, DESK, PHONE, Reader, opened
from wdistill import store
from wdistill.errors import UnfinishedError
from wdistill.methods.folds import folds_of
from wdistill.methods.intervals import Z
from wdistill.methods.lessons import Lesson
from wdistill.methods.losses import CrossEntropy, Generalised, Mixed
from wdistill.methods.reaching import REACH, Reach

REMEDY = "run: python -m experiments.leaderboard --trials 0"


def pool(root: Path | None) -> Pool:
    """Three classes of points, near enough for teachers to err."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 300)
    inputs = (random.normal(size=(300, 4)) + np.eye(3, 4)[labels] * 1.5).astype(np.float32)
    return Pool(inputs[60:], labels[60:], inputs[:60], labels[:60], inputs[60:])


TINY = Task("tiny", "tuning", pool, 40, 60, linear, perceptrons(8), 2, 2, rate=0.03)
EXTERNAL = replace(
    TINY, name="external", half="confirmation", teacher=stacked(perceptrons(8), 3, rate=0.03), external=50, epochs=6
)
SOME = [replace(TINY, all_methods=False), replace(EXTERNAL, all_methods=False, teacher=TINY.teacher)]
GOLD = 30


# -------------------------------------------------------------------------------------------------------------- a trial


@pytest.mark.parametrize("task", [TINY, EXTERNAL], ids=lambda task: task.name)
def test_a_trial_runs_every_method_with_both_targets(task: Task, tmp_path: Path) -> None:
    line = leaderboard.run(task, GOLD, 0, None)
    wanted = [name for name in METHODS if not (task.external and "retrained" in name)]
    assert set(line["accuracies"]) == {"soft", "hard"}
    for found in line["accuracies"].values():
        assert list(found) == wanted and all(0 <= each <= 100 for each in found.values())
        assert len(set(found.values())) > 5  # methods do teach different things
    assert line["rows"] == {"labeled": 40, "unlabeled": 60, "test": 60} and (line["task"], line["gold"]) == (task.name, GOLD)
    assert set(line["right"]) == {"best", "unweighted+gold", "labels+gold"}
    for name, text in line["right"].items():
        assert 100 * lines.unpacked(text, 60).mean() == pytest.approx(line["accuracies"]["soft"][name])
    known = {"teacher", "student", "second", "forest", *([] if task.external else ["retrained"])}
    assert set(line["experts"]) == set(line["experts_gold"]) == known
    assert list(line["why"]) == ["best"] and line["why"]["best"].startswith(("targets corrected by", "the teacher's own"))
    assert all(np.isfinite(each) for each in line["prospect"].values())
    assert set(NEEDED) <= set(line) and {"code", "data", "guards"} <= set(line)
    told = {"half": task.half, "labeled": 40, "unlabeled": 60, "pretraining": 2, "epochs": task.epochs, "rate": 0.03}
    told |= {"external": task.external, "split": SPLITS[task.half], "seed": 0, "batch": contest.BATCH}
    assert line["settings"] == told
    assert {"scikit-learn", "numpy", "torch", "processor"} <= set(line["environment"])
    lines.append(tmp_path / "leaderboard.jsonl", line)
    assert lines.read(tmp_path / "leaderboard.jsonl", NEEDED) == [line]


def test_the_halves_share_no_split_and_no_test_set() -> None:
    """Where a data set is in both: other rows are drawn, and other rows tested on."""
    numbers = {half: np.arange(5) + SPLITS[half] for half in SPLITS}
    assert not set(numbers["tuning"]) & set(numbers["confirmation"]) and len(numbers) == 2
    shared = {task.data for task in PLAN.half("tuning")} & {task.data for task in PLAN.half("confirmation")}
    assert shared == {"fashion", "letter"}
    for data in shared:
        parts = {half: {_part(task) for task in PLAN.half(half) if task.data == data} for half in SPLITS}
        assert parts["tuning"] and parts["confirmation"] and not parts["tuning"] & parts["confirmation"]
    first, second = (contest._rows(task, pool(None), GOLD, 0) for task in (TINY, replace(TINY, half="confirmation")))
    assert any(set(one) != set(other) for one, other in zip(first, second, strict=True))


def _part(task: Task) -> int:
    """Which test rows a task has: the first of them, or the number of the part."""
    known = inspect.getclosurevars(task.pool).nonlocals
    return int(known["first"] if "first" in known else known["part"])


def test_equal_rows_of_a_table_are_in_no_two_parts_of_a_trial(tmp_path: Path) -> None:
    store.make_folder(tmp_path / "keel")
    numbers = np.tile(np.arange(4000), 2)
    np.savez(tmp_path / "keel" / "two.npz", inputs=numbers[:, None].astype(np.float32), labels=numbers)
    found = keel("two")(tmp_path)
    assert sorted([*found.labels, *found.test_labels]) == list(range(4000))
    assert found.data["name"] == "two" and found.data["official"] is False and len(found.data["sha256"]) == 16


def test_parts_of_a_table_have_test_rows_of_their_own(tmp_path: Path) -> None:
    store.make_folder(tmp_path / "keel")
    numbers = np.arange(9000)
    np.savez(tmp_path / "keel" / "one.npz", inputs=numbers[:, None].astype(np.float32), labels=numbers)
    pools = [keel("one", part)(tmp_path) for part in (0, 1)]
    assert [len(each.test_labels) for each in pools] == [1800, 1800]
    assert not np.intersect1d(pools[0].test_labels, pools[1].test_labels).size
    for each in pools:
        assert sorted([*each.labels, *each.test_labels]) == numbers.tolist()
        assert np.array_equal(each.inputs[:, 0], each.labels) and np.array_equal(each.test_inputs[:, 0], each.test_labels)


def test_nobody_knows_its_own_gold_row() -> None:
    """The planted leak: models that remember what they have learned from, and know nothing else."""
    given = pool(None)
    labeled, validation, unlabeled = np.arange(40), np.arange(40, 70), np.arange(70, 130)
    folds = folds_of(given.labels[validation])

    def memory(inputs: Any, labels: Any, classes: int, kept: Any, seed: int, asked: Any) -> list[Any]:
        found = []
        for each in asked:
            answers = np.full((len(kept), len(each), classes), 1 / classes)
            for f, rows in enumerate(kept):
                seen = {row.tobytes(): label for row, label in zip(inputs[rows], labels[rows], strict=True)}
                for i, row in enumerate(each):
                    if row.tobytes() in seen:
                        answers[f, i] = np.eye(classes)[seen[row.tobytes()]]
            found.append(answers)
        return found

    heard = contest._opinion(memory, given.inputs, given, (labeled, validation, unlabeled), folds, 0)
    assert np.allclose(heard.validation, 1 / 3)
    leaked = contest._opinion(memory, given.inputs, given, (labeled, validation, validation), folds, 0)
    assert (leaked.unlabeled.argmax(axis=1) == given.labels[validation]).all()  # four of five remember each


def test_the_same_lesson_makes_the_same_student_and_is_taught_once(tiny: None) -> None:
    same, other = METHODS["unweighted"], METHODS["labels+gold"]
    twice = {"first": same, "other": other, "second": same}
    found = contest.trial(SOME[0], None, GOLD, 0, twice)["accuracies"]["soft"]
    assert list(found) == ["first", "other", "second"] and found["first"] == found["second"]
    rng = np.random.default_rng(0)
    plain = Lesson(rng.dirichlet(np.ones(3), 4), np.ones(4))
    lessons = {"a": plain, "b": replace(plain, gold=True), "c": replace(plain, loss=Generalised()), "d": replace(plain)}
    taught, place = contest.distinct(lessons | {"e": replace(plain, weights=np.zeros(4)), "f": lessons["c"]})
    assert len(taught) == 5 and place == {"a": 0, "b": 1, "c": 2, "d": 0, "e": 3, "f": 4}


def test_tasks_for_some_methods_run_those_with_soft_targets(tiny: None) -> None:
    assert tuple(methods_of(SOME[0])) == EVERYWHERE
    line = contest.trial(SOME[0], None, GOLD, 1, {name: METHODS[name] for name in ("unweighted", "best")})
    assert {targets: set(each) for targets, each in line["accuracies"].items()} == {"soft": {"unweighted", "best"}}
    assert list(leaderboard.run(SOME[0], GOLD, 1, None)["accuracies"]["soft"]) == [*EVERYWHERE, "labels+gold"]


# ------------------------------------------------------------------------------------------------------ stacked students


def examples(shape: Sequence[int], count: int = 3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Inputs, targets and weights of so many students, no two of them alike."""
    made = torch.Generator().manual_seed(0)
    inputs = torch.randn(40, *shape, generator=made)
    return inputs, torch.rand(count, 40, 3, generator=made).softmax(-1), torch.rand(count, 40, generator=made)


@pytest.mark.parametrize(
    ("make", "shape"),
    [(lambda: Perceptrons([5, 8, 3]), (5,)), (lambda: Networks(1, 3, 2), (1, 8, 8)), (lambda: Networks(3, 3, 2), (3, 8, 8))],
    ids=["perceptrons", "grey networks", "networks"],
)
def test_students_learn_side_by_side_as_each_does_alone(make: Callable[[], Students], shape: Sequence[int]) -> None:
    """With weights of their own, losses of their own from row 10 on, and weights that are estimated anew after an epoch."""
    inputs, targets, weights = examples(shape)
    losses = [CrossEntropy(), Generalised(), Mixed(np.linspace(0.5, 1, 30), np.ones((30, 3)))]
    torch.manual_seed(0)
    first = make()

    def learned(which: Sequence[int]) -> np.ndarray:
        own, students = weights[list(which)].clone(), first.copies(len(which))

        def refresh(epoch: int, now: Students) -> None:
            own[:, 10:] = torch.from_numpy(predictions(now, inputs[10:]).max(axis=2)).float()

        chosen = [losses[s] for s in which]
        train(
            students,
            inputs,
            targets[list(which)],
            own,
            epochs=3,
            seed=1,
            batch=8,
            rate=0.01,
            losses=chosen,
            first=10,
            moved=refresh,
        )
        return predictions(students, inputs)

    together = learned(range(3))
    for s in range(3):
        assert np.abs(learned([s])[0] - together[s]).max() < 1e-6
    assert min(np.abs(together[a] - together[b]).max() for a, b in ((0, 1), (0, 2), (1, 2))) > 1e-3


def test_copies_begin_alike_and_a_row_of_weight_nothing_teaches_nothing() -> None:
    inputs, targets, weights = examples((5,), 2)
    torch.manual_seed(0)
    students = Perceptrons([5, 8, 3]).copies(2)
    before = predictions(students, inputs)
    assert (before[0] == before[1]).all()
    weights[0] = 0
    train(students, inputs, targets, weights, epochs=1, seed=0, batch=8)
    assert (predictions(students, inputs)[0] == before[0]).all() and (predictions(students, inputs)[1] != before[1]).any()


# ------------------------------------------------------------------------------------------------------ standings by hand


def simple(task: str, gold: int, number: int, accuracies: dict[str, float], gain: float = 0.0) -> Line:
    prospect = {"gain": gain, "gain_error": 0.0}
    return {"task": task, "gold": gold, "trial": number, "accuracies": {"soft": accuracies}, "prospect": prospect}


def test_a_standing_by_hand() -> None:
    """Two tasks: a gains 1 and 2 points over the base, b gains −1 and 0; the oracle 4 points over unweighted on both."""
    known = [
        simple(task, 500, i, {"unweighted": 70.0, "oracle": 74.0, BASE: 71.0, "best": 71.0 + gain})
        for task, both in {"a": (1, 2), "b": (-1, 0)}.items()
        for i, gain in enumerate(both)
    ]
    known.append(simple("a", 100, 0, {"unweighted": 70.0, "oracle": 74.0, BASE: 71.0, "best": 99.0}))  # another size
    found = standings.standing(known, "best", 500)
    assert found is not None
    error = np.sqrt(0.5**2 + 0.5**2) / 2  # of each task's mean: the deviation √½ over √2
    assert (found.mean, found.error, found.tasks, found.wins, found.worst) == (0.5, pytest.approx(error), 2, 1, -0.5)
    assert found.share == pytest.approx(((1 + 1.5) / 4 + (1 - 0.5) / 4) / 2)
    assert found.over is not None and (found.over.mean, found.over.wins, found.over.worst) == (1.5, 2, 0.5)
    assert found.over.error == found.error and found.over.over is None
    assert standings.standing(known, "nobody", 500) is None
    alone = standings.standing(known, "best", 100)
    assert alone is not None and alone.error is None and alone.mean == 28


def test_what_shared_test_rows_add_by_hand() -> None:
    """Two trials of one task, four test rows: mean differences 1, 0.5, 0 and −0.5; and one task without any."""
    base, first, second = ([0, 0, 1, 1], [1, 1, 1, 0], [1, 0, 1, 1])
    told = [("a", first, base), ("a", second, base), ("b", base, base)]
    known = [
        simple(task, 500, i, {}) | {"rows": {"test": 4}, "right": {"best": bits(own), BASE: bits(other)}}
        for i, (task, own, other) in enumerate(told)
    ]
    spread = np.std([1, 0.5, 0, -0.5], ddof=1)
    assert standings.rows_error(known, "best", 500) == pytest.approx(100 * spread / 2 / 2)  # √4 rows, two tasks
    assert standings.rows_error(known, "best", 100) is None
    assert standings.rows_error([*known, simple("c", 500, 0, {}) | {"rows": {"test": 4}}], "best", 500) is None


def bits(right: Sequence[int]) -> str:
    return lines.packed(np.array(right, bool))


@pytest.mark.parametrize("rows", [1, 8, 9, 30])
def test_answers_are_packed_and_unpacked(rows: int) -> None:
    right = np.random.default_rng(rows).random(rows) < 0.5
    assert lines.unpacked(lines.packed(right), rows).tolist() == right.tolist()


def test_the_better_of_two_simple_arms_by_hand() -> None:
    known = [simple("a", 500, 0, {BASE: 70.0, "labels+gold": 60.0, "best": 72.0})]
    known.append(simple("b", 500, 0, {BASE: 70.0, "labels+gold": 74.0, "best": 73.0}))
    assert standings.over_simple(known, "best", 500) == (0.5, ["b"])
    assert standings.over_simple(known, "best", 100) is None
    known.append(simple("c", 500, 0, {BASE: 70.0, "best": 73.0}))
    assert standings.over_simple(known, "best", 500) is None


def test_promises_of_targets_are_kept_or_not_by_hand() -> None:
    """Promised 2 ± 1 and 1 ± 0.5 points; 3.9 and 2.1 came: inside 1.96 standard errors, and outside."""
    known = [
        {"prospect": {"gain": gain, "gain_error": error, "corrected": 80 + came}, "experts": {"teacher": 80.0}}
        for gain, error, came in ((0.02, 0.01, 3.9), (0.01, 0.005, 2.1))
    ]
    found = standings.kept(known)
    assert found is not None and (found.trials, found.covered) == (2, 0.5) and standings.kept([]) is None
    assert (found.promised, found.came) == (pytest.approx(1.5), pytest.approx(3.0))


def test_nothing_is_foretold_of_best_where_it_leaves_the_targets_alone() -> None:
    chose = [("targets corrected by x", 0.04, 2.5), ("the teacher's own targets: y", 0.04, 0.5)]
    known = [
        simple(f"t{i}", 500, 0, {BASE: 70.0, "best": 70 + came}, gain) | {"why": {"best": why}}
        for i, (why, gain, came) in enumerate(chose)
    ]
    found = standings.foretold_best(known, Reach(0.5, 0.0, 0.1))
    assert found is not None and list(found.predicted.values()) == [2.0, 0.0] and found.within == 1
    assert list(found.realised.values()) == [2.5, 0.5]


def test_a_share_is_over_the_tasks_that_ran_the_method() -> None:
    known = [simple("a", 500, 0, {"unweighted": 70.0, "oracle": 72.0, BASE: 70.0, "own": 71.0})]
    known.append(simple("b", 500, 0, {"unweighted": 70.0, "oracle": 90.0, BASE: 70.0}))
    found = standings.standing(known, "own", 500)
    assert found is not None and found.share == pytest.approx(0.5) and found.tasks == 1


def test_losses_are_paired_tests_corrected_over_all_of_them() -> None:
    random = np.random.default_rng(2)
    gaps = {f"t{i}": random.normal(mean, 0.3, 5) for i, mean in enumerate((-1.5, -0.5, -0.3, 0.0, 1.5))}
    known = [
        simple(task, 500, i, {BASE: 80.0 + i, "best": 80.0 + i + gap})
        for task, each in gaps.items()
        for i, gap in enumerate(each)
    ]
    slow = {task: scipy.stats.ttest_1samp(each, 0, alternative="less").pvalue for task, each in gaps.items()}
    order, least, corrected = sorted(slow, key=lambda task: slow[task]), 0.0, {}
    for rank, task in enumerate(order):
        least = max(least, min(1.0, slow[task] * (len(order) - rank)))
        corrected[task] = least
    found = standings.below(known, "best")
    assert {task: p for (task, _), (p, _) in found.items()} == pytest.approx(corrected)
    assert [task for (task, _), (_, sure) in found.items() if sure] == [task for task in gaps if corrected[task] < 0.05]
    assert any(slow[task] < 0.05 <= corrected[task] for task in gaps)  # the correction matters here
    assert any(sure for _, sure in found.values()) and standings.below(known[::5], "best") == {}  # one trial of each


def promises(tasks: int = 5) -> list[Line]:
    random = np.random.default_rng(1)
    return [
        simple(
            f"t{i}", gold, number, {BASE: 80.0, "corrected+gold": 80 + random.normal(i, 1)}, float(random.normal(i, 1)) / 50
        )
        for i in range(tasks)
        for gold in (100, 500)
        for number in range(2)
    ]


def test_a_task_is_predicted_by_all_the_others() -> None:
    known = promises()
    keys = sorted({(line["task"], line["gold"]) for line in known})

    def mean(key: tuple[str, int], value: Callable[[Line], float]) -> float:
        return float(np.mean([value(line) for line in known if (line["task"], line["gold"]) == key]))

    y = {key: mean(key, lambda line: line["accuracies"]["soft"]["corrected+gold"] - 80) for key in keys}
    found = standings.prediction(known)
    assert found is not None and dict(found.realised) == pytest.approx(y)
    for key in keys:
        others = [line for line in known if line["task"] != key[0]]
        gained = [line["accuracies"]["soft"]["corrected+gold"] - 80 for line in others]
        reach = slow_reach([100 * line["prospect"]["gain"] for line in others], gained)
        wanted = mean(key, lambda line, reach=reach: reach(100 * line["prospect"]["gain"]))  # type: ignore[misc]
        assert found.predicted[key] == pytest.approx(wanted, abs=0.02)
    assert found.within == np.mean([abs(found.predicted[key] - y[key]) <= 1 for key in keys])
    assert found.correlation == pytest.approx(
        scipy.stats.pearsonr([found.predicted[key] for key in keys], list(y.values()))[0]
    )
    assert standings.prediction(promises(2)) is None
    related = [line | {"task": f"t-{line['task']}"} if line["task"] in ("t0", "t1") else line for line in known]
    kin = standings.prediction(related)  # two tasks of one data set do not foretell each other
    assert kin is not None and kin.predicted["t-t0", 100] != pytest.approx(found.predicted["t0", 100])
    assert kin.predicted["t2", 100] == pytest.approx(found.predicted["t2", 100])


def slow_reach(x: Sequence[float], y: Sequence[float]) -> Reach:
    """The same curve, found by a search in all directions."""

    def off(parameters: Any) -> Any:
        return np.array(y) - [Reach(*parameters, 0.0)(each) for each in x]

    found = scipy.optimize.least_squares(off, [0.5, 0.1], bounds=([-np.inf, 0.0], [np.inf, 1.0]))
    return Reach(*found.x, 0.0)


@pytest.mark.parametrize(("slope", "bend"), [(0.8, 0.12), (0.5, 0.0), (1.1, 0.4)])
def test_calibration_finds_the_curve(slope: float, bend: float) -> None:
    wanted = Reach(slope, bend, 0.0)
    exact = [
        line
        | {
            "accuracies": {
                "soft": {"unweighted+gold": 80.0, "corrected+gold": 80.0 + wanted(100 * line["prospect"]["gain"])}
            }
        }
        for line in promises()
    ]
    found = standings.calibration(exact)
    assert found is not None
    assert (found.slope, found.bend, found.residual) == pytest.approx((slope, bend, 0.0), abs=1e-6)


def test_calibration_is_a_regression_over_trials() -> None:
    known = promises()
    x = [100 * line["prospect"]["gain"] for line in known]
    y = [line["accuracies"]["soft"]["corrected+gold"] - 80 for line in known]
    wanted, found = slow_reach(x, y), standings.calibration(known)
    assert found is not None and (found.slope, found.bend) == pytest.approx((wanted.slope, wanted.bend), abs=0.01)
    left = np.array(y) - [found(each) for each in x]
    assert found.residual == pytest.approx(np.sqrt((left**2).sum() / (len(x) - 2)))
    told = standings.foretold(known, Reach(0.5, 0.0, 0.0))
    assert told is not None and told.slope == pytest.approx(2 * standings.foretold(known, Reach(1.0, 0.0, 0.0)).slope)  # type: ignore[union-attr]
    assert standings.calibration(known[:2]) is None and standings.foretold([], found) is None
    loose = [line | {"prospect": {**line["prospect"], "gain_error": 0.005}} for line in known]
    open_still = np.mean([found.error(each, 0.5) ** 2 for each in x])
    assert standings.calibration(loose).residual ** 2 == pytest.approx(found.residual**2 - open_still)  # type: ignore[union-attr]
    flat = standings.calibration([line | {"prospect": {"gain": 0.02, "gain_error": 0.0}} for line in known])
    assert flat is not None and flat.bend == 0.0  # the straightest of all that fit as well
    assert (flat.slope, flat.residual) == pytest.approx((np.mean(y) / 2, np.std(y, ddof=2)))
    none = standings.calibration([line | {"prospect": {"gain": 0.0, "gain_error": 0.0}} for line in known])
    assert none == Reach(0.0, 0.0, pytest.approx(np.sqrt((np.array(y) ** 2).sum() / (len(y) - 2))))
    worse = standings.calibration([line | {"prospect": {"gain": -0.02, "gain_error": 0.01}} for line in known])
    assert worse is not None and worse.slope == worse.bend == 0.0  # better targets do no harm


def test_single_trials_are_covered_by_their_intervals_as_often_as_these_say() -> None:
    """What is drawn from the model itself, with errors of both kinds, is inside its 95 % interval 95 times of 100."""
    random, known = np.random.default_rng(4), []
    for i in range(400):
        gain, error = float(random.normal(0.02, 0.02)), 0.01
        realised = 0.4 * 100 * (gain - float(random.normal(0, error))) + random.normal(0, 0.5)
        known.append(simple(f"t{i % 4}", 500, i // 4, {BASE: 80.0, "corrected+gold": 80.0 + realised}, gain))
        known[-1]["prospect"]["gain_error"] = error
    found = standings.coverage(known)
    assert found is not None and found.trials == 400 and 0.92 < found.covered < 0.98
    assert found.near == pytest.approx(scipy.stats.norm.cdf(1 / np.hypot(0.5, 0.4)) * 2 - 1, abs=0.06)
    wrong = [line | {"prospect": {**line["prospect"], "gain": 0.05}} if line["task"] == "t0" else line for line in known]
    assert standings.coverage(wrong).covered < found.covered  # type: ignore[union-attr]
    assert standings.coverage([line for line in known if line["task"] in ("t0", "t1")]) is None
    from_elsewhere = standings.coverage(known[:100], reach=Reach(0.0, 0.0, 0.3))  # foretells 0 ± 0.59 for everybody
    came = np.array([line["accuracies"]["soft"]["corrected+gold"] - 80 for line in known[:100]])
    assert from_elsewhere == standings.Foretold(100, np.mean(abs(came) <= 1), np.mean(abs(came) <= Z * 0.3))
    assert standings.coverage([], reach=Reach(1.0, 0.0, 0.0)) is None


def test_what_more_gold_was_said_to_bring_is_compared_with_what_it_brought() -> None:
    few = [simple("t", 100, trial, {BASE: 80.0}, 0.02) for trial in range(3)]
    many = [simple("t", 500, trial, {BASE: 80.0}, 0.02) for trial in range(2)]
    for line, gain in zip(few, (0.03, 0.05, 0.9), strict=True):
        line["prospect"]["gain_with_400_more"] = gain
    for line, corrected in zip(many, (84.0, 88.0), strict=True):
        line["prospect"]["corrected"], line["experts"] = corrected, {"teacher": 80.0}
    found = standings.projection([*few, *many], 100, 500)
    assert found is not None and (found.trials, found.projected, found.realised) == pytest.approx((2, 4.0, 6.0))
    assert found.off == pytest.approx(np.sqrt((1 + 9) / 2))
    said = (
        "More gold, from 100 to 500 rows, 2 trials: projected gain of the targets +4.00 points, realised +6.00, off by 2.24"
    )
    assert boards.planning([*few, *many], 100, 500).startswith(said)
    assert standings.projection(few, 100, 500) is None and boards.planning(many, 500, 2000) == ""


def test_a_task_is_near_where_its_mean_over_sizes_is() -> None:
    predicted = {("a", 100): 0.0, ("a", 500): 1.0, ("b", 100): 2.0}
    realised = {("a", 100): 1.5, ("a", 500): 0.5, ("b", 100): 3.1}
    found = standings.Prediction(predicted, realised, 1.0, 0.0, 0.0, 1 / 3, 1.1)
    assert boards.task_near(found, "a") and not boards.task_near(found, "b")


# ---------------------------------------------------------------------------------------------------------- the command


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two small tasks, of which the second has an external teacher, two sizes, two trials; forests that are none."""
    monkeypatch.setattr(contest, "forest", linear)
    monkeypatch.setattr(leaderboard, "TASKS", SOME)
    monkeypatch.setattr(leaderboard, "GOLD", (15, GOLD))
    monkeypatch.setattr(leaderboard, "TRIALS", 2)


def test_what_is_missing_comes_by_trial() -> None:
    wanted = missing([], SOME, (100, 500), 2)
    assert wanted[:4] == [("tiny", 100, 0), ("external", 100, 0), ("tiny", 500, 0), ("external", 500, 0)]
    assert [number for _, _, number in wanted] == [0] * 4 + [1] * 4
    there = [{"task": task, "gold": gold, "trial": number} for task, gold, number in (wanted[1], wanted[6])]
    assert missing(there, SOME, (100, 500), 2) == [each for i, each in enumerate(wanted) if i not in (1, 6)]
    assert missing(there, SOME, (100, 500), 0) == []


def command(folder: Path, *words: str) -> int:
    return leaderboard.main(["--results", str(folder), "--gold", "15", str(GOLD), "--trials", "2", *words])


def test_an_interrupted_command_goes_on(
    tiny: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, ran = leaderboard.run, []

    def until(stop: int) -> Callable[..., Line]:
        def counted(task: Task, *others: Any) -> Line:
            if len(ran) == stop:
                raise KeyboardInterrupt
            ran.append((task.name, *others[:2]))
            return run(task, *others)

        return counted

    monkeypatch.setattr(leaderboard, "run", until(3))
    assert command(tmp_path) == 130 and "goes on from there" in capsys.readouterr().err
    assert len(leaderboard.read(tmp_path)) == 3 and not (tmp_path / "leaderboard.html").exists()
    monkeypatch.setattr(leaderboard, "run", until(-1))
    assert command(tmp_path) == 0
    assert ran == missing([], SOME, (15, GOLD), 2)  # each of them once, in their order
    told = capsys.readouterr()
    assert "5 trials to run" in told.err and "All 8 trials have been run." in told.out
    assert "wdistill/methods/reaching.py has" in told.out and "bend" in told.out
    table, html = (tmp_path / "tables" / "leaderboard.md").read_text(), (tmp_path / "leaderboard.html").read_text()
    assert table in told.out and "`best`" in table and "2 of 2 trials" in html

    found = leaderboard.read(tmp_path)
    again = run(SOME[1], GOLD, 1, None)
    (same,) = [line for line in found if (line["task"], line["gold"], line["trial"]) == ("external", GOLD, 1)]
    assert {**same, "seconds": 0} == {**again, "seconds": 0}
    starts = {(line["task"], line["trial"]): line["before"] for line in found if line["gold"] == 15}
    for line in found:  # the student's first training does not know how many gold rows there are
        assert line["before"] == starts[line["task"], line["trial"]]

    monkeypatch.setattr(leaderboard, "run", until(len(ran)))
    assert command(tmp_path) == 0 and command(tmp_path, "--trials", "0") == 0
    assert (tmp_path / "tables" / "leaderboard.md").read_text() == table
    assert (tmp_path / "leaderboard.html").read_text() == html


def test_a_trial_that_was_run_twice_counts_once(tiny: None, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    for best in (81.0, 82.0):
        line = made.line(SOME[0], 15, 0) | {"before": best}
        lines.append(tmp_path / "results" / "leaderboard.jsonl", line)
    assert [line["before"] for line in leaderboard.read(tmp_path)] == [82.0]


def test_an_error_in_another_process_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Data that are not there: the process that looked for them says so, and the command ends."""
    words = ["--tasks", "letter", "--gold", "100", "--trials", "1", "--workers", "2", "--root", str(tmp_path)]
    assert leaderboard.main([*words, "--results", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert "the data set is not prepared" in told and "to do: python -m experiments.converting keel" in told
    assert "Traceback" not in told and leaderboard.read(tmp_path) == []


def test_processes_end_when_one_dies_and_on_interruption() -> None:
    with pytest.raises(UnfinishedError, match="a process that ran a trial died") as error, processes(1) as pool:
        pool.submit(os._exit, 1).result()
    assert "run again to go on" in error.value.remedy
    with pytest.raises(KeyboardInterrupt), processes(1) as pool:
        pool.submit(time.sleep, 600)
        (child,) = pool._processes.values()
        raise KeyboardInterrupt
    ends = time.monotonic() + 60
    while child.exitcode is None and time.monotonic() < ends:  # the pool's own thread may be the one that is told
        time.sleep(0.02)
    assert child.exitcode == -signal.SIGTERM


# --------------------------------------------------------------------------------------------------------------- boards


def without(known: Sequence[Line], **parts: Any) -> list[Line]:
    return [line for line in known if not all(line[name] == value for name, value in parts.items())]


def test_a_board_compares_methods_over_the_same_trials() -> None:
    known = made.lines(2)
    first = next(line for line in known if line["task"] == "texture" and line["gold"] == 500)
    del first["accuracies"]["soft"]["paper+gold"]
    every, retrainable = boards.boards(PLAN, known, "confirmation")
    assert every.trials[500] == {task.name: 1 if task.name == "texture" else 2 for task in PLAN.half("confirmation")}
    assert "letter-external" in every.tasks and "letter-external" not in retrainable.tasks
    assert {name for name, _ in retrainable.rows} - {name for name, _ in every.rows} == {
        "retrained+gold",
        "corrected-retrained+gold",
    }
    for board in (every, retrainable):
        for i, gold in enumerate(PLAN.gold):
            tasks = {found[i].tasks for _, found in board.rows if found[i]}  # type: ignore[union-attr]
            assert tasks == {sum(map(bool, board.trials[gold].values()))}
        means = [found[1].mean for _, found in board.rows if found[1]]
        assert means == sorted(means, reverse=True)
        baseline = [each for each in dict(board.rows)[BASE] if each is not None]
        assert baseline and all(each.mean == 0 and boards.cells(each)[0] == "0, the baseline" for each in baseline)
    assert "1 to 2 of 5 trials" in every.rests_on(500) and "2 of 5 trials" in every.rests_on(100)


def test_labels_alone_stand_on_a_board_whose_trials_all_have_it() -> None:
    known = made.lines(1)
    for line in known:
        line["accuracies"]["soft"].setdefault("labels+gold", 70.0)
    assert "labels+gold" in dict(boards.boards(PLAN, known, "confirmation")[0].rows)
    del next(line for line in known if line["task"] == "svhn")["accuracies"]["soft"]["labels+gold"]
    board = boards.boards(PLAN, known, "confirmation")[0]
    assert "labels+gold" not in dict(board.rows) and board.rests_on(500) == "7 of 7 tasks, 1 of 5 trials"


def test_a_board_says_what_it_lacks() -> None:
    known = without(without(made.lines(1), task="svhn"), task="imdb", gold=2000)
    board = boards.boards(PLAN, known, "confirmation")[0]
    assert board.rests_on(100) == "6 of 7 tasks, 1 of 5 trials"
    assert board.lacks == (
        "Still without a trial: at 100 gold rows svhn; at 500 gold rows svhn; at 2,000 gold rows imdb and svhn."
    )
    assert boards.boards(PLAN, made.lines(1), "tuning")[0].lacks == ""
    assert boards.run_so_far(PLAN, known) == "38 of 210 trials have been run; 172 are missing."


@pytest.mark.parametrize("targets", ["soft", "hard"])
def test_all_methods_stand_on_the_tasks_that_are_for_all(targets: str) -> None:
    found = boards.all_methods(PLAN, made.lines(1), targets)
    assert [set(board.tasks) for board in found] == [
        {"fashion-1000", "texture", "penbased", "optdigits"},
        {"letter-external"},
        {"fashion-500", "fashion-2500", "letter", "satimage", "magic"},
        {"fashion-external"},
    ]
    names = [{name for name, _ in board.rows} for board in found]
    assert names[0] == set(METHODS) and names[0] - names[1] == {name for name in METHODS if "retrained" in name}


CONFIRMING = tuple(task for task in TASKS if task.half == "confirmation")


def planted(gains: dict[str, float], tasks: Sequence[Task] = CONFIRMING) -> list[Line]:
    """All trials, some of them with other gains."""
    names = {task.name for task in tasks}
    return [
        made.line(task, gold, trial, gains if task.name in names else None)
        for trial in range(5)
        for gold in PLAN.gold
        for task in TASKS
    ]


def test_goals_that_are_reached() -> None:
    found = boards.goals(PLAN, made.lines())
    assert [goal.verdict for goal in found] == ["reached"] * 3
    assert "In none of 21 comparisons" in found[0].told and "over 7 of 7 tasks" in found[1].told
    so_far = boards.goals(PLAN, without(made.lines(), task="svhn", gold=500))
    assert [goal.verdict for goal in so_far] == ["reached so far"] * 3


def test_goals_that_are_not_reached_say_by_how_much() -> None:
    texture = next(task for task in TASKS if task.name == "texture")
    safe, gaining, _ = boards.goals(PLAN, planted({"best": -1.0}, [texture]))
    assert safe.verdict == "not reached" and safe.told.startswith("Below on texture with 100 gold rows (−")
    low = planted({"best": 0.9})
    gaining = boards.goals(PLAN, low)[1]
    mean = standings.standing([line for line in low if line["task"] in {task.name for task in CONFIRMING}], "best", 500)
    assert mean is not None and gaining.verdict == "not reached" and f"{1 - mean.mean:.2f} short" in gaining.told
    predicting = boards.goals(PLAN, planted({"corrected-retrained+gold": 8.0, "corrected+gold": 8.0}))[2]
    assert predicting.verdict == "not reached" and re.search(
        r"\d+ of 21 tasks and sizes, \d+ %, .*\d+ percentage points short", predicting.told
    )


def test_what_one_would_say_without_looking_stands_beside_the_prediction() -> None:
    """The tuning half gains 2 points on every task; two tasks of the other gain 2.5 and 4, of which 2.5 and 4 were said."""
    reach = REACH["soft"]

    def promise(points: float) -> float:
        return float(scipy.optimize.brentq(lambda gain: reach(100 * gain) - points, 0, 1))

    seen = [simple(f"s{i}", 500, 0, {BASE: 70.0, "corrected+gold": 72.0}, 0.01) for i in range(3)]
    mine = [simple(f"m{came}", 500, 0, {BASE: 70.0, "corrected+gold": 70 + came}, promise(came)) for came in (2.5, 4.0)]
    found = standings.foretold(mine, reach)
    assert found is not None and found.within == 1
    told = boards._blind(found, seen)
    off = np.sqrt((0.5**2 + 2**2) / 2)
    assert told == (
        ". Saying +2.00 of every task, the tuning half's mean, would be near in 1 of 2 tasks and sizes: root mean square "
        f"{off:.2f} points, of the prediction 0.00"
    )
    assert boards._blind(found, []) == ""


def test_goals_of_nothing_cannot_be_judged() -> None:
    for known in ([], made.lines(1, TASKS[:1], (100,))):
        assert [goal.verdict for goal in boards.goals(PLAN, known)] == ["cannot be judged yet"] * 3


def test_choices_and_trials_are_counted() -> None:
    known = made.lines(3, TASKS[:2])
    for line in known:
        line["why"] = {"best": "targets corrected by x" if line["trial"] else "the teacher's own targets: y"}
    chosen, counts = boards.choices(PLAN, known), boards.trials(PLAN, known)
    assert chosen is not None and chosen.lines[0] == ("fashion-500", *["2 of 3"] * 3)
    assert chosen.lines[-1] == ("all tasks", *["4 of 6"] * 3) and chosen.lines[2][1] == "–"
    assert counts.lines[0][1:] == ("3 of 5",) * 3 and counts.lines[2][1:] == ("0 of 5",) * 3
    assert boards.choices(PLAN, []) is None


def test_documents_list_a_dozen_methods() -> None:
    assert set(boards.LISTED) <= set(METHODS) and len(boards.LISTED) == 12
    text = boards.brief(PLAN, made.lines(2))
    rows = [row.split(" | ") for row in text.splitlines() if row.startswith("| `")]
    assert [row[0].strip("| `") for row in rows] == list(boards.LISTED) and {len(row) for row in rows} == {7}
    (best,) = [row for row in rows if "`best`" in row[0]]
    whole = standings.standing([line for line in made.lines(2) if line["task"] in {t.name for t in CONFIRMING}], "best", 500)
    assert whole is not None and best[2] == boards.points(whole)
    assert boards.brief(PLAN, []) == "No trials yet.\n"
    tuning = {task.name for task in PLAN.half("tuning")}
    early = boards.brief(PLAN, [line for line in made.lines(2) if line["task"] in tuning])
    assert "None is of the confirmation half" in early and "|" not in early


# ------------------------------------------------------------------------------------------------------------- the page


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """All trials, some, one, none."""
    known = {
        "all": made.lines(2),
        "some": without(without(made.lines(2), task="svhn"), gold=2000),
        "one": made.lines(1, TASKS[:1], (100,)),
        "none": [],
    }
    plan, folder = replace(PLAN, trials=2), tmp_path_factory.mktemp("pages")
    for name, each in known.items():
        (folder / f"{name}.html").write_text(page(plan, each), "utf-8")
    return {name: folder / f"{name}.html" for name in known}


def test_a_page_is_well_formed_and_loads_nothing(pages: dict[str, Path]) -> None:
    for path in pages.values():
        html = path.read_text()
        seen = Reader(html)
        assert len(seen.ids) == len(set(seen.ids)) and "<script" not in html and "http" not in html.replace("http-equiv", "")
        assert not [each for each in seen.attributes if each[1] == "style" or each[1].startswith("on")]
        assert "default-src &#39;none&#39;" in html and "img-src" not in html


def test_a_page_has_all_parts_and_says_what_is_missing(pages: dict[str, Path]) -> None:
    seen = {name: Reader(path.read_text()).text.replace("\u00a0", " ") for name, path in pages.items()}
    for words in (
        *("The targets, set before the runs", "Confirmation half", "Tuning half", "Gain of every task"),
        *("Gain against the number of gold rows", "Predicted and realised gain", "What best chose"),
        *(
            "All methods, soft targets",
            "All methods, hard targets",
            "External teachers".lower(),
            "24dc081",
            "Xeon",
            "0 to 1",
        ),
    ):
        assert words in seen["all"], words
    assert seen["all"].count("3,000 unlabeled rows, 2,100 where gold takes most.") == 1
    assert "missing" not in seen["all"] and "Still without a trial" not in seen["all"]
    assert "52 of 84 trials have been run; 32 are missing." in seen["some"] and "no trials yet of svhn" in seen["some"]
    assert "There are fewer than three data sets" in seen["one"] and "cannot be judged yet" in seen["one"].lower()
    assert "No trials yet." in seen["none"] and "Standings" not in seen["none"] and "0 of 2" in seen["none"]
    assert pages["all"].read_text().count("<figure>") == 14 + 2 + 1  # tasks, halves, predictions
    assert all(name in METHODS for name in DRAWN)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_a_page_is_seen_on_a_phone_and_on_a_desk(browser: Any, pages: dict[str, Path], width: int) -> None:
    for name, path in pages.items():
        with opened(browser, path.as_uri(), width) as tab:
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
            assert tab.evaluate("document.scripts.length") == 0
            boxes = [figure.bounding_box() for figure in tab.locator("figure > svg").all()]
            assert bool(boxes) == (name != "none") and all(box["width"] > 100 and box["height"] > 100 for box in boxes)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_its_text_can_be_read_in_the_light_and_in_the_dark(browser: Any, pages: dict[str, Path], scheme: str) -> None:
    with opened(browser, pages["some"].as_uri(), scheme=scheme) as tab:
        assert [each for each in tab.evaluate(CONTRAST) if each["contrast"] < 4.5] == []


# ------------------------------------------------------------------------------------------------------------ documents


def of_the_repository() -> tuple[Plan, list[Line]]:
    found = leaderboard.read(HERE)
    return PLAN, [line for line in found if line["task"] in {task.name for task in TASKS} and line["gold"] in PLAN.gold]


@pytest.mark.parametrize("document", [HERE / "README.md", HERE.parent / "README.md"], ids=["experiments", "top"])
def test_the_leaderboard_in_a_document_is_that_of_the_lines(document: Path) -> None:
    text = document.read_text()
    assert MARK in text and END in text
    assert filled(text, {MARK: boards.brief(*of_the_repository())}) == text, REMEDY


def test_the_predictions_in_a_document_are_those_of_the_lines() -> None:
    text = (HERE.parent / "docs" / "advise.md").read_text()
    assert PREDICTED in text and filled(text, {PREDICTED: boards.validated(of_the_repository()[1])}) == text, REMEDY
    made_up = boards.validated(made.lines(2))
    assert re.search(r"\d+ % of 42 tasks and sizes, .* Of 84 single trials \d+ % are within", made_up, re.S), made_up
    assert "24dc081" in made_up and boards.validated(made.lines(2, TASKS[:3])).startswith("Not yet")


def test_table_and_page_in_the_repository_are_those_of_the_lines() -> None:
    assert (HERE / "tables" / "leaderboard.md").read_text() == boards.table(*of_the_repository()), REMEDY

    drawing = re.compile(r"<svg.*?</svg>", re.S)
    there, made_now = (HERE / "leaderboard.html").read_text("utf-8"), page(*of_the_repository())
    assert drawing.sub("", there) == drawing.sub("", made_now), REMEDY
    pairs = list(zip(drawing.findall(there), drawing.findall(made_now), strict=True))
    assert pairs and all(same_picture(*pair) for pair in pairs), REMEDY


def test_the_figure_in_the_repository_is_that_of_the_lines() -> None:
    drawn = rendered(overview(*of_the_repository()), "svg").decode()
    assert same_picture((HERE / "figures" / "leaderboard.svg").read_text(), drawn), REMEDY


def test_the_overview_shows_every_task_at_every_size() -> None:
    known = made.lines(2)
    panels = overview(PLAN, known).axes
    assert [axes.get_title("left") for axes in panels] == ["100 gold rows", "500 gold rows", "2,000 gold rows"]
    names = [task.name for task in PLAN.half("confirmation")]
    assert [each.get_text() for each in panels[0].get_yticklabels()] == names[::-1]
    shown = dict(zip(panels[1].get_legend_handles_labels()[1], panels[1].containers, strict=True))
    assert list(shown) == list(DRAWN)
    means = standings.gains(known, "best")
    assert shown["best"][0].get_xdata().tolist() == [means[name, 500].mean for name in names[::-1]]
    assert overview(PLAN, []).axes  # nothing yet


def test_lines_in_the_repository_have_the_settings_of_their_tasks() -> None:
    settings = {task.name: task.settings for task in TASKS}
    for line in of_the_repository()[1]:
        assert {name: line["settings"][name] for name in settings[line["task"]]} == settings[line["task"]], line["task"]


def test_the_confirmation_is_one_code_and_the_reach_that_of_the_tuning_half() -> None:
    _, known = of_the_repository()
    tuning = leaderboard.tuned(known)
    confirmed = [line for line in known if line not in tuning]
    assert len({line["code"] for line in confirmed}) <= 1
    whole = len(tuning) == PLAN.trials * len(PLAN.gold) * len(PLAN.half("tuning"))
    assert whole or not confirmed, "the confirmation half is run when the tuning half is complete"
    for targets, reach in REACH.items() if whole else ():
        fitted = standings.calibration(tuning, targets)
        assert fitted and reach == Reach(*(round(each, 3) for each in (fitted.slope, fitted.bend, fitted.residual)))
