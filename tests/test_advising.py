"""The verdict before training, on made-up cases: what it says, how near the gain is, and which planted faults it finds."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from tests.test_methods import case
from wdistill.cli.advice_tables import judged_table
from wdistill.cli.advise import print_advice
from wdistill.cli.reasons import reasons
from wdistill.methods import advice, gold_plan
from wdistill.methods.advice import (
    POSSIBLE,
    ExpectedGain,
    advise,
    by_metric,
    rows_to_tell,
    rows_to_trust,
    verdict,
)
from wdistill.methods.best import correct_targets
from wdistill.methods.context import AuxiliaryPredictions, Context, one_hot
from wdistill.methods.gold_plan import PlanStep, enough_of, steps, worth_labeling
from wdistill.methods.guards import Concern, check_gold, gold_in_unlabeled
from wdistill.methods.judged import JudgedTargets
from wdistill.methods.metric import parse_metric
from wdistill.methods.pilots import PilotPredictions
from wdistill.methods.statistics import Interval, share
from wdistill.methods.targets import Targets, fit_targets
from wdistill.methods.teacher_error import area, learned_error
from wdistill.weights.evidence import Evidence


def speaking(m: int = 300, n: int = 3000, classes: int = 4, seed: int = 0, **strengths: float) -> Context:
    """Experts who lean towards the truth, each so much, unsure of some rows: teacher and student first, opinions after."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, classes, m + n)
    said = {}
    for name, strength in ({"teacher": 2.0, "student": 1.0} | strengths).items():
        scores = rng.normal(size=(m + n, classes)) + strength * one_hot(truth, classes)
        powers = np.exp(1.5 * scores)
        said[name] = powers / powers.sum(axis=1, keepdims=True)
    own = [said.pop(name) for name in ("teacher", "student")]
    evidence = Evidence(truth[:m], *(each[:m] for each in own), *(each[m:] for each in own), truth=truth[m:])
    return Context(evidence, {name: AuxiliaryPredictions(each[:m], each[m:]) for name, each in said.items()}, seed=seed)


def changed(found: Context, **arrays: np.ndarray) -> Context:
    return replace(found, evidence=replace(found.evidence, **arrays))


# the verdict --------------------------------------------------------------------------------------------------------


def gain(points: float, error: float) -> ExpectedGain:
    return ExpectedGain(points, error)


@pytest.mark.slow
def test_nothing_to_win_where_the_teacher_is_always_right() -> None:
    found = advise(case(teacher=1.0, m=400))
    assert found.verdict == "nothing to win: train unweighted"
    assert found.teacher.value == 1 and found.teacher.low > 0.95
    assert found.accuracies["corrected, expected"].low <= found.teacher.low  # no surer than the teacher's, which it rests on
    assert all(np.isnan(each.auc) for each in found.detectors)  # no errors to be found
    assert found.changes[0].changed.value == 0 and found.changes[0].effective == 1


@pytest.mark.slow
def test_correct_the_targets_where_others_know_and_the_gain_is_near_the_true_one() -> None:
    given = speaking(m=600, second=2.0)
    found = advise(given)
    truth, said = given.evidence.truth, given.unlabeled["teacher"].argmax(axis=1)
    corrected = found.correction.targets.of(given.unlabeled).argmax(axis=1)
    points = 100 * (np.mean(corrected == truth) - np.mean(said == truth))
    assert found.verdict == f"correct the targets: about {found.gain.points:+.1f} points of target accuracy"
    assert points > 3 and abs(found.gain.points - points) < 0.5 * points
    assert found.gain.interval.low < found.gain.points and found.forecast is None
    by_name = {each.name: each for each in found.detectors}
    assert by_name["corrected targets"].auc > by_name["learned error"].auc > 0.6
    assert 0 < by_name["corrected targets"].auc_error < 0.05 and by_name["corrected targets"].calibration_error < 0.1
    assert found.accuracies["corrected, on gold"].low > found.accuracies["teacher"].value
    expected = found.accuracies["corrected, expected"]
    assert expected.value == pytest.approx(found.teacher.value + found.correction.gain.gain)
    assert expected.low < expected.value
    assert found.accuracies["second alone"].value == np.mean(given.validation["second"].argmax(axis=1) == given.labels)
    assert found.changes[-1].changed.value == pytest.approx(found.correction.gain.differing)
    assert sum(found.class_rows) == found.gold == 600 and len(found.by_class) == 4
    assert found.concerns == ()
    assert sorted(found.next) == list(range(3000))


