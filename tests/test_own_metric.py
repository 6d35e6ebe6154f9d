"""`distill` by the user's own metric: the epoch, the decision, what is reported and exported; and the pool's judgement."""

from __future__ import annotations

import errno
import html
import json
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.distilling import QUICK, failing, go, students, undrawn, unlike
from wdistill import MLP, Recipe, Report, arm, best, distill, export_student, load_student, read_run, unweighted
from wdistill.core.errors import ConfigError, InputError, StorageError, WdistillError
from wdistill.methods.context import MethodArm
from wdistill.methods.decision import reachable
from wdistill.methods.interval import estimate
from wdistill.methods.metric import LARGEST_COST, SMALLEST_COST, cost_metric, parse_metric
from wdistill.methods.metric_text import metric_of, read_costs, written_out
from wdistill.methods.statistics import Interval
from wdistill.report.judged import decisions, grids, pool_sentences, terminal_lines, without_base
from wdistill.report.page import page
from wdistill.report.tables import choices
from wdistill.runs.checkpoints import CheckpointStore
from wdistill.runs.judgement import JudgedStudent, Judgement, Measured, judgement_of
from wdistill.training.export import export_run
from wdistill.training.judging import pool_rows
from wdistill.training.models.networks import NamedNetwork

BEST = MethodArm("best", best.method, ("second",))
COSTS = "cost:[[0.0, 1.0, 1.0], [5.0, 0.0, 1.0], [1.0, 1.0, 0.0]]"


