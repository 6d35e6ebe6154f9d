"""Tables and figures of lines: numbers as computed by hand, what is missing stays missing, budgets are never mixed."""

from __future__ import annotations

import json
import multiprocessing
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from experiments.lab import figures, results, tables
from experiments.lab.items import Item
from experiments.lab.results import Line, budgets, printed
from experiments.lab.tables import budget_table, provenance, short
from experiments.paper import figure1, temperature
from experiments.paper.catalogue import ITEMS
from wdistill import FileError, StorageError, WdistillWarning, debiased, oracle, shuffled, unweighted
from wdistill.core import store
from wdistill.report.accuracies import Difference
from wdistill.report.svg import BLUE, INK
from wdistill.runs.arms import Arm, arm

PAPER_BUDGET = {"teacher_epochs": 200, "student_epochs": 200, "epochs": 200, "validation": 2000, "unlabeled": 63757}
PAPER_BUDGET |= {"test": 26032, "batch_size": 32, "teacher": "mobilenet:width=2"}
SMALL = {"teacher_epochs": 4, "student_epochs": 4, "epochs": 4, "unlabeled": 10000, "batch_size": 128}
PAPER = {"teacher": {7500: (87.31, None)}, "debiased": {7500: (90.41, 0.12), 17500: (92.85, 0.1)}}
PAPER |= {"unweighted": {7500: (89.89, 0.09), 17500: (92.45, 0.07)}}


def line(
    arms: Mapping[str, float | None], trial: int = 0, labels: int = 7500, repeat: int | None = None, **budget: Any
) -> Line:
    """A trial of four epochs, in which each arm climbs to the accuracy said and then loses a point; chosen is between."""
    known = {name: best for name, best in arms.items() if best is not None}
    return {
        "experiment": "svhn",
        "labels": labels,
        "trial": trial,
        "repeat": repeat,
        "budget": {**PAPER_BUDGET, **SMALL, **budget},
        "paper_budget": {**PAPER_BUDGET, "unlabeled": 71257 - labels},
        "data": {"name": "svhn", "official": False, "source": "a mirror", "shape": "3×32×32"},
        "teacher": {"validation": 0.8, "unlabeled": 0.8, "test": 0.815 if repeat is None else 0.8 + 0.01 * repeat},
        "student": {"validation": 0.7, "test": 0.7},
        "margins": {"right": [0, 30, *[0] * 17, 90], "wrong": [0, 10, *[0] * 17, 10]},
        "arms": {
            name: {"best": best, "final": best - 0.01, "chosen": best - 0.004, "trajectory": [0.5, 0.7, best, best - 0.01]}
            for name, best in known.items()
        },
        "commit": "e59509b9c34924429c1daa76deb0fa9c9815fbe4",
    }


PAIRS = [(0.88, 0.89), (0.87, 0.885), (0.89, 0.895)]  # unweighted and debiased; gains of 1.0, 1.5 and 0.5 points
TRIALS = [line({"unweighted": base, "debiased": best}, trial) for trial, (base, best) in enumerate(PAIRS)]
ARMS = {"unweighted": unweighted, "debiased": debiased}


def rows(markdown: str, table: int = 0) -> dict[str, list[str]]:
    """The cells of one table of a text, by the first word of their row; tables of budgets count where there is no other."""
    every = re.findall(r"(?:^\|.*\n?)+", markdown, re.M)
    found = ([each for each in every if not each.startswith("| budget |")] or every)[table]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in found.splitlines()]
    return {first.partition("<br>")[0]: rest for first, *rest in cells}


# ---------------------------------------------------------------------------------------------------------------- lines


def test_lines_come_back_as_they_were_added(tmp_path: Path) -> None:
    path = tmp_path / "svhn.jsonl"
    assert results.read(path) == []
    for each in TRIALS:
        results.append(path, each)
    assert results.read(path) == TRIALS
    assert all(json.loads(text) for text in path.read_text().splitlines())


