"""Gold as people have it: rows of documents, rows drawn unevenly, several annotators, and plans that stay valid."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.answer_forms import ANSWERS, CLASSES, make, part
from tests.tables import write
from tests.test_best_tables import GOLD, LABELED, REST
from tests.test_cli import fail
from wdistill import advise_answers, cli
from wdistill.core.errors import InputError
from wdistill.methods import crossfit, gold_plan
from wdistill.methods.advice import advise
from wdistill.methods.best import correct_targets
from wdistill.methods.context import AuxiliaryPredictions, Context
from wdistill.methods.gold_design import GoldDesign, check_groups, effective_weights, inclusion_weights
from wdistill.methods.guards import check_gold
from wdistill.methods.metric import parse_metric
from wdistill.methods.on_gold import beats, effective_number, mean_of, share_of
from wdistill.methods.posterior import fit_posterior
from wdistill.methods.statistics import Interval, share
from wdistill.methods.targets import stacked_share
from wdistill.methods.teacher_error import area, weighted_area, weighted_reliability
from wdistill.tables.experts import open_experts, predict_sample
from wdistill.tables.formats.table import open_tables
from wdistill.tables.gold_design import with_design_columns
from wdistill.tables.options import Options, Paths, option_record
from wdistill.tables.output import read_record
from wdistill.training.data import Data, check_split, groups_shared
from wdistill.weights.diagnostics import reliability
from wdistill.weights.evidence import Evidence


def two(chance: np.ndarray) -> np.ndarray:
    return np.stack([1 - chance, chance], axis=1)


def covers(interval: Interval, truth: float) -> bool:
    return interval.low <= truth <= interval.high


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small forests, and few refits for the plan, which is not what is tested here."""
    monkeypatch.setattr(crossfit, "TREES", 20)
    monkeypatch.setattr(gold_plan, "DRAWS", 1)


# simulations, through the advice --------------------------------------------------------------------------------------

TRIALS = 8


