"""What gold and pool tell of the pool, how many gold rows are needed, and what serving costs: through `advise`."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from tests.test_advising import speaking
from wdistill import ConfigError, Prices
from wdistill.cli.advise import print_advice
from wdistill.methods.advice import advise
from wdistill.methods.best import correct_targets
from wdistill.methods.context import Context, one_hot
from wdistill.methods.costs import distilled
from wdistill.methods.gold_needed import gold_needed
from wdistill.methods.gold_plan import PlanStep
from wdistill.methods.interval import estimate
from wdistill.methods.metric import PLAIN, parse_metric
from wdistill.methods.on_pool import PoolEstimates, estimate_pool, judging_error, pilot_accuracy
from wdistill.methods.pilots import UNFORESEEN, PilotPredictions
from wdistill.methods.prediction_powered import prediction_powered_by_class
from wdistill.methods.questions import Questions
from wdistill.methods.serving import after_labeling, by_labels, by_student, by_teacher, wrong
from wdistill.methods.statistics import Interval, Z, share

PRICES = Prices(gold=0.5, teacher=0.01, error=0.2)


def known(context: Context, **more: Any) -> PoolEstimates:
    targets = correct_targets(context).targets
    return estimate_pool(context, targets, targets.of(context.unlabeled), **more)


# what is known of the pool ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_intervals_of_advise_cover_the_pool_and_are_narrower_than_those_of_gold() -> None:
    inside, widths = [], []
    for seed in range(20):
        given = speaking(m=120, n=800, classes=3, seed=seed, second=2.5)
        found = advise(given).pool.teacher
        truth = np.mean(given.unlabeled["teacher"].argmax(axis=1) == given.evidence.truth)
        inside.append(found.estimate.low <= truth <= found.estimate.high)
        widths.append((found.estimate.high - found.estimate.low) / (found.gold.high - found.gold.low))
    assert sum(inside) >= 17 and np.mean(widths) < 0.75  # 17 of 20 or more: in 98 % of such tests, where 95 % are covered


def test_a_class_against_all_others_is_that_class_among_all() -> None:
    from wdistill.methods.on_pool import judged_pool

    given = speaking(m=200, n=600, second=2.0)
    targets = correct_targets(given).targets
    for expert, found in known(given).classes.items():
        judged = judged_pool(given, targets, targets.of(given.unlabeled), expert)
        for name in ("recall", "f1", "share"):
            whole = prediction_powered_by_class(parse_metric(f"{name}:a", "abcd"), *judged)
            for one, other in zip(found, whole, strict=True):
                assert getattr(one, name).estimate.value == pytest.approx(other.estimate.value)
                assert getattr(one, name).estimate.low == pytest.approx(other.estimate.low)


def test_ten_classes_are_judged_at_most_those_with_the_lowest_recall_of_teacher_and_of_student() -> None:
    given = speaking(m=300, n=400, classes=14)
    for expert, found in known(given).classes.items():
        is_right = given.validation[expert].argmax(axis=1) == given.labels
        right = [np.mean(is_right[given.labels == c]) for c in range(14)]
        assert [each.number for each in found] == sorted(np.argsort(right, kind="stable")[:10].tolist())


def test_a_student_that_has_learned_the_gold_rows_is_not_judged_by_them() -> None:
    given = speaking(m=100, n=300)
    assert set(known(given).accuracy) == set(known(given).classes) == {"teacher", "student"}
    alone = known(replace(given, gold_alone=True))
    assert set(alone.accuracy) == set(alone.classes) == {"teacher"}


def test_classes_of_the_student_are_covered_as_often_as_is_said_and_its_own() -> None:
    inside = []
    for seed in range(15):
        given = speaking(m=200, n=1500, classes=3, seed=seed, second=2.5)
        decided, truth = given.unlabeled["student"].argmax(axis=1), given.evidence.truth
        for each in known(given).classes["student"]:
            recall = float(np.mean(decided[truth == each.number] == each.number))
            inside.append(each.recall.estimate.low <= recall <= each.recall.estimate.high)
    assert np.mean(inside) > 0.85


def test_the_users_metric_is_judged_too_but_for_rankings() -> None:
    given = speaking(m=200, n=600, second=2.0)
    found = known(given, metric=parse_metric("macro-f1", "abcd"))
    assert found.metric == "macro-f1" and set(found.by_metric) == {"teacher", "student"}
    ranking = known(given, metric=parse_metric("average-precision:a", "abcd"))
    assert ranking.by_metric == {} and ranking.teacher.tuning > 0


def test_weights_and_groups_of_gold_rows_count() -> None:
    given = speaking(m=200, n=600, second=2.0)
    weights = np.where(given.wrong, 3.0, 1.0)
    heavy = known(replace(given, gold_weights=weights)).teacher.gold
    assert heavy.value == pytest.approx(np.average(~given.wrong, weights=weights))
    grouped = known(replace(given, gold_groups=np.repeat(np.arange(20), 10))).teacher.gold
    plain = estimate(PLAIN["accuracy"], given.validation["teacher"], given.labels)
    assert grouped.value == plain.value and grouped != plain
    targets = correct_targets(given).targets
    assert judging_error(replace(given, gold_groups=np.arange(200)), targets) == pytest.approx(
        judging_error(given, targets), rel=0.02
    )


def test_a_pilot_is_judged_by_the_targets_and_no_surer_than_gold_knows_them() -> None:
    targets = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5], [0.6, 0.4]] * 50)
    pilots = PilotPredictions(targets, targets, one_hot(np.array([0, 1, 0, 1] * 50), 2))
    found = pilot_accuracy(pilots, 0.03)
    assert found.value == pytest.approx((0.9 + 0.8 + 0.5 + 0.4) / 4)
    width = max(UNFORESEEN["accuracy"].below, UNFORESEEN["accuracy"].above)
    for side in (found.high - found.value, found.value - found.low):
        assert side > Z * np.hypot(width, 0.03)
    assert found.high - found.low > pilot_accuracy(pilots, 0.0).high - pilot_accuracy(pilots, 0.0).low
    assert known(speaking(m=100, n=200, classes=2), pilots=pilots).pilot is not None


# gold rows ----------------------------------------------------------------------------------------------------------


def test_fewer_gold_rows_are_needed_with_the_pool_and_four_times_as_many_for_half_the_width() -> None:
    given = speaking(m=300, n=3000, second=2.0)
    targets = correct_targets(given).targets
    one, two = (gold_needed(PLAIN["accuracy"], points, given, targets, targets.of(given.unlabeled)) for points in (1.0, 2.0))
    assert one.width.gold is not None and two.width.gold is not None and two.width.with_pool is not None
    assert two.width.with_pool < two.width.gold and one.width.gold == pytest.approx(4 * two.width.gold, rel=0.02)
    p = share(int(np.sum(~given.wrong)), 300).value
    assert two.width.gold == pytest.approx(p * (1 - p) * (Z / 0.02) ** 2, rel=0.02)
    assert one.apart is not None and two.apart is not None and one.apart == pytest.approx(4 * two.apart, rel=0.02)


def test_metrics_of_rankings_are_known_by_gold_alone_and_some_tell_nothing_apart() -> None:
    given = speaking(m=200, n=400)
    targets = correct_targets(given).targets
    imputed = targets.of(given.unlabeled)
    average, recall = (
        gold_needed(parse_metric(name, "abcd"), 5.0, given, targets, imputed)
        for name in ("average-precision:a", "recall@precision=0.7:a")
    )
    assert average.width.gold is not None and average.width.with_pool is None and average.apart is not None
    assert recall.width.gold is not None and recall.apart is None


@pytest.mark.slow
def test_judging_and_teaching_are_told_apart() -> None:
    unsure = replace(advise(speaking(m=40, second=0.0), questions=Questions(1.0)), teaching=None)
    printed = Console(width=80, file=io.StringIO())
    print_advice(unsure, printed, details=True)
    text = " ".join(printed.file.getvalue().split())  # type: ignore[attr-defined]
    assert "For ± 1 point of accuracy: " in text and "you have 40." in text
    assert f"To judge: a difference of 1 point between teacher and corrected targets is found in four of five cases with {unsure.needed.apart:,} gold rows in all; {unsure.judging:,} more would tell whether the targets gain" in text  # fmt: skip  # noqa: E501
    assert "To teach: even 3,000 more gold rows would hardly make the targets better" in text
    lost = replace(unsure, needed=replace(unsure.needed, metric="log-loss", loss=True, apart=None))
    printed = Console(width=80, file=io.StringIO())
    print_advice(lost, printed)
    assert "For ± 0.01 of log-loss: " in printed.file.getvalue()  # type: ignore[attr-defined]


# costs --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_advise_compares_the_ways_to_serve_rows() -> None:
    given = speaking(m=300, n=2000, forest=2.5)
    found = advise(given, questions=Questions(prices=PRICES, serve=100_000))
    assert found.costs is not None and found.costs.served == 100_000
    totals = {each.name: each for each in found.costs.totals}
    teacher, labels, student = (totals[name] for name in ("the teacher", "a student of labels alone", "a distilled student"))
    right = found.pool.teacher.estimate
    assert teacher.way.errors == wrong(right) and teacher.before == 0 and teacher.way.known_from == "gold and pool"
    assert teacher.total.value == pytest.approx(100_000 * (0.01 + 0.2 * (1 - right.value)))
    assert labels.way.known_from == "forest, on gold" and student.way.known_from == "its targets"
    assert student.way.errors.value == pytest.approx(1 - found.accuracies["corrected, expected"].value)
    printed = Console(width=80, file=io.StringIO())
    print_advice(found, printed)
    text = printed.file.getvalue()  # type: ignore[attr-defined]
    assert f"Costs: {found.costs.sentence}." in text and "for 100,000 rows" in text and "forest, on gold" in text
    assert advise(given).costs is None


def test_each_way_has_the_errors_that_are_known_of_it() -> None:
    given = speaking(m=200, n=400, forest=2.0, second=2.5)
    found = known(given)
    assert by_teacher(found).errors == wrong(found.teacher.estimate) and by_teacher(found).served_by_teacher
    labels = by_labels(given, ["forest", "second"])
    assert labels is not None and labels.known_from == "second, on gold" and by_labels(given, []) is None
    targets, pilot = Interval(0.9, 0.85, 0.95), Interval(0.8, 0.75, 0.85)
    assert by_student(replace(found, pilot=None), targets).errors.value == pytest.approx(0.1)
    assert by_student(replace(found, pilot=pilot), targets).known_from == "pilot student"
    assert wrong(pilot) == Interval(pytest.approx(0.2), pytest.approx(0.15), pytest.approx(0.25))  # type: ignore[arg-type]


def test_more_gold_rows_spare_at_most_what_targets_gain_and_students_keep() -> None:
    now, step = distilled(Interval(0.10, 0.08, 0.12)), PlanStep(300, 0.5, 6.0)
    whole, half, nothing = (
        after_labeling(now, step, 4.0, forecast) for forecast in (None, 2.0, -1.0)
    )  # + 2 points of targets; students keep all, half or nothing of what targets gain
    assert whole is not None and half is not None and nothing is not None and whole.gold == 300
    assert [each.errors.value for each in (whole, half, nothing)] == pytest.approx([0.08, 0.09, 0.10])
    assert {each.errors.high for each in (whole, half, nothing)} == {0.12}
    assert after_labeling(now, None, 4.0, None) is None


# what makes no sense ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"within": 0}, "not a width"),
        ({"within": float("nan")}, "not a width"),
        ({"within": "2"}, "not a width"),
        ({"prices": PRICES}, "prices, and no rows to serve"),
        ({"serve": 10}, "10 rows to serve, and no prices"),
        ({"prices": PRICES, "serve": 0}, "not a number of rows"),
        ({"prices": PRICES, "serve": 1.5}, "not a number of rows"),
        ({"prices": {"gold": 1}, "serve": 5}, "not prices"),
    ],
)
def test_questions_that_make_no_sense_are_refused(asked: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Questions(**asked)


@pytest.mark.parametrize("price", [-1, float("nan"), float("inf"), "1", True])
def test_what_is_no_price_is_refused(price: Any) -> None:
    with pytest.raises(ConfigError, match=r"price of teacher \(--price-teacher\): not a price"):
        Prices(gold=1, teacher=price)


def test_doors_refuse_before_anything_is_computed() -> None:
    import wdistill

    with pytest.raises(ConfigError, match="no rows to serve"):
        wdistill.advise_answers("no-such-file.csv", prices=PRICES)
    with pytest.raises(ConfigError, match="not a width"):
        wdistill.advise(None, None, within=-1)  # type: ignore[arg-type]