@pytest.mark.parametrize("cut", [1, 30, 400])
def test_a_torn_last_line_is_left_out_and_gives_way(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "svhn.jsonl"
    for each in TRIALS:
        results.append(path, each)
    path.write_bytes(path.read_bytes()[: -1 - cut])
    with pytest.warns(WdistillWarning, match=r"svhn\.jsonl, line 3: torn"):
        assert results.read(path) == TRIALS[:2]
    results.append(path, TRIALS[0])
    assert results.read(path) == [*TRIALS[:2], TRIALS[0]]


def test_a_last_line_that_only_lacks_its_end_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "svhn.jsonl"
    path.write_text(json.dumps(TRIALS[0]))
    assert results.read(path) == TRIALS[:1]
    results.append(path, TRIALS[1])
    assert results.read(path) == TRIALS[:2]


@pytest.mark.parametrize(
    ("damaged", "found"),
    [
        ('{"labels": 75', "delimiter"),
        ("[1, 2]", "a list"),
        ('{"experiment": "svhn"}', "no labels, trial"),
        ("\0\0", "value"),
    ],
)
def test_a_damaged_line_elsewhere_is_named(tmp_path: Path, damaged: str, found: str) -> None:
    path = tmp_path / "svhn.jsonl"
    path.write_text("\n".join([json.dumps(TRIALS[0]), damaged, json.dumps(TRIALS[1])]) + "\n")
    with pytest.raises(FileError, match=r"line 2: not a line of results") as error:
        results.read(path)
    assert found in error.value.found and error.value.expected and error.value.remedy


def _add(path: Path, trials: Sequence[int]) -> None:
    for trial in trials:
        results.append(path, line({"unweighted": 0.5}, trial))


def test_processes_that_add_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "svhn.jsonl"
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_add, args=(path, range(10 * i, 10 * i + 10))) for i in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(each["trial"] for each in results.read(path)) == list(range(30))


def test_a_failed_write_leaves_the_lines_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "svhn.jsonl"
    results.append(path, TRIALS[0])

    def full(operation: str, path: Path) -> None:
        if operation == "write":
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(store, "before", full)
        with pytest.raises(StorageError, match="cannot write"):
            results.append(path, TRIALS[1])
    assert results.read(path) == TRIALS[:1]
    results.append(path, TRIALS[1])  # the lock is free again
    assert results.read(path) == TRIALS[:2]


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot write"):
        results.append(tmp_path / "nowhere" / "svhn.jsonl", TRIALS[0])


def test_trials_are_told_apart_by_labels_trial_repeat_budget_and_data() -> None:
    first = line({}, 0)
    others = [line({}, 1), line({}, 0, 10000), line({}, 0, repeat=0), line({}, 0, epochs=5)]
    others.append({**first, "data": {**first["data"], "official": True}})
    assert len(results.together([first, *others])) == 6
    assert results.key(json.loads(json.dumps(line({"oracle": 0.9}, 0)))) in results.together([first])


def test_arms_that_were_run_one_after_the_other_are_one_trial() -> None:
    some = [line({"unweighted": 0.7, "oracle": 0.8}), line({"unweighted": 0.75, "debiased": 0.9})]
    (found,) = results.together(some).values()
    assert {name: each["best"] for name, each in found["arms"].items()} == {
        "unweighted": 0.75,
        "oracle": 0.8,
        "debiased": 0.9,
    }
    assert list(some[0]["arms"]) == ["unweighted", "oracle"]  # as it was
    cells = rows(tables.by_labels(some, {**ARMS, "oracle": oracle}, {}, "SVHN"))
    assert cells["oracle"] == ["80.00 (1)<br>+5.00 (1)"]


def test_budgets_are_kept_apart_and_all_rows_are_one_budget() -> None:
    more = [line({}, 0, epochs=5), line({}, 0, repeat=0)]
    foreign = {**line({}, 0), "data": {"name": "svhn", "official": True, "source": "its home"}}
    every = [line({}, 0, labels, unlabeled=71257 - labels) for labels in (7500, 10000)]
    found = budgets([*TRIALS, *more, *every])
    assert [len(group) for group in found] == [2, 1, 3, 1] and found[0] == every and found[2] == TRIALS
    assert len(budgets([foreign, line({}, 1)])) == 2


def test_a_trial_that_was_run_again_counts_once() -> None:
    again = line({"unweighted": 0.1, "debiased": 0.2}, 0)
    assert budgets([TRIALS[0], again]) == [[again]]


# --------------------------------------------------------------------------------------------------------------- tables


def test_means_deviations_and_paired_differences() -> None:
    found = rows(tables.by_labels(TRIALS, ARMS, PAPER, "SVHN"))
    assert found["labels"] == ["7,500", "17,500"]
    assert found["teacher"] == ["81.50; paper 87.31", "–"]
    assert found["unweighted"] == ["88.00 ± 1.00 (3); paper 89.89 ± 0.09", "–; paper 92.45 ± 0.07"]
    ours = f"89.00 ± {np.std([89, 88.5, 89.5], ddof=1):.2f} (3)"
    gain = f"+1.00 ± {np.std([1, 1.5, 0.5], ddof=1) / np.sqrt(3):.2f} (3)"
    assert found["debiased"] == [
        f"{ours}; paper 90.41 ± 0.12<br>{gain}; paper +0.52",
        "–; paper 92.85 ± 0.1<br>–; paper +0.40",
    ]