@pytest.mark.slow
def test_few_rows_cannot_tell() -> None:
    said = [advise(speaking(m=24, n=800, seed=seed, second=0.6)).verdict for seed in (0, 1, 2, 3)]
    assert sum(each.startswith("cannot tell with 24 gold rows") for each in said) >= 2, said


def test_each_sentence_has_its_reason() -> None:
    teacher, labels = share(80, 100), "use the gold as labels"
    assert verdict(teacher, gain(-3.0, 0.5), None, 100) == labels  # it would do harm
    assert verdict(teacher, gain(0.02, 0.1), None, 100) == labels  # little, whatever it is
    assert verdict(share(999, 1000), gain(3.0, 0.5), None, 1000) == "nothing to win: train unweighted"
    assert verdict(share(12, 12), gain(3.0, 0.5), None, 12).startswith("cannot tell with 12 gold rows: ")
    corrected = "correct the targets: about +2.4 points of target accuracy"
    assert verdict(teacher, gain(2.44, 0.5), None, 100) == corrected
    assert verdict(teacher, gain(1.0, 1.0), None, 100) == "cannot tell with 100 gold rows: 290 more would tell"
    assert verdict(teacher, gain(0.41, 9.0), None, 100) == "cannot tell with 100 gold rows, and more would hardly help"


def test_pilot_students_have_the_last_word() -> None:
    teacher = share(80, 100)
    told = verdict(teacher, gain(2.4, 0.5), Interval(1.2, 0.0, 2.4), 100)
    assert told == "correct the targets: pilot students gain +1.2 points, a rough forecast"
    lost = verdict(teacher, gain(2.4, 0.5), Interval(-1.2, -2.6, 0.2), 100)
    assert lost == "use the gold as labels: pilots of better targets lose about 1.2 points"
    nothing = verdict(teacher, gain(2.4, 0.5), Interval(-0.2, -2.6, 2.2), 100)
    assert nothing == "use the gold as labels: better targets gain pilot students nothing"


def judged(metric: str, value: float, low: float, high: float) -> JudgedTargets:
    some = Interval(0.5, 0.4, 0.6)
    loss = metric in ("log-loss", "cost")
    return JudgedTargets(metric, loss, some, some, some, Interval(value, low, high), ())


@pytest.mark.parametrize(
    ("sentence", "metric", "forecast", "said"),
    [
        ("use the gold as labels: better targets gain pilot students nothing", "macro-f1", (-0.055, -0.094, 0.05),
         ["by macro-f1 pilot students lose 0.055"]),
        ("correct the targets: pilot students gain +1.9 points, a rough forecast", "macro-f1", (-0.055, -0.094, 0.05),
         ["but by macro-f1 pilot students lose 0.055"]),
        ("use the gold as labels: better targets gain pilot students nothing", "f1:1", (0.021, 0.01, 0.03),
         ["but by f1:1 pilot students gain 0.021"]),
        ("use the gold as labels: pilots of better targets lose about 1.2 points", "f1:1", (0.021, 0.01, 0.03),
         ["but by f1:1 pilot students gain 0.021"]),
        ("use the gold as labels", "cost", (0.4, 0.1, 0.7), ["but by cost pilot students gain 0.400"]),
        ("correct the targets: pilot students gain +1.9 points, a rough forecast", "macro-f1", (0.02, -0.02, 0.1), []),
        ("use the gold as labels: pilots of better targets lose about 1.2 points", "f1:1", (-0.02, -0.1, 0.1), []),
        ("use the gold as labels: better targets gain pilot students nothing", "macro-f1", (-0.002, -0.09, 0.05), []),
        ("correct the targets: pilot students gain +1.9 points, a rough forecast", "log-loss", (-0.2, -0.5, 0.1), []),
        ("use the gold as labels", "accuracy", (0.02, -0.02, 0.1), []),
    ],
)  # fmt: skip
def test_the_verdict_says_what_pilots_lose_or_gain_by_the_metric_where_accuracy_says_another_thing(
    sentence: str, metric: str, forecast: tuple[float, float, float], said: list[str]
) -> None:
    assert by_metric(judged(metric, *forecast), sentence) == said