def documents(seed: int, count: int = 20, size: int = 20) -> tuple[Context, np.ndarray, float]:
    """A teacher that is good on some documents and bad on others: gold rows, their documents, and its accuracy."""
    rng = np.random.default_rng(seed)

    def rows(documents: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        groups = np.repeat(np.arange(documents), size)
        level = rng.choice([0.35, 0.95], documents)[groups]
        y = rng.integers(0, 2, len(groups))
        right = rng.random(len(groups)) < level
        return two(np.where(right == (y == 1), 0.8, 0.2) + rng.uniform(-0.15, 0.15, len(y))), y, groups

    (own, labels, groups), (pool, _, _) = rows(count), rows(30)
    return Context(Evidence(labels, own, None, pool, None)), groups, 0.65


@pytest.mark.slow
def test_ignoring_documents_gives_wrong_intervals_and_using_them_right_ones() -> None:
    ignored, used, metric = [], [], parse_metric("balanced-accuracy", "ab")
    for seed in range(TRIALS):
        context, groups, truth = documents(seed)
        ignored.append(covers(advise(context).teacher, truth))
        found = advise(replace(context, gold_groups=groups), metric=metric)
        used.append(covers(found.teacher, truth))
        assert found.judged is not None and found.gain.z > 2
        assert found.judged.teacher.high - found.judged.teacher.low > 0.15
    assert sum(ignored) <= TRIALS - 3 and sum(used) >= TRIALS - 1, (ignored, used)


def uneven(seed: int, m: int = 300, n: int = 1500) -> tuple[Context, np.ndarray, float]:
    """Gold rows of which those that the teacher is unsure of were drawn more often: gold, weights, and its accuracy."""
    rng, rows = np.random.default_rng(seed), 20_000
    y, sure = rng.integers(0, 2, rows), rng.random(rows)
    right = rng.random(rows) < 0.5 + 0.5 * sure
    predicted = two(np.where(right == (y == 1), 0.51 + 0.48 * sure, 0.49 - 0.48 * sure))
    chances = m / rows * (2 * (1 - sure) + 0.2)
    gold = rng.random(rows) < chances
    pool = rng.choice(np.flatnonzero(~gold), n, replace=False)
    evidence = Evidence(y[gold], predicted[gold], None, predicted[pool], None)
    return Context(evidence), 1 / chances[gold], float(right.mean())


@pytest.mark.slow
def test_ignoring_how_gold_was_drawn_gives_wrong_intervals_and_false_alarms() -> None:
    ignored, used = [], []
    for seed in range(TRIALS):
        context, weights, truth = uneven(seed)
        assert check_gold(context)  # gold does not look like the unlabeled rows
        found = advise(replace(context, gold_weights=weights))
        assert not found.concerns
        ignored.append(covers(share(int((~context.wrong).sum()), len(context.labels)), truth))
        used.append(covers(found.teacher, truth))
    assert sum(ignored) <= 3 and sum(used) >= TRIALS - 1, (ignored, used)


@pytest.mark.slow
def test_accuracies_by_class_of_uneven_gold_are_covered() -> None:
    found = []
    for seed in range(200):
        context, weights, truth = uneven(seed)
        design, right = GoldDesign(weights), ~context.wrong
        found += [covers(share_of(right, design, context.labels == number), truth) for number in (0, 1)]
    assert 0.92 <= np.mean(found) <= 0.98


@pytest.mark.slow
def test_the_gain_of_uneven_gold_is_that_of_the_pool() -> None:
    """An opinion is worth much on rare rows, which gold has many of: without weights its gain looks twice as large."""
    rng, rows, gains = np.random.default_rng(0), 30_000, list[tuple[float, float]]()
    y, hard = rng.integers(0, 2, rows), rng.random(rows) < 0.1
    said = np.where(rng.random(rows) < np.where(hard, 0.5, 0.97), y, 1 - y)
    teacher = two(np.where(hard, 0.45 + 0.1 * said, 0.05 + 0.9 * said))
    guess = np.where(rng.random(rows) < np.where(hard, 0.9, 0.5), y, 1 - y)
    opinion = two(np.where(hard, 0.1 + 0.8 * guess, 0.48 + 0.04 * guess))
    chances = np.where(hard, 0.1, 0.01)
    for _ in range(2):
        gold = rng.random(rows) < chances
        pool = np.flatnonzero(~gold)[:4000]
        evidence = Evidence(y[gold], teacher[gold], None, teacher[pool], None)
        context = Context(evidence, {"llm": AuxiliaryPredictions(opinion[gold], opinion[pool])})
        found = correct_targets(replace(context, gold_weights=1 / chances[gold]))
        targets = found.targets.of(context.unlabeled).argmax(axis=1)
        true_gain = np.mean(targets == y[pool]) - np.mean(teacher[pool].argmax(axis=1) == y[pool])
        gains.append((abs(found.gain.gain - true_gain), 3 * found.gain.gain_error))
        assert 0 < found.gain.worth <= 1 and found.gain.differing_gold <= gold.sum()
        assert found.gain.likelihood_error < 0.1
    assert all(off < bound for off, bound in gains), gains


# the same numbers without weights and groups --------------------------------------------------------------------------


def test_equal_weights_and_groups_of_one_row_change_little() -> None:
    context, _, _ = uneven(3)
    m = len(context.labels)
    plain, even = correct_targets(context), correct_targets(replace(context, gold_weights=np.full(m, 7.0)))
    assert even.targets.out_of_fold == pytest.approx(plain.targets.out_of_fold, abs=1e-6)
    assert even.gain.gain == pytest.approx(plain.gain.gain, rel=0.05, abs=1e-6)
    assert plain.gain.worth == 1 and isinstance(plain.gain.won, int)
    right, alone = ~context.wrong, GoldDesign(None, np.arange(m))
    assert share_of(right, alone).low == pytest.approx(share_of(right, GoldDesign()).low, abs=0.005)
    assert effective_number(right.astype(float), alone) == pytest.approx(m, rel=0.01)
    assert mean_of(right.astype(float), alone)[1] == pytest.approx(mean_of(right.astype(float), GoldDesign())[1], rel=0.01)


def test_a_group_counts_for_little_more_than_a_row_where_its_rows_are_alike() -> None:
    right = np.repeat(np.random.default_rng(0).random(30) < 0.6, 10)
    design = GoldDesign(None, np.repeat(np.arange(30), 10))
    assert effective_number(right.astype(float), design) == pytest.approx(29, abs=2)
    assert effective_number(np.ones(300), design) == pytest.approx(30)
    assert effective_number(right.astype(float), design, np.zeros(300, bool)) == 0
    assert np.isnan(share_of(right, design, np.zeros(300, bool)).value)
    other = right.copy()
    other[:60] = False
    assert beats(right, other, 3.0, GoldDesign()) and not beats(right, other, 3.0, design)


def test_weighted_areas_and_calibration_are_those_of_repeated_rows() -> None:
    rng = np.random.default_rng(1)
    scores, high, times = rng.integers(0, 9, 60) / 9, rng.random(60) < 0.4, rng.integers(1, 4, 60)
    again = np.repeat(np.arange(60), times)
    found = weighted_area(scores, high, GoldDesign(times.astype(float), None))
    assert found[0] == pytest.approx(area(scores[again][high[again]], scores[again][~high[again]])[0])
    assert weighted_area(scores, high, GoldDesign(None, np.arange(60)))[1] == pytest.approx(
        area(scores[high], scores[~high])[1], rel=0.05
    )
    assert np.isnan(weighted_area(scores, np.ones(60, bool), GoldDesign(times.astype(float), None))[0])
    weighed, counted = weighted_reliability(scores, high, times.astype(float), 5), reliability(scores[again], high[again], 5)
    assert weighed.error == pytest.approx(counted.error, abs=0.05)


def test_fits_with_weights_are_those_of_repeated_rows() -> None:
    rng = np.random.default_rng(2)
    labels, times = rng.integers(0, 2, 80), rng.choice([1, 2], 80)
    given = {"teacher": two(rng.uniform(0.1, 0.9, 80)), "llm": two(rng.uniform(0.1, 0.9, 80))}
    scaled = effective_weights(times.astype(float))
    assert scaled.sum() == pytest.approx(times.sum() ** 2 / np.square(times).sum())
    even = fit_posterior(given, labels, np.full(80, 5.0))
    assert even.slopes == pytest.approx(fit_posterior(given, labels).slopes, abs=1e-4)
    shares = [stacked_share(given["teacher"], given["llm"], labels, each) for each in (None, np.full(80, 3.0))]
    assert shares[0] == pytest.approx(shares[1])


# bad columns ----------------------------------------------------------------------------------------------------------


def test_groups_and_probabilities_are_read_as_people_write_them() -> None:
    written = np.array(["a", " b ", 3, 3.0, "3"], object)
    assert check_groups(written, "here").tolist() == ["a", "b", "3", "3", "3"]
    assert inclusion_weights(np.array(["0.5", 1, 0.25], object), "here").tolist() == [2, 1, 4]
    for bad in ([None, "a"], ["", "a"], [float("nan"), 1.0], [["a"], "b"]):
        values = np.empty(2, object)
        values[:] = bad
        with pytest.raises(InputError, match="rows without a group"):
            check_groups(values, "here")
    with pytest.raises(InputError, match="all gold rows belong together"):
        check_groups(np.array(["a", "a"]), "here")
    for value in (None, "", float("nan"), "often", [1]):
        values = np.empty(2, object)
        values[:] = [1, value]
        with pytest.raises(InputError, match="without an inclusion probability"):
            inclusion_weights(values, "here")
    for value in (0, -0.1, 1.5, 20, float("inf")):
        with pytest.raises(InputError, match="these are no inclusion probabilities"):
            inclusion_weights(np.array([1, value], object), "here")


# tables: files, and flags ---------------------------------------------------------------------------------------------

CHANCES = np.where(np.arange(150) % 3 == 0, 0.5, 0.1)
DOCUMENTS = np.array([f"d{number % 30}" for number in range(150)])


def files(folder: Path, **more: Any) -> list[str]:
    gold = write(folder / "v.parquet", {**GOLD, **more})
    rest = write(folder / "u.parquet", {name: values for name, values in REST.items() if name != "label"})
    return ["--validation", str(gold), "--unlabeled", str(rest)]


def context_of(tables: list[str], **options: Any) -> Context:
    paths = Paths([tables[1]], [tables[3]])
    return predict_sample(open_experts(paths, Options(method="best", **options))).context


def test_columns_are_recognised_by_their_names_or_named(tmp_path: Path) -> None:
    own, named = (files(tmp_path, group=DOCUMENTS, inclusion=CHANCES), {"group": "document", "inclusion": "chance"})
    found = context_of(own)
    assert found.gold_groups is not None and found.gold_groups.tolist() == DOCUMENTS.tolist()
    assert found.gold_weights == pytest.approx(1 / CHANCES)
    assert all(len({*found.folds[found.gold_groups == each].tolist()}) == 1 for each in DOCUMENTS)
    other = context_of(files(tmp_path, document=DOCUMENTS, chance=CHANCES), **named)
    assert other.gold_weights == pytest.approx(found.gold_weights) and np.array_equal(other.folds, found.folds)
    plain = context_of(files(tmp_path, document=DOCUMENTS, chance=CHANCES))
    assert plain.gold_weights is None and plain.gold_groups is None
    gold = open_tables([own[1]], option="--validation")
    assert with_design_columns(Options(method="best", inputs="group"), gold).group is None  # it is something else


@pytest.mark.slow
def test_best_targets_and_their_record_follow_the_columns(tmp_path: Path) -> None:
    def targets(*more: str, **columns: Any) -> tuple[Any, dict[str, Any]]:
        output = tmp_path / "t.parquet"
        words = ["weigh", "--method", "best", *files(tmp_path, **columns), "--output", str(output), *more]
        assert cli.main(words) == 0
        return pq.read_table(output).to_pydict(), read_record(output)

    plain, record = targets()
    assert "group" not in record["options"] and "inclusion" not in record["options"]
    weighed, weighed_record = targets(inclusion=CHANCES)
    assert weighed_record["options"]["inclusion"] == "inclusion" and weighed["targets"] != plain["targets"]
    assert targets("--inclusion", "chance", chance=CHANCES)[0] == weighed
    assert targets("--group", "document", document=DOCUMENTS)[1]["options"]["group"] == "document"
    assert targets("--inclusion", "chance", chance=np.full(150, 0.5))[0]["targets"][0] == pytest.approx(
        plain["targets"][0], abs=1e-3
    )


def test_nothing_is_recorded_of_what_was_not_told() -> None:
    assert {"group", "inclusion"}.isdisjoint(option_record(Options(method="best")))


@pytest.mark.slow
def test_a_forest_that_knows_documents_is_no_good_on_new_ones(tmp_path: Path) -> None:
    """Inputs that tell the document, and labels that depend on it alone: folds by row take that for skill."""
    rng = np.random.default_rng(0)
    label_of = rng.integers(0, 3, 30)
    number = np.arange(150) % 30
    inputs = rng.normal(size=(30, 4))[number] + 0.01 * rng.normal(size=(150, 4))
    known = {"label": label_of[number], "x": inputs.astype(np.float32)}
    rows = {name: values for name, values in REST.items() if name != "label"}
    rest = write(tmp_path / "u.parquet", {**rows, "x": rng.normal(size=(400, 4)).astype(np.float32)})

    def forest(**more: Any) -> float:
        gold = write(tmp_path / "v.parquet", {**GOLD, **known, **more})
        context = context_of(["--validation", str(gold), "--unlabeled", str(rest)], inputs="x")
        return float(np.mean(context.validation["forest"].argmax(axis=1) == context.labels))

    assert forest() > 0.8 and forest(group=number) < 0.6


@pytest.mark.slow
def test_groups_among_the_labeled_rows_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labeled = {name: LABELED[name] for name in ("id", "label", "x")}
    path = write(tmp_path / "l.parquet", {**labeled, "group": np.array(["d1", *["other"] * 99])})
    words = ["advise", *files(tmp_path, group=DOCUMENTS), "--inputs", "x", "--labeled", str(path)]
    assert cli.main(words) == 0
    told = capsys.readouterr().out
    assert "Look first: 5 of 150 gold rows are of 1 group that labeled rows have too" in told
    assert cli.main(["advise", *files(tmp_path), "--inputs", "x", "--labeled", str(path)]) == 0
    assert "Look first" not in capsys.readouterr().out


HALF = np.where(np.arange(150) < 2, np.nan, 0.5)
BAD_TABLES: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "no such group": ({}, ["--group", "document"], ["no column 'document'", "--validation"]),
    "no such inclusion": ({"inclusions": CHANCES}, ["--inclusion", "inclusoin"], ["no column", "'inclusions', which looks"]),
    "zero": ({"inclusion": np.where(CHANCES > 0.2, 0.0, 0.1)}, [], ["no inclusion probabilities", "50 others", "ids 0, 3"]),
    "above one": ({"inclusion": 20 * CHANCES}, [], ["no inclusion probabilities", "at most 1", "column 'inclusion'"]),
    "next to nothing": (
        {"inclusion": np.full(150, 1e-310)},
        [],
        ["150 others, such as 1e-310", "column 'inclusion'", "ids 0, 1"],
    ),
    "huge": ({"inclusion": np.full(150, "1" + "0" * 400)}, [], ["150 others, such as inf", "column 'inclusion'"]),
    "nan": ({"inclusion": HALF}, [], ["2 rows without a number", "ids 0, 1", "to teach"]),
    "text": ({"inclusion": np.full(150, "often")}, [], ["150 rows without a number"]),
    "one group": ({"group": np.full(150, "d")}, [], ["all gold rows belong together", "one group of 150 rows"]),
    "no group": ({"group": np.where(np.arange(150) == 4, "", "d")}, [], ["1 rows without one", "id 4"]),
    "a label": ({}, ["--group", "label"], ["names a column that is something else"]),
    "both": ({"g": CHANCES}, ["--group", "g", "--inclusion", "g"], ["names a column that is something else"]),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_a_bad_column_of_a_table_is_one_clear_error(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns, flags, told = BAD_TABLES[name]
    message = fail(capsys, "advise", *files(tmp_path, **columns), *flags)
    assert all(each in message for each in told), message


def test_the_papers_method_has_no_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = fail(capsys, "weigh", *files(tmp_path), "--output", str(tmp_path / "w.csv"), "--group", "group")
    assert "needs --method best" in message
    words = ["weigh", *files(tmp_path, group=DOCUMENTS, inclusion=CHANCES), "--output", str(tmp_path / "w.csv")]
    assert cli.main(words) == 0
    weights = (tmp_path / "w.csv").read_bytes()
    assert cli.main(["weigh", *files(tmp_path), "--output", str(tmp_path / "w.csv")]) == 0
    assert weights == (tmp_path / "w.csv").read_bytes()


# plans ----------------------------------------------------------------------------------------------------------------


def test_rows_to_judge_count_beside_the_gold_there_is_for_what_both_are_worth() -> None:
    context, weights, _ = uneven(0)
    m = len(context.labels)
    assert gold_plan.judging_inclusion(context, 9 * m) == pytest.approx(0.1)
    assert gold_plan.judging_inclusion(replace(context, gold_weights=np.full(m, 8.0)), 100) == pytest.approx(1 / 8)
    chance = gold_plan.judging_inclusion(replace(context, gold_weights=weights), 100)
    worth = weights.sum() ** 2 / np.square(weights).sum()
    assert 0 < chance <= 1 and 500 / chance / weights.sum() == pytest.approx(500 / worth)


@pytest.mark.slow
def test_gold_and_planned_rows_together_are_right_where_either_alone_leaves_more_open() -> None:
    hits, narrower = 0, 0
    for seed in range(40):
        context, weights, truth = uneven(seed)
        rng = np.random.default_rng(seed + 1000)
        more = rng.random(200) < truth
        chance = gold_plan.judging_inclusion(replace(context, gold_weights=weights), 20_000)
        right, both = np.concatenate([~context.wrong, more]), np.concatenate([weights, np.full(200, 1 / chance)])
        found, before = share_of(right, GoldDesign(both)), share_of(~context.wrong, GoldDesign(weights))
        hits += covers(found, truth)
        narrower += found.high - found.low < before.high - before.low
    assert hits >= 36 and narrower == 40


@pytest.mark.slow
def test_a_plan_is_labeled_appended_and_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, tables = tmp_path / "next.csv", files(tmp_path)
    assert cli.main(["advise", *tables, "--plan", str(plan)]) == 0
    with plan.open() as file:
        rows = list(csv.DictReader(file))
    judge, teach = ([row for row in rows if row["use"] == use] for use in ("judge", "teach"))
    assert {row["inclusion"] for row in teach} == {""}
    (chance,) = {float(row["inclusion"]) for row in judge}
    assert chance == pytest.approx(150 / 550)

    def appended(more: list[dict[str, str]]) -> list[str]:
        place = [int(np.flatnonzero(REST["id"] == int(row["id"]))[0]) for row in more]
        joined = {name: np.concatenate([GOLD[name], REST[name][place]]) for name in GOLD}
        found = [chance] * 150 + [float(row["inclusion"] or "nan") for row in more]
        kept = np.setdiff1d(np.arange(400), place)
        rest = write(tmp_path / "u2.parquet", {name: REST[name][kept] for name in REST if name != "label"})
        gold = write(tmp_path / "v2.parquet", {**joined, "inclusion": np.array(found)})
        return ["--validation", str(gold), "--unlabeled", str(rest)]

    capsys.readouterr()
    assert cli.main(["advise", *appended(judge[:60])]) == 0
    assert "210 gold rows" in capsys.readouterr().out
    message = fail(capsys, "advise", *appended(judge[:60] + teach[:3]))
    assert "3 rows without a number" in message and "leave out rows that were chosen" in message


# answers --------------------------------------------------------------------------------------------------------------

ROWS = make(300)
GOLD_ROWS = part(ROWS, 0, 80)
HEAD = "id,label"


def gold_of(columns: str = "", cells: Callable[[int], str] = lambda number: "") -> str:
    """The text of a file of gold labels, with more columns."""
    pairs = zip(GOLD_ROWS.ids, GOLD_ROWS.truth, strict=True)
    return "\n".join([HEAD + columns, *(f"{key},{CLASSES[label]}{cells(i)}" for i, (key, label) in enumerate(pairs))]) + "\n"


def sources(folder: Path, gold: str, *more: str) -> list[str]:
    (folder / "gold.csv").write_text(gold)
    return ["--answers", str(ANSWERS["label_and_confidence"](ROWS, folder)), "--gold", str(folder / "gold.csv"), *more]


@pytest.mark.slow
def test_answers_have_groups_and_inclusion_probabilities_too(tmp_path: Path) -> None:
    answers = ANSWERS["label_and_confidence"](ROWS, tmp_path)
    path = tmp_path / "gold.csv"
    path.write_text(gold_of())
    plain = advise_answers(answers, path)
    path.write_text(gold_of(",group,inclusion", lambda i: f",{i % 16},{0.5 if i % 4 else 0.05}"))
    found = advise_answers(answers, path)
    weights = np.where(np.arange(80) % 4, 2.0, 20.0)
    right = ROWS.teacher[:80].argmax(axis=1) == ROWS.truth[:80]
    assert found.advice.teacher.value == pytest.approx(np.average(right, weights=weights))
    assert plain.advice.teacher.value == pytest.approx(np.mean(right))
    assert found.figures[0].f1.low < found.figures[0].f1.value < found.figures[0].f1.high
    assert found.figures[0].recall.value != plain.figures[0].recall.value
    assert found.advice.gain.z > 2 and plain.advice.gain.z == 1.96
    assert found.recalibrated.high - found.recalibrated.low > plain.recalibrated.high - plain.recalibrated.low
    path.write_text(gold_of(",doc,chance", lambda i: f",{i % 16},{0.5 if i % 4 else 0.05}"))
    again = advise_answers(answers, path, group="doc", inclusion="chance")
    assert again.advice.teacher == found.advice.teacher and again.verdict == found.verdict
    chance = gold_plan.judging_inclusion(
        Context(Evidence([0, 1] * 40, np.eye(2)[[0, 1] * 40], None), gold_weights=weights), 0
    )
    judge = [row["inclusion"] for row in found.plan.to_pylist() if row["use"] == "judge"]
    assert judge == pytest.approx([chance] * len(judge))


@pytest.mark.slow
def test_groups_may_stand_with_the_rows_or_with_the_answers(tmp_path: Path) -> None:
    answers = {"id": list(ROWS.ids), "label": list(ROWS.labels), "doc": [i % 16 for i in range(300)]}
    gold = {"id": list(GOLD_ROWS.ids), "label": [CLASSES[each] for each in GOLD_ROWS.truth]}
    rows = {"id": list(ROWS.ids), "text": list(ROWS.texts), "topic": [i % 16 for i in range(300)]}
    inside = advise_answers(answers, {**gold, "doc": answers["doc"][:80]}, group="doc").advice.teacher
    assert advise_answers(answers, gold, group="doc").advice.teacher == inside
    assert advise_answers(answers, gold, rows=rows, text="text", group="topic").advice.teacher == inside
    labeled = {**answers, "truth": [*gold["label"], *[None] * 220], "chance": [0.5] * 300}
    one = advise_answers(labeled, label="truth", group="doc", inclusion="chance").advice.teacher
    assert one.low == pytest.approx(inside.low)


@pytest.mark.slow
def test_correct_takes_the_columns_too(tmp_path: Path) -> None:
    def record(gold: str) -> dict[str, Any]:
        output = tmp_path / "t.parquet"
        assert cli.main(["correct", *sources(tmp_path, gold, "--text", "text"), "--output", str(output)]) == 0
        return read_record(output)

    plain = record(gold_of())
    found = record(gold_of(",group,inclusion", lambda i: f",{i % 16},{0.5 if i % 4 else 0.05}"))
    assert found["options"]["group"] == "group" and "group" not in plain["options"]
    assert found["fitted"] != plain["fitted"]


BAD_GOLD: dict[str, tuple[str, list[str], list[str]]] = {
    "no such group": (gold_of(), ["--group", "doc"], ["no column 'doc'", "in the gold labels, in the answers or in --pool"]),
    "no such inclusion": (gold_of(), ["--inclusion", "chance"], ["no column 'chance'", "columns id, label"]),
    "zero": (gold_of(",inclusion", lambda i: f",{i % 2}"), [], ["no inclusion probabilities", "40 others", "'r00000'"]),
    "missing": (gold_of(",inclusion", lambda i: "," if i == 3 else ",0.5"), [], ["1 rows without a number", "'r00003'"]),
    "one group": (gold_of(",group", lambda i: ",a"), [], ["all gold rows belong together"]),
    "no group": (gold_of(",group", lambda i: "," if i == 3 else f",{i % 9}"), [], ["rows without a group", "'r00003'"]),
}


@pytest.mark.parametrize("name", BAD_GOLD)
@pytest.mark.parametrize("command", ["advise", "correct"])
def test_a_bad_column_of_gold_labels_is_one_clear_error(
    name: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gold, flags, told = BAD_GOLD[name]
    output = ["--output", str(tmp_path / "t.parquet")] if command == "correct" else []
    message = fail(capsys, command, *sources(tmp_path, gold, *flags), *output)
    assert all(each in message for each in told), message


# several annotators ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_ceiling_that_annotators_set_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    lines = ["id,label,annotator,group"]
    for number, (key, label) in enumerate(zip(ROWS.ids[:250], ROWS.truth, strict=False)):
        said = np.where(rng.random(2) < 0.9, label, 1 - label)
        lines += [f"{key},{CLASSES[each]},{who},{number % 50}" for each, who in zip(said, "ab", strict=True)]
    gold = "\n".join(lines) + "\n"
    words = sources(tmp_path, gold)
    assert cli.main(["advise", *words]) == 0
    printed = capsys.readouterr().out.splitlines()
    told = [line for line in printed if line.startswith("Two annotators agree on ")]
    assert len(told) == 1 and "of 250 rows: no model can be measured above about " in told[0]
    advice = advise_answers(words[1], words[3])
    grouped, beyond = advice.agreement, advice.beyond_ceiling
    answered, given = ROWS.teacher.argmax(axis=1)[:250], np.array([line.split(",")[1] for line in lines[1:]])
    alike = np.array(CLASSES)[answered][:, None] == given.reshape(250, 2)
    right = np.mean(answered == ROWS.truth[:250])
    assert beyond is not None and beyond.rows == 250 and beyond.measured == pytest.approx(alike.mean()), "ties too"
    assert beyond.measured < right - 0.03 and covers(beyond.corrected, float(right))
    (sentence,) = (line for line in printed if line.startswith("On 250 rows with several labels, ties too, the teacher"))
    assert f"{100 * beyond.measured:.1f} % of the labels; against the truth it would be right on " in sentence
    assert beyond.corrected.percent in sentence and "if teacher and annotators err independently" in sentence
    assert grouped is not None and covers(grouped.ceiling, 0.9) and grouped.rows == 250  # 0.82 agree, ties included
    assert grouped.bounds[0] == grouped.pairwise.value < 0.9 < 1
    (tmp_path / "gold.csv").write_text(gold_of())
    once = advise_answers(words[1], words[3])
    assert once.agreement is None and once.beyond_ceiling is None


# modules --------------------------------------------------------------------------------------------------------------


def test_a_split_has_groups_and_inclusion_probabilities(tmp_path: Path) -> None:
    inputs, labels = np.zeros((6, 2), np.float32), np.array([0, 1, 0, 1, 0, 1])
    plain = check_split("validation", Data(inputs, labels), labels=True, folder=tmp_path)
    told = Data(inputs, labels, groups=[1, 1, 2, 2, 3, 3], inclusion=[0.5] * 6)
    found = check_split("validation", told, labels=True, folder=tmp_path)
    assert plain.design.even and {*found.fingerprint()} - {*plain.fingerprint()} == {"groups", "inclusion"}
    assert found.design.weights is not None and found.design.weights.tolist() == [2.0] * 6
    labeled = check_split("labeled", Data(inputs, labels, groups=[3, 3, 4, 4, 5, 5]), labels=True, folder=tmp_path)
    shared = groups_shared({"validation": found, "labeled": labeled})["labeled"]
    assert shared.groups.tolist() == ["3"] and shared.first.tolist() == [4, 5] and groups_shared({"validation": plain}) == {}
    for bad, what in (
        (Data(inputs, labels, groups=[1, 2]), "number of rows"),
        (Data(inputs, labels, groups=[1] * 6), "belong together"),
        (Data(inputs, labels, inclusion=[2.0] * 6), "no inclusion probabilities"),
    ):
        with pytest.raises(InputError, match=what):
            check_split("validation", bad, labels=True, folder=tmp_path)
    with pytest.raises(InputError, match="is for gold rows"):
        check_split("labeled", Data(inputs, labels, inclusion=[0.5] * 6), labels=True, folder=tmp_path)