def test_final_and_chosen_stand_in_a_table_of_their_own() -> None:
    found = rows(tables.by_labels(TRIALS, ARMS, PAPER, "SVHN"), 1)
    assert found["unweighted, final"] == ["87.00 ± 1.00 (3)"] and found["unweighted, chosen"] == ["87.60 ± 1.00 (3)"]
    assert found["debiased, final"][0].endswith("+1.00 ± 0.29 (3)") and "teacher" not in found


def test_an_arm_is_compared_over_the_trials_that_have_both() -> None:
    some = [line({"unweighted": 0.8, "debiased": None}, 0), line({"unweighted": 0.9, "debiased": 0.93}, 1)]
    found = rows(tables.by_labels(some, {**ARMS, "oracle": oracle}, {}, "SVHN"))
    assert found["debiased"] == ["93.00 (1)<br>+3.00 (1)"] and found["oracle"] == ["–<br>–"]
    alone = rows(tables.by_labels([line({"debiased": float("nan"), "oracle": 0.9})], {"oracle": oracle}, {}, "SVHN"))
    assert alone["oracle"] == ["90.00 (1)"] and alone["debiased"] == ["–<br>–"]


def test_every_budget_has_a_table_of_its_own() -> None:
    longer = [line({"unweighted": 0.1, "debiased": 0.2}, trial, epochs=5) for trial in range(2)]
    text = tables.by_labels([*TRIALS, *longer], ARMS, {}, "SVHN")
    assert rows(text)["unweighted"] == ["10.00 ± 0.00 (2)"] and rows(text, 2)["unweighted"] == ["88.00 ± 1.00 (3)"]


def test_teachers_that_trials_do_not_share_have_a_deviation() -> None:
    fresh = [line({"unweighted": 0.8}, trial, repeat=trial) for trial in range(3)]
    assert rows(tables.by_labels(fresh, ARMS, {}, "SVHN"))["teacher"] == ["81.00 ± 1.00 (3)"]


def test_without_lines_only_the_paper_speaks() -> None:
    found = rows(tables.by_labels([], ARMS, PAPER, "SVHN"))
    assert found["debiased"][0] == "–; paper 90.41 ± 0.12<br>–; paper +0.52"
    assert "No results yet." in tables.by_labels([], ARMS, {}, "SVHN")


HARD, VID = {"targets": "hard"}, {"vid": ("stages.0=stages.0",)}
KINDS = {
    "unweighted": unweighted,
    "debiased": debiased,
    "debiased-refresh": arm(debiased, refresh=1),
    "unweighted-hard": arm(unweighted, **HARD),
    "debiased-hard": arm(debiased, **HARD),
    "vid": arm(unweighted, **VID),
    "debiased-vid": arm(debiased, **VID),
}
OVER = {
    "unweighted": None,
    **dict.fromkeys(("debiased", "debiased-refresh", "unweighted-hard", "vid"), "unweighted"),
    "debiased-hard": "unweighted-hard",
    "debiased-vid": "vid",
}


def test_every_arm_is_compared_to_the_unweighted_one_trained_like_it() -> None:
    assert tables.compared([], KINDS) == OVER
    known = {name: each.settings if isinstance(each, Arm) else {} for name, each in KINDS.items()}
    settings = json.loads(json.dumps({name: dict(each) for name, each in known.items()}))
    rules = {name: "unweighted()" if name.startswith(("unweighted", "vid")) else "debiased(k=1)" for name in KINDS}
    run = {**line(dict.fromkeys(KINDS, 0.9)), "settings": settings, "rules": rules}
    assert tables.compared([run], {}) == OVER  # of arms that only the lines know
    some = {name: KINDS[name] for name in ("unweighted", "vid")}
    assert tables.compared([run], some)["debiased-vid"] == "vid"


def test_gains_of_the_summary_are_over_the_same_arms_as_elsewhere() -> None:
    for experiment in (each for item in ITEMS for each in item.experiments):
        over = tables.compared([], experiment.arms)
        assert {name: over[name] for name in tables.GAINS if name in over} == {
            name: base for name, base in tables.GAINS.items() if name in over
        }