def test_a_gain_in_accuracy_that_loses_a_class_is_no_gain_without_a_but() -> None:
    """A pilot that is right three times in ten less than it might be, and one that never takes the first class."""
    given = speaking(m=200, n=600, second=2.0)

    def pilots(targets: Targets) -> PilotPredictions:
        truth = targets(given.unlabeled)
        right = truth.argmax(axis=1)
        plain = np.where(np.arange(len(right)) % 10 < 3, (right + 1) % 4, right)
        return PilotPredictions(truth, one_hot(plain, 4), one_hot(np.where(right == 0, 1, right), 4))

    found = advise(given, pilots=pilots, metric=parse_metric("macro-f1", "abcd"))
    assert found.forecast is not None and found.forecast.value > 1
    assert found.judged is not None and found.judged.forecast is not None and found.judged.forecast.value < -0.01
    lost = f"; but by macro-f1 pilot students lose {-found.judged.forecast.value:.3f}"
    assert found.verdict.startswith("correct the targets: pilot students gain +") and lost in found.verdict
    assert lost not in advise(given, pilots=pilots).verdict


@pytest.mark.parametrize("metric", ["macro-f1", "f1:b", "balanced-accuracy", "log-loss", "recall@precision=0.5:b"])
def test_pilots_have_an_interval_only_by_metrics_that_were_tried(metric: str) -> None:
    given = speaking(m=100, n=300, classes=2, second=2.0)

    def pilots(targets: Targets) -> PilotPredictions:
        truth = targets(given.unlabeled)
        return PilotPredictions(truth, given.unlabeled["student"], given.unlabeled["second"])

    found = advise(given, pilots=pilots, metric=parse_metric(metric, "ab"))
    assert found.judged is not None and found.judged.forecast is not None
    console = Console(width=80, file=io.StringIO(), color_system=None)
    console.print(judged_table(found.judged, ["a", "b"]))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    told = found.judged.forecast
    span = f"({told.low:+.3f} to {told.high:+.3f})".replace("-", "−")
    row = next(line for line in text.splitlines() if "gain of pilot" in line)
    if metric == "macro-f1":
        assert span in text and "never tried" not in text and told.high - told.value > 0.05
    else:
        assert "(" not in row and f"{told.value:+.3f}".replace("-", "−") in row
        caption = " ".join(text.split())
        assert "was never tried: the gain has no interval" in caption and f"leave open {span[1:-1]}." in caption