def rare(n: int, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Rows of which 3 % are positive, and none is certain to be."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(n, 6)).astype(np.float32)
    chance = 1 / (1 + np.exp(6.0 - 2.2 * inputs[:, 0] - 1.2 * inputs[:, 1]))
    return inputs, (rng.random(n) < chance).astype(np.int64)


def rarely(run: Path | None, rule: Any, metric: str = "f1:1", **others: Any) -> Report:
    settings = {"teacher_epochs": 20, "student_epochs": 20, "epochs": 12, "batch_size": 256, "rate": 0.01} | others
    recipe = Recipe(**settings, schedule="constant", metric=metric, device="cpu")  # type: ignore[arg-type]
    data = {"labeled": rare(1_000, 1), "validation": rare(1_500, 2), "unlabeled": rare(4_000, 3)[0], "test": rare(20_000, 4)}
    return distill(NamedNetwork("mlp:inputs=6,classes=2,hidden=16"), NamedNetwork("mlp:inputs=6,classes=2,hidden=8"), **data,
                   rule=rule, recipe=recipe, run=run)  # fmt: skip


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The method best without forests and retrained teachers, which take long."""
    with undrawn():
        return rarely(tmp_path_factory.mktemp("rare") / "run", [unweighted, BEST])


@pytest.mark.slow
def test_a_rare_class_is_found_by_the_decision_and_hardly_by_the_most_likely_class(found: Report) -> None:
    assert 0.01 < rare(20_000, 4)[1].mean() < 0.05
    for name, fitted_on in (("unweighted", "gold"), ("best", "pool")):
        student = found.outcome.judgement.students[name]
        first = student.overall[0]
        assert student.accepted and student.fitted_on == fitted_on and student.measured_on == "test"
        assert first.name == "f1:1" and first.likely is not None and first.decided is not None
        assert first.decided.low > first.likely.high, "no clear margin"
        assert [each.name for each in student.overall] == ["f1:1", "accuracy", "recall:1", "precision:1"]
        assert [each.name for each in student.by_class] == ["0", "1"] and student.by_class[1].decided == first.decided


@pytest.mark.slow
def test_the_epoch_is_that_with_the_best_metric(found: Report) -> None:
    for training in found.outcome.arms.values():
        scores = [epoch.score for epoch in training.epochs]
        assert training.chosen is not None and None not in scores
        assert training.chosen.epoch == 1 + int(np.argmax(np.array(scores, float)))
        assert len({epoch.validation for epoch in training.epochs}) < len({*scores}), "accuracy tells them apart as well"


@pytest.mark.slow
def test_numbers_are_those_of_the_exported_student(found: Report, tmp_path: Path) -> None:
    from sklearn.metrics import f1_score

    inputs, labels = rare(20_000, 4)
    description = export_run(found.outcome.folder, tmp_path / "student", "best")
    assert description["decision"]["metric"] == "f1:1" and description["arm"] == "best"
    student: Any = load_student(tmp_path / "student")
    import torch

    probabilities = student(torch.from_numpy(inputs)).softmax(1)
    first = found.outcome.judgement.students["best"].overall[0]
    assert first.likely is not None and first.decided is not None
    assert first.likely.value == pytest.approx(f1_score(labels, probabilities.argmax(1)), abs=1e-9)
    assert first.decided.value == pytest.approx(f1_score(labels, student.decide(probabilities)), abs=1e-9)


@pytest.mark.slow
def test_page_and_terminal_show_metric_decision_and_pool(found: Report) -> None:
    outcome = found.outcome
    text = page({"": [outcome]}, "a page")
    first = outcome.judgement.students["best"].overall[0].decided
    assert first is not None
    number = f"{first.value:.3f} ({first.low:.3f} to {first.high:.3f})"
    assert "By your metric" in text and number in text and "f1 by class" in text
    assert "best decides for class 1 from a probability of 0." in text and "knows the gold rows by heart" in text
    (sentence,) = pool_sentences([outcome])
    assert sentence in html.unescape(text).replace("\u00a0", " ") and "points and" in sentence
    assert sentence.endswith(
        "over unweighted, which was not trained on the gold rows (where the interval's width was measured, both were)."
    )
    told = {gain.metric: gain.gain for gain in outcome.judgement.pool}["f1:1"]
    left = f"of f1:1 (these rows alone leave open {told.low:+.3f} to {told.high:+.3f}; how far students are from it"
    assert left.replace("-", "−") in sentence, "an interval of a metric that no trial was judged by"
    assert len(grids([outcome])) == 2 and len(list(terminal_lines([outcome]))) == 5
    twice = grids([outcome, outcome])[0]
    assert all("±" in line[2] for line in twice.lines) and decisions([outcome, outcome])[0].startswith("In the first trial")


@pytest.mark.slow
def test_the_reason_of_best_has_the_gain_by_the_metric(found: Report) -> None:
    number = r"[+-][\d.]+"
    said = rf"points of target accuracy expected; by f1:1 a gain of {number} \({number} to {number}\) on gold, out of fold"
    why = found.outcome.arms["best"].why
    assert re.search(said, why) and choices([found.outcome]) == [("best", why)]


@pytest.mark.slow
def test_what_the_pool_says_agrees_with_the_test_rows(found: Report) -> None:
    by_metric = {gain.metric: gain for gain in found.outcome.judgement.pool}
    assert [*by_metric] == ["accuracy", "f1:1"] and by_metric["accuracy"].rows == 4_000
    final = {name: training.final for name, training in found.outcome.arms.items()}
    gain = by_metric["accuracy"].gain
    assert final["best"] is not None and final["unweighted"] is not None
    assert gain.low <= final["best"] - final["unweighted"] <= gain.high


@pytest.mark.slow
def test_without_a_metric_only_the_pool_is_judged(tmp_path: Path) -> None:
    with undrawn():
        report = go(
            recipe=QUICK, rule=[unweighted, arm(unweighted, validation_in_training="yes"), BEST], run=tmp_path / "run"
        )
        again = go(
            recipe=QUICK, rule=[unweighted, arm(unweighted, validation_in_training="yes"), BEST], run=tmp_path / "two"
        )
    assert not report.outcome.judgement.students
    (gain,) = report.outcome.judgement.pool
    assert (gain.arm, gain.base, gain.metric) == ("best", "unweighted-2", "accuracy"), "not the arm with gold"
    assert gain.gain.low < gain.gain.value < gain.gain.high and unlike(tmp_path / "run", tmp_path / "two") == []
    assert report.outcome.judgement == again.outcome.judgement
    (sentence,) = pool_sentences([report.outcome])
    assert sentence.endswith("points over unweighted-2."), "both were trained on gold"
    assert without_base([report.outcome]) == []


def test_a_run_of_corrected_targets_alone_says_how_to_know_what_they_gain(tmp_path: Path) -> None:
    with undrawn():
        report = go(recipe=QUICK, rule=[BEST], run=tmp_path / "run")
    (sentence,) = without_base([report.outcome])
    assert "--rule unweighted --rule best --validation-in-training yes" in sentence
    assert sentence in list(terminal_lines([report.outcome])) and pool_sentences([report.outcome]) == []
    assert sentence in html.unescape(page({"": [report.outcome]}, "a page")).replace("\u00a0", " ")
    assert without_base([replace(report.outcome, state="running")]) == [], "there is time to stop it"
    (alone,) = report.outcome.arms.values()
    weighted = replace(alone, name="debiased", rule="debiased", why="")
    assert without_base([replace(report.outcome, arms={"best": alone, "debiased": weighted})]) == [], "it was taught them"


def test_a_run_that_was_asked_for_the_teachers_targets_was_taught_them(tmp_path: Path) -> None:
    with undrawn():
        report = go(recipe=replace(QUICK, targets_from="teacher"), rule=best, run=tmp_path / "run")
    assert without_base([report.outcome]) == []


def test_accuracy_as_a_metric_leaves_no_trace(tmp_path: Path) -> None:
    with undrawn():
        report = go(recipe=QUICK, rule=unweighted, run=tmp_path / "run")
    assert "judged" not in CheckpointStore(tmp_path / "run").state
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all("score" not in line for line in lines) and all(epoch.score is None for epoch in _epochs(report))


def _epochs(report: Report) -> list[Any]:
    return [epoch for training in report.outcome.arms.values() for epoch in training.epochs]


@pytest.mark.parametrize("metric", ["log-loss", "macro-f1", "average-precision:2", "recall@precision=0.5:1", COSTS])
def test_every_metric_trains_the_same_students_and_chooses_among_their_epochs(tmp_path: Path, metric: str) -> None:
    longer = replace(QUICK, epochs=4, metric=metric)
    with undrawn():
        report = go(recipe=longer, rule=unweighted, run=tmp_path / "run")
        plain = go(recipe=replace(longer, metric="accuracy"), rule=unweighted)
    assert students(report) == students(plain)
    (student,) = report.outcome.judgement.students.values()
    training = report.outcome.arms["unweighted"]
    scores = np.array([epoch.score for epoch in training.epochs], float)
    assert np.isfinite(scores).all() and training.chosen is not None and training.chosen.epoch == 1 + scores.argmax()
    assert (scores < 0).all() if metric in ("log-loss", COSTS) else (scores >= 0).all(), "of losses less is better"
    assert student.overall[0].likely is not None and len(student.overall) > 1 and 0 < len(student.by_class) <= 3
    assert (student.costs is not None) == (metric == COSTS and student.accepted)
    assert (student.fitted_on == "gold") == (metric in ("macro-f1", "recall@precision=0.5:1", COSTS))
    assert read_run(tmp_path / "run").judgement == report.outcome.judgement


@pytest.mark.parametrize("epochs", [3, 6])
def test_costs_do_not_rise_by_the_decision_of_a_student_of_few_epochs(tmp_path: Path, epochs: int) -> None:
    """By its own probabilities it takes too many rows for the class that is dear to miss."""
    import torch

    few = {"teacher_epochs": epochs, "student_epochs": epochs, "epochs": epochs}
    report = rarely(tmp_path / "run", unweighted, "cost:[[0, 1], [20, 0]]", **few)
    judged = report.outcome.judgement.students["unweighted"]
    overall, (inputs, labels) = judged.overall[0], rare(20_000, 4)
    assert overall.likely is not None and overall.decided is not None
    export_run(report.outcome.folder, tmp_path / "student")
    student: Any = load_student(tmp_path / "student")
    with torch.no_grad():
        p = student(torch.from_numpy(inputs)).softmax(1).double().numpy()
    costs = np.array([[0.0, 1.0], [20.0, 0.0]])
    assert costs[labels, (p @ costs).argmin(axis=1)].mean() > overall.likely.value + 0.1, "no trap"
    assert overall.decided.value <= overall.likely.value
    assert costs[labels, student.decide(p)].mean() == pytest.approx(overall.decided.value, abs=1e-4)
    (sentence,) = decisions([report.outcome])
    if epochs == 3:  # the student does not tell the dear class from the other yet
        assert not judged.accepted and (student.decide(p) == p.argmax(axis=1)).all()
        assert "for the most likely class: that of least expected cost cost more, on the gold rows" in sentence
    else:
        recalibrated = p**judged.slope * np.exp(judged.offsets)
        assert judged.accepted and judged.slope != 1 and overall.decided.value < overall.likely.value
        assert (student.decide(p) == (recalibrated @ costs).argmin(axis=1)).all()
        assert "its probabilities recalibrated on the gold rows, which it was not trained on" in sentence
    assert judged.fitted_on == "gold" and read_run(tmp_path / "run").judgement == report.outcome.judgement


def test_a_student_without_a_decision_takes_the_most_likely_class(tmp_path: Path) -> None:
    import torch

    student = MLP(6, 3, (4,))
    description = export_student(student, torch.zeros(1, 6), tmp_path, None)
    loaded: Any = load_student(tmp_path)
    p = np.random.default_rng(0).dirichlet(np.ones(3), 50)
    assert "decision" not in description and (loaded.decide(p) == p.argmax(axis=1)).all()
    assert (loaded.decide(torch.from_numpy(p)) == p.argmax(axis=1)).all()


def test_without_test_rows_gold_tells_out_of_fold_where_it_was_not_trained_on(tmp_path: Path) -> None:
    with undrawn():
        rule = {"plain": unweighted, "gold": arm(unweighted, validation_in_training="yes")}
        found = go(recipe=replace(QUICK, metric="macro-f1"), rule=rule, test=None).outcome.judgement.students
    assert found["plain"].measured_on == "gold" and found["plain"].rows > 0 and found["plain"].fitted_on == "gold"
    assert found["gold"].measured_on == "" and found["gold"].overall == () and found["gold"].fitted_on == "pool"


def test_half_of_the_gold_rows_tells_where_the_other_half_is_trained_on() -> None:
    from tests.distilling import splits

    with undrawn():
        rule = arm(unweighted, validation_in_training="half")
        (student,) = go(recipe=replace(QUICK, metric="macro-f1"), rule=rule, test=None).outcome.judgement.students.values()
    assert student.rows == (len(splits()["validation"][1]) + 1) // 2


def test_several_arms_in_a_stack_are_each_chosen_by_the_metric() -> None:
    recipe = replace(QUICK, epochs=4, metric="macro-f1")
    with undrawn():
        both = go(recipe=recipe, rule={"a": unweighted, "b": arm(unweighted, temperature=2.0)})
        alone = go(recipe=recipe, rule={"a": unweighted})
    one, other = both.outcome.arms["a"], alone.outcome.arms["a"]
    assert [epoch.score for epoch in one.epochs] == pytest.approx([epoch.score for epoch in other.epochs], abs=1e-6)


def test_a_precision_that_no_threshold_reaches_is_told() -> None:
    """The corrected targets are never so sure: the most likely class is decided, and nobody is told of a threshold."""
    recipe = replace(QUICK, metric="recall@precision=0.999:1")
    rule = {"gold": arm(unweighted, validation_in_training="yes")}
    with undrawn():
        outcome = go(recipe=recipe, rule=rule).outcome
    student = outcome.judgement.students["gold"]
    assert not student.accepted and student.fitted_on == "pool" and not any(student.offsets)
    assert decisions([outcome]) == [
        "gold decides for the most likely class: no threshold reaches the precision of recall@precision=0.999:1 on the "
        "pool, with the corrected targets as its truth."
    ]
    never = replace(student, overall=(Measured("precision:1", None, None), Measured("accuracy", Interval(0.5, 0.4, 0.6))))
    judged = replace(outcome, judgement=replace(outcome.judgement, students={"gold": never}))
    assert [line[1:] for line in grids([judged])[0].lines] == [("no row tells",) * 2, ("0.500 (0.400 to 0.600)", "")]


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("f2", "unknown metric"),
        ("recall:1", "no best decision"),
        ("precision:1", "no best decision"),
        ("share:1", "the same for all students"),
        ("macro-f1:1", "a class for a metric of all classes"),
        ("recall@precision=2:1", "not a precision"),
        ("cost:nowhere.csv", "cannot be read"),
        ("cost:costs.txt", "not a file of costs"),
        ("cost:[[0, 1], [1", "not a cost matrix"),
    ],
)
def test_a_bad_metric_is_an_error_before_there_is_a_folder(tmp_path: Path, metric: str, said: str) -> None:
    with pytest.raises(WdistillError, match=said):
        go(recipe=replace(QUICK, metric=metric), run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("f1:3", "f1 of which class"),
        ("f1", "f1 of which class"),
        ("cost:[[0, 1], [1, 0]]", "a cost matrix of other classes"),
    ],
)
def test_a_metric_of_other_classes_is_an_error_before_any_training(tmp_path: Path, metric: str, said: str) -> None:
    with pytest.raises(WdistillError, match=said):
        go(recipe=replace(QUICK, metric=metric), run=tmp_path / "run")
    assert not [path.name for path in (tmp_path / "run").iterdir() if path.name != "lock"]


def test_a_class_without_gold_rows_is_an_error() -> None:
    from tests.distilling import splits

    inputs, labels = splits()["validation"]
    kept = labels != 1
    with pytest.raises(InputError, match="no gold row tells"):
        go(recipe=replace(QUICK, metric="f1:1"), validation=(inputs[kept], labels[kept]))


def test_costs_are_read_from_every_kind_of_file(tmp_path: Path) -> None:
    costs = np.array([[0.0, 1.0], [20.0, 0.0]])
    np.save(tmp_path / "c.npy", costs)
    (tmp_path / "c.csv").write_text("0,1\n20,0\n")
    (tmp_path / "c.json").write_text("[[0, 1], [20, 0]]")
    for name in ("c.npy", "c.csv", "c.json"):
        assert (read_costs(tmp_path / name) == costs).all()
        assert written_out(f"cost:{tmp_path / name}") == "cost:[[0.0, 1.0], [20.0, 0.0]]"
    assert written_out("f1:1") == "f1:1" and f"cost:{costs.tolist()}" == written_out(f"cost:{costs.tolist()}")
    p = np.array([[0.9, 0.1], [0.99, 0.01]])
    for given in (costs, f"cost:{costs.tolist()}", f"cost:{tmp_path / 'c.csv'}"):
        assert metric_of(given, "ab").decide(p).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b"x,a\na,0\n"),
        ("a.csv", b"0,1\n1\n"),
        ("a.json", b"[" * 50_000),
        ("a.json", b'{"a": 1}'),
        ("a.npy", b"junk"),
        ("a.json", b'[[0,"1"],[1,0]]'),
        ("a.json", b"[[0,1" + b"0" * 400 + b"],[1,0]]"),
        ("a.json", b"[[0,true],[1,0]]"),
        ("a.csv", b"0,1\n1,1e\n"),
    ],
)
def test_files_that_hold_no_costs_are_errors_of_ours(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(WdistillError, match="not a cost matrix"):
        read_costs(tmp_path / name)


@pytest.mark.parametrize("costs", ["[[0, 1" + "0" * 400 + "], [1, 0]]", "[[0, null], [1, 0]]", "[[0, 1], [1]]", "[1]", "["])
def test_costs_written_out_that_are_none_are_errors_of_ours(costs: str) -> None:
    with pytest.raises(WdistillError, match="not a cost matrix"):
        metric_of(f"cost:{costs}", "ab")


@pytest.mark.parametrize(
    "costs", ["[[0, 5e-324], [1e-320, 0]]", "[[0, 1e308], [1e308, 0]]", "[[0, 1e999], [1, 0]]", "[[0, -1], [1, 0]]"]
)
def test_costs_beyond_all_bounds_are_errors_that_name_them(costs: str) -> None:
    with pytest.raises(WdistillError, match=r"true 0, decided 1 costs (4.9\d*e-324|1e\+308|inf|-1)"):
        metric_of(f"cost:{costs}", "ab")


@pytest.mark.parametrize("unit", [SMALLEST_COST, 1e-9, 1e9, LARGEST_COST / 1000])
def test_a_cost_and_its_interval_scale_with_their_unit(unit: float) -> None:
    rng = np.random.default_rng(0)
    p, y, w = rng.dirichlet(np.ones(3), 50), rng.integers(0, 3, 50), 1 / rng.uniform(1e-3, 1, 50)
    costs = np.array([[0.0, 1, 4], [2, 0, 1], [900, 3, 0]])
    plain, scaled = (estimate(cost_metric(each), p, y, w) for each in (costs, costs * unit))
    for one, other in ((plain.value, scaled.value), (plain.low, scaled.low), (plain.high, scaled.high)):
        assert other == pytest.approx(one * unit, rel=1e-9, abs=0)


def test_a_run_keeps_the_costs_and_not_the_file(tmp_path: Path) -> None:
    file = tmp_path / "c.csv"
    file.write_text("0,1,1\n5,0,1\n1,1,0\n")
    with undrawn():
        go(recipe=replace(QUICK, metric=f"cost:{file}"), rule=unweighted, run=tmp_path / "run")
    assert read_run(tmp_path / "run").recipe["metric"] == COSTS
    file.write_text("0,1,1\n6,0,1\n1,1,0\n")
    with pytest.raises(ConfigError, match=r"5\.0.*6\.0"):
        go(recipe=replace(QUICK, metric=f"cost:{file}"), rule=unweighted, run=tmp_path / "run")


def test_epochs_are_compared_at_their_best_threshold() -> None:
    """Two students with the same ranking: probabilities below one half decide nothing, and are as good."""
    rng = np.random.default_rng(0)
    labels = (rng.random(400) < 0.1).astype(int)
    score = 1 / (1 + np.exp(-(rng.normal(size=400) + 2 * labels)))
    metric = parse_metric("f1:b", "ab")
    high, low = (np.stack([1 - each, each], axis=1) for each in (score, 0.4 * score))
    assert reachable(metric, high, labels) == reachable(metric, low, labels) > metric(high, labels) > 0
    assert metric(low, labels) == 0
    plain = parse_metric("macro-f1", "abc")
    three = rng.dirichlet(np.ones(3), 400)
    assert reachable(plain, three, labels) == plain(three, labels)


def test_the_rows_of_the_pool_that_judge_are_few_and_in_order() -> None:
    assert (pool_rows(10, 2, 0) == np.arange(10)).all()
    rows = pool_rows(100_000, 2, 0)
    assert len(rows) == 20_000 and (np.diff(rows) > 0).all() and (rows == pool_rows(100_000, 2, 0)).all()
    assert len(pool_rows(100_000, 1_000, 0)) == 2_000 and len(pool_rows(100_000, 10_000, 0)) == 1_000


@pytest.mark.slow
def test_a_run_that_ends_while_students_are_judged_resumes_with_the_same_bits(tmp_path: Path) -> None:
    def run(name: str) -> Report:
        rule, recipe = [unweighted, BEST], replace(QUICK, teacher_epochs=0, metric="macro-f1")
        return go(recipe=recipe, rule=rule, run=tmp_path / name)

    with undrawn():
        with failing(0, errno.EIO) as operations:
            whole = run("whole")
        for back in range(1, 12):  # the last of them: judging, finishing, the page
            with failing(len(operations) - back, errno.EIO), suppress(StorageError):
                run(f"{back}")
            assert run(f"{back}").outcome.judgement == whole.outcome.judgement
            assert unlike(tmp_path / f"{back}", tmp_path / "whole") == []


def test_a_run_of_before_probabilities_were_recalibrated_is_read() -> None:
    student = JudgedStudent("cost", ("a", "b"), (0.0, 0.0), ((0.0, 1.0), (20.0, 0.0)), "", False, "", 0, (), ())
    found = Judgement({"unweighted": student}, ())
    record = found.record
    del record["students"]["unweighted"]["slope"]
    assert judgement_of(record) == found and student.decision.slope == 1