def test_an_item_may_compare_an_arm_to_another() -> None:
    made = [line({"unweighted": 0.5, "debiased": 0.6, "debiased-refresh": 0.7})]
    arms = {name: KINDS[name] for name in ("unweighted", "debiased", "debiased-refresh")}
    assert rows(tables.by_labels(made, arms, {}, "SVHN"))["debiased-refresh"] == ["70.00 (1)<br>+20.00 (1)"]
    against = tables.by_labels(made, arms, {}, "SVHN", against={"debiased-refresh": "debiased"})
    assert rows(against)["debiased-refresh"] == ["70.00 (1)<br>+10.00 (1)"] and "<br>over debiased |" in against


def test_numbers_of_the_paper_that_stand_beside_two_arms_are_no_difference() -> None:
    paper = {**PAPER, "unweighted-hard": PAPER["unweighted"]}
    found = rows(
        tables.by_labels([], {name: KINDS[name] for name in ("unweighted", "debiased", "unweighted-hard")}, paper, "")
    )
    assert found["unweighted-hard"][0] == "–; paper 89.89 ± 0.09<br>–" and "paper +0.52" in found["debiased"][0]


def test_holm_counts_the_differences_that_were_tested() -> None:
    def found(p: float | None) -> Difference:
        return Difference(0.01, 0.001, p, 3)

    corrected = tables.corrected({"a": found(0.01), "b": found(0.04), "c": None, "d": found(None), "e": found(0.03)})
    assert corrected == pytest.approx({"a": 0.03, "e": 0.06, "b": 0.06})


def test_only_what_survives_the_correction_is_marked() -> None:
    clear, weak = [0.050, 0.051, 0.049], [0.010, 0.014, 0.006]
    assert scipy.stats.ttest_1samp(weak, 0).pvalue == pytest.approx(0.0500, abs=0.002)
    made = [
        line({"unweighted": 0.8, "oracle": 0.8 + clear[i], "debiased": 0.8 + 1.05 * weak[i], "shuffled": 0.8 + 0.01 * i}, i)
        for i in range(3)
    ]
    text = tables.by_labels(made, {**ARMS, "oracle": oracle, "shuffled": shuffled()}, {}, "SVHN")
    assert "corrected for 3 comparisons (Holm)" in text and "corrected for 6 comparisons (Holm)" in text
    assert [name for name, cells in rows(text).items() if tables.MARK in cells[0]] == ["oracle"]
    few = tables.by_labels(made[:2], ARMS, {}, "SVHN")
    assert "corrected for 0 comparisons" in few and "Not tested: fewer than three trials, equal differences." in few


def test_differences_that_are_all_the_same_are_not_tested() -> None:
    """Accuracies are counts of rows: 0.4 − 0.3 and 0.7 − 0.6 are the same, but for rounding."""
    pairs = (0.3, 0.4), (0.6, 0.7), (0.8, 0.9)
    assert len({best - base for base, best in pairs}) > 1
    made = [line({"unweighted": base, "debiased": best}, trial) for trial, (base, best) in enumerate(pairs)]
    text = tables.by_labels(made, ARMS, {}, "SVHN")
    assert rows(text)["debiased"][0].endswith("+10.00 ± 0.00 (3)") and text.count(tables.MARK) == 2  # of its meaning
    assert "corrected for 0 comparisons" in text
    mixed = [{**each, "arms": each["arms"] | more["arms"]} for each, more in zip(made, _wavering(), strict=True)]
    text = tables.by_labels(mixed, {**ARMS, "oracle": oracle}, {}, "SVHN")
    assert "corrected for 1 comparison (Holm)" in text and "Not tested: fewer than three trials, equal differences." in text


def _wavering() -> list[Line]:
    return [line({"oracle": best}, trial) for trial, best in enumerate((0.80, 0.82, 0.70))]


def test_a_test_over_splits_does_not_speak_of_other_teachers() -> None:
    fresh = [{**each, "repeat": each["trial"]} for each in TRIALS]
    one = "where trials share a teacher, over splits for this one teacher"
    for text in (tables.by_labels(TRIALS, ARMS, {}, "SVHN"), tables.summary({"svhn": TRIALS, "other": fresh})):
        assert f"{tables.MARK} p < 0.05 in a paired t-test over trials" in text and one in text
    assert "only the split varied" in tables.by_labels(TRIALS, ARMS, {}, "SVHN")
    assert "each with its own labeled set and models" in tables.by_labels(fresh, ARMS, {}, "SVHN")