def test_a_teacher_is_trusted_after_so_many_rows() -> None:
    more = rows_to_trust(1.0, 12)
    assert 100 * (1 - share(12 + more, 12 + more).low) <= POSSIBLE and rows_to_trust(1.0, 12 + more) == 0
    assert 100 * (1 - share(12 + more // 2, 12 + more // 2).low) > POSSIBLE


@pytest.mark.parametrize(("points", "error", "rows"), [(0.5, 0.5, 100), (2.0, 1.5, 30), (1.0, 3.0, 400)])
def test_so_many_rows_more_are_enough_and_not_far_too_many(points: float, error: float, rows: int) -> None:
    more = rows_to_tell(gain(points, error), rows)
    assert more is not None

    def low(total: float) -> float:
        return gain(points, error * float(np.sqrt(rows / total))).interval.low

    assert low(rows + more) >= 0 > low(rows + 0.85 * more)


@pytest.mark.slow
def test_many_rows_are_judged_by_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice, "SAMPLE", 500)
    found = advise(speaking(m=100, second=2.0))
    assert (found.unlabeled, found.sampled, len(found.next)) == (3000, 500, 500)
    assert len(set(found.next.tolist())) == 500 and found.next.max() > 2000


@pytest.mark.slow
def test_predictions_as_exact_as_float32_are_exact_enough() -> None:
    given = speaking(m=60, n=200, second=2.0)
    seen = given.evidence
    names = ("validation_teacher", "validation_student", "teacher", "student")
    narrow = changed(given, **{name: getattr(seen, name).astype(np.float32) for name in names})
    assert advise(narrow).gain.points == pytest.approx(advise(given).gain.points, abs=0.01)


# intervals and areas ------------------------------------------------------------------------------------------------


def test_intervals_by_hand() -> None:
    found = share(8, 10)  # Wilson (1927), to be had from any table
    assert (found.value, round(found.low, 3), round(found.high, 3)) == (0.8, 0.490, 0.943)
    assert share(0, 10).low == 0 and share(10, 10).high == pytest.approx(1) and share(10, 10).low > 0.7
    assert share(0, 0).low == 0 and share(0, 0).high == 1
    assert gain(1.0, 0.5).interval == Interval(1.0, 1.0 - 0.98, 1.0 + 0.98)


def test_the_area_is_the_share_of_pairs_and_its_error_that_of_new_samples() -> None:
    rng = np.random.default_rng(0)
    high, low = rng.integers(1, 8, 30) / 2, rng.integers(0, 6, 40) / 2
    pairs = np.mean((high[:, None] > low) + 0.5 * (high[:, None] == low))
    assert area(high, low)[0] == pytest.approx(pairs)
    drawn = [area(rng.normal(1, 1, 50), rng.normal(0, 1, 80)) for _ in range(400)]
    assert np.std([each[0] for each in drawn]) == pytest.approx(np.mean([each[1] for each in drawn]), rel=0.15)
    assert np.isnan(area(high[:0], low)[0])


# guards -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_clean_case_raises_no_alarm() -> None:
    for seed in range(50):
        assert check_gold(speaking(m=200, n=2000, seed=seed)) == (), seed
        assert check_gold(case(m=200, n=1000, seed=seed)) == (), seed  # confidences in a few lumps


def test_a_teacher_trained_on_gold_is_noticed() -> None:
    given = speaking(m=200)
    remembered = 0.1 * given.validation["teacher"] + 0.9 * one_hot(given.labels, 4)
    (first, *_) = check_gold(changed(given, validation_teacher=remembered))
    assert "surer on gold than elsewhere" in first.text and first.numbers["z"] > 4 and first.numbers["area"] > 0.6


def test_gold_from_elsewhere_is_noticed() -> None:
    given = speaking(m=600, n=6000)
    seen = given.evidence
    easy = np.flatnonzero((seen.validation_labels < 2) | (np.arange(600) % 4 == 0))  # classes at other rates
    parts = ("validation_labels", "validation_teacher", "validation_student")
    found = check_gold(changed(given, **{name: getattr(seen, name)[easy] for name in parts}))
    assert any("does not look like" in each.text and "the teacher's classes" in each.text for each in found)
    flat = changed(given, validation_student=0.5 * seen.validation_student + 0.5 / 4)  # the student less sure on gold
    (other,) = check_gold(flat)
    assert "the student's confidence" in other.text and "classes" not in other.text


def test_missing_classes_are_named() -> None:
    given = speaking(m=300)
    rows = np.flatnonzero(given.labels != 2)
    seen = given.evidence
    parts = {name: getattr(seen, name)[rows] for name in ("validation_labels", "validation_teacher", "validation_student")}
    found = [each for each in check_gold(changed(given, **parts)) if "no gold row" in each.text]
    assert found[0].clause == "of classes without gold rows nothing is known"  # the others may be what they seem
    assert len(found) == 1 and "1 of 4 classes have no gold row: 2." in found[0].text and found[0].numbers["share"] > 0.1
    named = replace(given, evidence=replace(seen, **parts, classes=("ant", "bee", "cow", "dog")))
    assert any("no gold row: cow." in each.text for each in check_gold(named))


@pytest.mark.slow
def test_gold_among_the_unlabeled_rows_is_counted() -> None:
    assert gold_in_unlabeled(0, 50, "ids") == ()
    (found,) = gold_in_unlabeled(2, 50, "inputs")
    assert "2 of 50 gold rows" in found.text and "inputs" in found.text
    assert advise(case(m=60, n=100), (found,)).concerns[0] is found


# planning -----------------------------------------------------------------------------------------------------------


def test_more_rows_narrow_the_gain_and_never_lessen_it() -> None:
    given = speaking(m=80, second=2.0)
    correction = correct_targets(given)
    found, planned = correction.gain, steps(given, correction)
    assert [each.more for each in planned] == [100, 300, 1000, 3000]
    errors, gains = [each.error for each in planned], [found.gain, *(each.gain for each in planned)]
    assert errors[0] == pytest.approx(found.gain_error * np.sqrt((80 + found.prior) / (180 + found.prior)))
    assert errors == sorted(errors, reverse=True) and gains == sorted(gains)


@pytest.mark.slow
def test_as_many_rows_are_advised_as_bring_half_of_what_many_would() -> None:
    planned = [PlanStep(more, 0.1, gain) for more, gain in ((100, 1.1), (300, 1.4), (1_000, 1.5), (3_000, 1.6))]
    assert enough_of(planned, 1.0, least=0.3) is planned[1]  # + 0.4 of + 0.6
    assert enough_of(planned, 0.0, least=0.3) is planned[0]
    assert enough_of(planned, 1.4, least=0.3) is None  # + 0.2
    told = advise(speaking(m=400, second=2.0))
    assert told.gain.interval.low > 0 and told.judging is None  # nothing to be told
    unsure = advise(speaking(m=40, second=0.0))
    assert unsure.gain.interval.low < 0 < unsure.gain.points
    assert unsure.judging is not None and unsure.judging == rows_to_tell(unsure.gain, 40)


@pytest.mark.slow
def test_labels_alone_are_told_of_where_they_beat_the_teacher() -> None:
    found = advise(speaking(m=400, forest=4.0, second=3.0))
    assert found.alone == "forest" and "Labels alone beat the teacher (forest: " in "\n".join(reasons(found))
    assert advise(speaking(m=400, forest=2.0, second=2.1)).alone == ""  # no better, beyond chance
    assert advise(speaking(m=400, llm=4.0)).alone == ""  # nobody knows what it has learned from


def test_a_repeated_gold_row_answers_for_no_copy_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two copies of every row: whoever learns in the plan, or chooses a penalty, is not asked about a copy."""
    few = speaking(m=40, second=1.0)
    rows, seen = np.tile(np.arange(40), 2), few.evidence
    parts = {name: getattr(seen, name)[rows] for name in ("validation_labels", "validation_teacher", "validation_student")}
    auxiliary = {name: replace(each, validation=each.validation[rows]) for name, each in few.auxiliary.items()}
    twice = replace(changed(few, **parts), auxiliary=auxiliary)
    found, learned, asked = correct_targets(twice), set[float](), list[bool]()

    class Spy:
        def __init__(self, given: dict[str, np.ndarray], labels: np.ndarray, weights: None) -> None:
            learned.clear()
            learned.update(given["teacher"][:, 0])

        def __call__(self, given: dict[str, np.ndarray]) -> np.ndarray:
            asked.append(not learned & set(given["teacher"][:, 0]))
            return given["teacher"]

    monkeypatch.setattr(gold_plan, "fit_posterior", Spy)
    steps(twice, found)
    assert asked and not any(asked)
    asked.clear()
    steps(replace(twice, same=rows), found)
    assert asked and all(asked)

    def learner(known: np.ndarray, wrong: np.ndarray, others: np.ndarray, once: np.ndarray) -> np.ndarray:
        assert len(np.unique(known, axis=0)) == len(once) == len(np.unique(known[once], axis=0))
        return np.zeros(len(others))

    learned_error(replace(twice, same=rows), learner)


def test_rows_worth_a_label_are_doubted_and_of_every_class() -> None:
    given = speaking(m=200, n=2000, second=2.0)
    truth = correct_targets(given).targets.of(given.unlabeled)
    order = worth_labeling(given, truth)
    assert sorted(order) == list(range(2000))
    wrong = truth.argmax(axis=1) != given.evidence.truth
    assert wrong[order[:200]].mean() > 3 * wrong.mean()
    for first in (40, 200):  # the classes in turn
        counted = np.bincount(truth[order[:first]].argmax(axis=1), minlength=4)
        assert counted.max() - counted.min() <= 1
    said = np.stack(list(given.unlabeled.values()))
    apart = -(said.mean(0) * np.log(said.mean(0))).sum(1) + (said * np.log(said)).sum(2).mean(0)
    score = -(truth * np.log(truth)).sum(axis=1) * apart
    assert np.argmax(score) == order[0] and (np.diff(score[order[:4]]) <= 0).all()
    alone = replace(given, auxiliary={}, evidence=replace(given.evidence, student=None))
    assert list(alone.unlabeled) == ["teacher"]
    unsure = -(truth * np.log(truth)).sum(axis=1)
    assert np.argmax(unsure) == worth_labeling(alone, truth)[0]  # with nobody to disagree with
    agreed = replace(given, auxiliary={}, evidence=replace(given.evidence, student=given.evidence.teacher))
    assert set(worth_labeling(agreed, truth)) == set(range(2000))  # no disagreement at all is no fault


@pytest.mark.slow
def test_findings_come_before_other_reasons_and_none_is_lost() -> None:
    found = advise(case(m=60, n=100))
    many = replace(found, concerns=tuple(Concern(f"finding {i}", {}, "") for i in range(7)))
    assert len(reasons(found)) <= 5 and not any("Look first" in line for line in reasons(found))
    assert reasons(many)[:2] == ["Look first: finding 0.", "Look first: finding 1."] and len(reasons(many)) == 5
    assert reasons(many)[-1] == "Look first: 3 more findings, which --details lists."
    printed = Console(width=80, file=io.StringIO())
    print_advice(many, printed, details=True)
    assert all(f"Look first: finding {i}." in printed.file.getvalue() for i in range(7))  # type: ignore[attr-defined]


def test_the_users_metric_judges_teacher_targets_and_classes() -> None:
    from sklearn.metrics import f1_score

    given = speaking(m=300, second=2.0)
    found = advise(given, metric=parse_metric("macro-f1", "abcd")).judged
    assert found is not None and found.forecast is None and found.metric == "macro-f1"
    said, corrected = (each.argmax(axis=1) for each in (given.validation["teacher"], fit_targets(given).out_of_fold))
    assert found.teacher.value == pytest.approx(f1_score(given.labels, said, average="macro"))
    assert found.corrected.value == pytest.approx(f1_score(given.labels, corrected, average="macro"))
    assert found.gain.value == pytest.approx(found.corrected.value - found.teacher.value) and found.gain.low > 0
    assert [each.value for each, _ in found.by_class] == pytest.approx(f1_score(given.labels, said, average=None).tolist())
    lost = advise(given, metric=parse_metric("log-loss", "abcd")).judged
    assert lost is not None and lost.gain.value == pytest.approx(lost.teacher.value - lost.corrected.value)
    printed = Console(width=80, file=io.StringIO())
    print_advice(replace(advise(given), judged=found), printed)
    assert "By macro-f1" in printed.file.getvalue()  # type: ignore[attr-defined]