def test_epochs_chosen_on_rows_that_trained_the_student_are_said_to_be() -> None:
    def heading(recipe: str, **settings: str) -> str:
        own = {name: {"validation_in_training": value} for name, value in settings.items()}
        told = {"recipe": {"validation_in_training": recipe}, "settings": own}
        (found,) = re.findall("After the last epoch.*", tables.by_labels([TRIALS[0] | told], ARMS, {}, "SVHN"))
        return str(found).partition("validation rows")[2]

    assert heading("no") == ":" == heading("half") and heading("yes") == ", which the arms were trained on too:"
    assert heading("no", debiased="yes") == ", which debiased were trained on too:" == heading("yes", unweighted="half")


TEMPERATURES = {0.01: 0.02, 5: -0.01}  # and the gain at each


def at_temperatures(trial: int = 0, more: float = 0.0) -> Line:
    gains = {at: gain + more for at, gain in TEMPERATURES.items()}
    return line(
        {f"{arm}-T{at:g}": 0.5 + (arm == "debiased") * gain for at, gain in gains.items() for arm in ARMS},
        trial,
        repeat=trial,
    )


def test_temperatures() -> None:
    paper = {"unweighted-T5": {7500: (56.92, 0.11)}, "debiased-T5": {7500: (57.01, 0.2)}}
    (item,) = (item for item in ITEMS if item.name == "temperature")
    arms = {name: each for name, each in item.experiments[0].arms.items() if name.partition("-T")[2] in ("0.01", "1", "5")}
    alone = dict.fromkeys(("unweighted-T0.01", "unweighted-T1", "unweighted-T5"))
    text = tables.by_labels([at_temperatures()], arms, paper, "temperatures", alone)
    found, later = rows(text), rows(text, 1)
    assert found["unweighted-T0.01"] == ["50.00 (1)"] and found["debiased-T0.01"] == ["52.00 (1)<br>+2.00 (1)"]
    assert found["unweighted-T1"] == ["–"] and found["debiased-T1"] == ["–<br>–"]
    assert found["unweighted-T5"] == ["50.00 (1); paper 56.92 ± 0.11"]
    assert found["debiased-T5"] == ["49.00 (1); paper 57.01 ± 0.2<br>−1.00 (1); paper +0.09"]
    assert later["debiased-T0.01, final"] == ["51.00 (1)<br>+2.00 (1)"]
    assert later["debiased-T5, chosen"] == ["48.60 (1)<br>−1.00 (1)"] and "best" not in str(later)
    whole = item.tables({"temperature": [at_temperatures()]})
    assert "debiased-T5<br>over unweighted-T5" in whole and "unweighted-T5<br>over" not in whole


def test_the_summary_has_gains_and_nothing_invented() -> None:
    more = {
        "unweighted": 0.5,
        "debiased": 0.6,
        "unweighted-hard": 0.4,
        "debiased-hard": 0.45,
        "vid": 0.6,
        "debiased-vid": 0.7,
    }
    text = tables.summary({"svhn": TRIALS, "more": [line(more, labels=10000)], "empty": [], "bare": [line({"oracle": 0.9})]})
    found = rows(text)
    assert found["experiment"][3:] == ["debiased", "debiased-hard", "vid", "debiased-vid"]
    assert found["svhn"][2:] == ["7,500", "+1.00 ± 0.29 / +1.00 ± 0.29", "–", "–", "–"]
    assert found["more"][2:] == ["10,000", *(f"+{gain}.00 / +{gain}.00" for gain in (10, 5, 10, 10))]
    assert "debiased-hard over unweighted-hard; debiased-vid over vid. †" in text
    assert "empty" not in text and "bare" not in text and "-T*" not in text
    assert tables.summary({"bare": [line({"oracle": 0.9})]}) == "No results yet.\n"


def test_the_summary_has_the_mean_over_all_temperatures() -> None:
    text = tables.summary({"hot": [at_temperatures(0), at_temperatures(1, 0.004), at_temperatures(2, -0.001)]})
    gains = [0.5, 0.9, 0.4]  # means over both temperatures, by trial
    shown = f"+{np.mean(gains):.2f} ± {np.std(gains, ddof=1) / np.sqrt(3):.2f}"
    assert rows(text)["experiment"][3:] == ["debiased-T*"] and rows(text)["hot"][2:] == ["7,500", f"{shown} / {shown}"]


def test_the_budget_stands_beside_the_papers() -> None:
    found = rows(budget_table([*TRIALS, line({}, 0, 10000)]))
    assert found["budget"][:6] == ["teacher epochs", "student epochs", "epochs", "validation", "unlabeled", "test"]
    assert found["ours"] == ["4", "4", "4", "2,000", "10,000", "26,032", "128", "mobilenet:width=2"]
    assert found["the paper's"] == ["200", "200", "200", "2,000", "61,257–63,757", "26,032", "32", "mobilenet:width=2"]
    own = budget_table([{**TRIALS[0], "paper_budget": None}])
    assert "paper" not in own and rows(own)["ours"] == found["ours"]
    assert short(TRIALS) == "4 of 200 epochs, 10,000 of 63,757 unlabeled rows, 3 trials, unofficial copy"
    longer = line({}, repeat=0, teacher_epochs=200, student_epochs=20, unlabeled=63757)
    assert short([longer]).startswith(
        "4 of 200 epochs after 200 and 20 on the labels, 63,757 unlabeled rows, 1 trial, fresh teachers"
    )


def test_a_table_says_trials_data_code_and_hardware() -> None:
    assert provenance([*TRIALS, line({}, 0, 10000)]) == (
        "trials: 3 of 7,500 labels, 1 of 10,000 labels, only the split varied; data: svhn, unofficial copy (a mirror); "
        "commit e59509b"
    )
    assert "each with its own labeled set and models" in provenance([line({}, repeat=0)])
    where = {"processor": "Intel(R) Xeon(R) Processor @ 2.80GHz", "cores": 2, "torch": "2.13.0", "device": "cpu"}
    assert provenance([TRIALS[0] | {"environment": where}]).endswith("; commit e59509b; on Intel Xeon @ 2.80GHz")
    fast = where | {"processor": "AMD EPYC 7763 CPU", "device": "cuda:0 (A100)"}
    both = [each | {"environment": found} for each, found in zip(TRIALS, (where, fast, where), strict=True)]
    assert provenance(both).endswith("; on Intel Xeon @ 2.80GHz and AMD EPYC 7763 with cuda:0 (A100)")


def test_the_precision_is_told_where_it_is_not_the_usual_one() -> None:
    found = rows(budget_table([line({}, precision="bfloat16")]))
    assert [found[name][-1] for name in ("budget", "ours", "the paper's")] == ["precision", "bfloat16", "float32"]
    assert "precision" not in budget_table(TRIALS)


def test_numbers_of_the_paper_are_typed_as_it_prints_them() -> None:
    found = printed("""
labels      7500   10000
teacher     87.31  88
debiased    90±0.1 91.21±0.097
""")
    assert found == {
        "teacher": {7500: (87.31, None), 10000: (88, None)},
        "debiased": {7500: (90, 0.1), 10000: (91.21, 0.097)},
    }


# -------------------------------------------------------------------------------------------------------------- figures


def curves(axes: Any) -> dict[str, list[float]]:
    """The heights of the lines of a panel, by colour."""
    return {to_hex(each.get_color()): [round(float(y), 6) for y in each.get_ydata()] for each in axes.lines}


def bands(axes: Any) -> int:
    return len([each for each in axes.collections if "FillBetween" in type(each).__name__ or "Poly" in type(each).__name__])


def test_trajectories_are_means_with_bands() -> None:
    several = [*TRIALS, line({"unweighted": 0.9}, 0, 10000)]
    left, right = figures.trajectories(several, ARMS, "SVHN").axes
    assert curves(left) == {INK: [50, 70, 88, 87], BLUE: [50, 70, 89, 88]} and bands(left) == 2
    assert curves(right) == {INK: [50, 70, 90, 89]} and bands(right) == 0
    assert [each.get_title("left") for each in (left, right)] == ["7,500 labels", "10,000 labels"]


def test_trials_that_came_less_far_are_left_out_of_a_trajectory() -> None:
    cut = line({"unweighted": 0.1}, 1)
    cut["arms"]["unweighted"]["trajectory"] = [0.1]
    (panel,) = figures.trajectories([line({"unweighted": 0.9}, 0), cut], ARMS, "SVHN").axes
    assert curves(panel) == {INK: [50, 70, 90, 89]}


def test_best_accuracies_stand_beside_the_papers() -> None:
    ours, theirs = figures.best([*TRIALS, line({"debiased": 0.95}, 0, 17500)], ARMS, PAPER, "SVHN").axes
    means = [container.lines[0].get_ydata().tolist() for container in ours.containers]
    assert np.allclose(means[0], [88]) and np.allclose(means[1], [89, 95])
    bar = ours.containers[0].lines[2][0].get_segments()[0]
    assert np.allclose(bar[:, 1], [87, 89])  # one standard deviation
    assert [container.lines[0].get_ydata().tolist() for container in theirs.containers] == [[89.89, 92.45], [90.41, 92.85]]
    assert len(figures.best(TRIALS, ARMS, {}, "SVHN").axes) == 1


def test_numbers_of_labels_are_evenly_spaced_and_no_line_joins_arms_that_stand_apart() -> None:
    made = [line({"unweighted": 0.8, "debiased": 0.9}, 0, labels) for labels in (500, 1000, 17500)]
    (panel,) = figures.best(made, ARMS, {}, "SVHN").axes
    first, second = (container.lines[0] for container in panel.containers)
    assert np.allclose(np.diff(first.get_xdata()), 1) and np.allclose(second.get_xdata() - first.get_xdata(), 0.35)
    assert panel.get_xticks().tolist() == [0, 1, 2] and panel.get_xticklabels()[2].get_text() == "17,500"
    assert first.get_linestyle() == "None" and first.get_marker() != second.get_marker()


@pytest.mark.parametrize(("repeat", "between"), [(False, "splits"), (True, "teachers")])
def test_figures_say_what_their_bars_are(repeat: bool, between: str) -> None:
    made = [{**each, "repeat": each["trial"] if repeat else None} for each in TRIALS]
    said = f"standard deviation between {between}; arms are paired"
    titles = [
        figures.trajectories(made, ARMS, "SVHN").get_suptitle(),
        figures.best(made, ARMS, {}, "SVHN").get_suptitle(),
        figures.overview([figures.Column("SVHN", made, tuple(ARMS))], "all", trajectory=False).axes[0].get_title("left"),
    ]
    assert all(said in " ".join(title.split()) for title in titles)
    assert "deviation" not in figures.best(made[:1], ARMS, {}, "SVHN").get_suptitle()


def test_panels_without_lines_say_so() -> None:
    columns = [figures.Column("SVHN", [], tuple(ARMS), PAPER), figures.Column("CelebA", TRIALS, tuple(ARMS))]
    panels = figures.overview(columns, "both", trajectory=True).axes
    assert len(panels) == 6
    empty = [panel for panel in panels if any("no results yet" in text.get_text() for text in panel.texts)]
    assert [panels.index(panel) for panel in empty] == [0, 2, 5]  # two of SVHN's, and the paper's of CelebA
    assert curves(panels[1]) == {INK: [50, 70, 88, 87], BLUE: [50, 70, 89, 88]}


def test_accuracy_by_margin() -> None:
    made = [line({"unweighted": 0.8, "oracle": 0.9}, trial) for trial in range(3)]
    left, right = figure1.oracle_and_margin(made, 7500, "Figure 1").axes[:2]
    assert sorted(curves(left).values()) == [[50, 70, 80, 79], [50, 70, 90, 89]]
    points = right.containers[0].lines[0]
    assert np.allclose(points.get_xdata(), [0.075, 0.975]) and np.allclose(points.get_ydata(), [75, 90])
    low, high = right.containers[0].lines[2][0].get_segments()[1][:, 1]
    assert high - low == pytest.approx(200 * np.sqrt(0.9 * 0.1 / 100), rel=0.1)  # of one trial's rows: all share a teacher


def test_temperature_curves() -> None:
    arms = {"unweighted-T0.01": 0.5, "unweighted-T5": 0.6, "debiased-T5": 0.7}
    paper = {"debiased-T0.01": {7500: (53.73, 0.11)}}
    ours, theirs = temperature.by_temperature([line(arms)], 7500, paper, "temperatures").axes
    assert [each.lines[0].get_ydata().tolist() for each in ours.containers] == [pytest.approx([50, 60]), pytest.approx([70])]
    assert [each.lines[0].get_ydata().tolist() for each in theirs.containers] == [[53.73]]
    assert len(temperature.by_temperature([line(arms)], 7500, {}, "temperatures").axes) == 1


def test_every_budget_has_a_figure_of_its_own() -> None:
    def drawn(*more: Line) -> dict[str, Figure]:
        return figures.each_budget("svhn", [*TRIALS, *more], lambda group: figures.trajectories(group, list(ARMS), "SVHN"))

    made = drawn(line({"debiased": 0.5}, epochs=5))
    assert list(made) == ["svhn", "svhn-2"] and "5 of 200 epochs" in made["svhn"].get_suptitle()
    assert list(drawn(line({"another": 0.5}, epochs=5))) == ["svhn"]  # nothing of it to draw


@pytest.mark.slow
def test_the_same_lines_give_the_same_bytes() -> None:
    first, second = (figures.rendered(figures.trajectories(TRIALS, ARMS, "SVHN")) for _ in range(2))
    assert first == second and first.startswith(b"<?xml")


# ---------------------------------------------------------------------------------------------------------------- items


def header_of(item: Item) -> str:
    """What the file of an item says of it."""
    files = [each for name, each in sys.modules.items() if name.startswith("experiments.paper.") and "catalogue" not in name]
    homes = [each for each in files if item in (getattr(each, "ITEM", None), *getattr(each, "ITEMS", ()))]
    return next(each for each in homes if each.__name__ != "experiments.paper.reproduce").__doc__ or ""


def test_items_that_share_an_experiment_share_its_lines() -> None:
    assert len({item.name for item in ITEMS}) == len(ITEMS)
    by_name = {each.name: replace(each, labels=()) for item in ITEMS for each in item.experiments}
    assert all(by_name[each.name] == replace(each, labels=()) for item in ITEMS for each in item.experiments)


@pytest.mark.proof
@pytest.mark.slow
@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_items_are_made_of_nothing_and_of_one_trial(item: Any) -> None:
    assert "No results yet." in item.tables({})
    item.figures({})
    some = {each.name: [line(dict.fromkeys(each.arms, 0.9), 0, each.labels[0])] for each in item.experiments}
    assert "90.00 (1)" in item.tables(some)
    assert all(figures.rendered(figure) for figure in item.figures(some).values()) and item.figures(some)


@pytest.mark.slow
@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_numbers_of_labels_that_the_paper_has_not_are_shown_too(item: Any) -> None:
    some = {each.name: [line(dict.fromkeys(each.arms, 0.9), 0, 60)] for each in item.experiments}
    assert "No results yet" not in item.tables(some) and "90.00 (1)" in item.tables(some)
    made = [figures.rendered(figure) for figure in item.figures(some).values()]
    assert made and all(b"no results yet" not in each or b"the paper's" in each for each in made)


def test_where_the_papers_number_of_labels_has_been_run_a_figure_shows_it_alone() -> None:
    some = [line({"unweighted": 0.8, "oracle": 0.9}, 0, labels) for labels in (60, 7500, 90)]
    made = figures.each_labels("one", some, 7500, lambda group, labels: figures.trajectories(group, ARMS, f"{labels}"))
    assert list(made) == ["one"] and made["one"].get_suptitle().startswith("7500\n")
    others = figures.each_labels("one", some[::2], 7500, lambda group, labels: figures.best(group, ARMS, {}, f"{labels}"))
    assert [each.get_suptitle()[:3] for each in others.values()] == ["60\n", "90\n"] and list(others) == ["one", "one-2"]


def test_svhn_says_that_the_papers_numbers_are_of_one_kind_of_targets() -> None:
    (svhn,) = (item for item in ITEMS if item.name == "svhn")
    assert "soft targets in §3, hard ones in the caption of Figure 11: the paper's numbers stand beside both" in svhn.tables(
        {}
    )


IN_PAPER = [item for item in ITEMS if any(each.in_paper for each in item.experiments)]
CURVES = ("figure1", "refresh")  # of the paper, without numbers


@pytest.mark.parametrize("item", IN_PAPER, ids=lambda item: item.name)
def test_the_papers_numbers_belong_to_arms_and_labels_that_are_run(item: Any) -> None:
    text = item.tables({})
    arms = {arm for each in item.experiments for arm in each.arms}
    labels = {f"{each:,}" for experiment in item.experiments for each in experiment.labels}
    for table in range(text.count("| labels |")):
        found = rows(text, table)
        printed = {name for name, cells in found.items() if any("paper" in cell for cell in cells)}
        assert set(found["labels"]) <= labels
        assert printed <= {*arms, "teacher"} and len(printed) > 1
        assert item.name != "temperature" or printed == {*arms, "teacher"}
    assert ("paper" in text) == (item.name not in CURVES)


def test_every_figure_of_the_paper_that_is_made_of_experiments_is_an_item() -> None:
    told = " ".join(item.shows for item in IN_PAPER)
    assert {int(number) for number in re.findall(r"Figure (\d+)", told)} == {*range(1, 17)}


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_the_header_of_an_item_says_its_command(item: Any) -> None:
    (command,) = re.findall(r"^Command:  wdistill reproduce (.*)$", header_of(item), re.M)
    assert item.name in command.split()
