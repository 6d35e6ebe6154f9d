"""`wdistill advise` and `wdistill weigh --method best` on real files, as a user calls them."""

from __future__ import annotations

import builtins
import csv
import hashlib
import re
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.datasets import load_digits

from tests.killing import child, killer
from tests.tables import take, write
from tests.test_cli import SLOW, fail
from wdistill import cli, debiased
from wdistill.methods import crossfit
from wdistill.methods.best import correct_targets
from wdistill.methods.context import AuxiliaryPredictions, Context, one_hot
from wdistill.methods.crossfit import folds_of
from wdistill.methods.judged import judge
from wdistill.methods.metric_text import metric_of, written_out
from wdistill.methods.targets import fit_targets
from wdistill.tables import experts, job, join
from wdistill.tables.options import Options, Paths
from wdistill.tables.output import read_record
from wdistill.training.auxiliary import by_forests
from wdistill.training.data import Split
from wdistill.training.inputs import InMemory

K = 3


def columns(seed: int, rows: int, first: int) -> dict[str, np.ndarray]:
    """ids, labels, three experts who are right more often than not, and inputs that tell something too."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, K, rows)
    table = {"id": np.arange(first, first + rows), "label": labels}
    for name, strength in {"teacher": 1.5, "student": 1.0, "llm": 2.0}.items():
        powers = np.exp(1.5 * (rng.normal(size=(rows, K)) + strength * one_hot(labels, K)))
        table[name] = (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)
    return table | {"x": (rng.normal(size=(rows, 4)) + 1.5 * one_hot(labels, 4)).astype(np.float32)}


GOLD, REST, LABELED = columns(1, 150, 0), columns(2, 400, 1000), columns(3, 100, 5000)


@pytest.fixture(autouse=True)
def a_small_forest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crossfit, "TREES", 20)


@pytest.fixture
def tables(tmp_path: Path) -> list[str]:
    """Gold and unlabeled rows as a command names them."""
    gold = write(tmp_path / "v.parquet", GOLD)
    rest = write(tmp_path / "u.parquet", {name: values for name, values in REST.items() if name != "label"})
    return ["--validation", str(gold), "--unlabeled", str(rest)]


def best(tables: list[str], output: Path, *more: object) -> Any:
    """The table that `weigh --method best` writes."""
    assert cli.main(["weigh", "--method", "best", *tables, "--output", str(output), *map(str, more)]) == 0
    return pq.read_table(output)


def matrix(found: Any) -> np.ndarray:
    column = found["targets"].combine_chunks()
    return column.flatten().to_numpy().reshape(len(column), -1)


def expected(gold: dict[str, np.ndarray] = GOLD, rest: dict[str, np.ndarray] = REST) -> np.ndarray:
    """The targets (n, K) that the arrays themselves lead to, with a second LLM."""
    from wdistill.weights.evidence import Evidence

    evidence = Evidence(gold["label"], gold["teacher"], gold["student"], rest["teacher"], rest["student"])
    case = Context(evidence, {"llm": AuxiliaryPredictions(gold["llm"], rest["llm"])})
    return correct_targets(case).targets.of(case.unlabeled)


# targets ------------------------------------------------------------------------------------------------------------


def test_targets_are_those_of_the_arrays(tables: list[str], tmp_path: Path) -> None:
    found = best(tables, tmp_path / "w.parquet", "--opinions", "llm")
    assert found.column_names == ["id", "weight", "targets"]
    assert found["id"].to_pylist() == REST["id"].tolist() and set(found["weight"].to_pylist()) == {1.0}
    targets = matrix(found)
    assert targets.dtype == np.float32 and np.abs(targets.sum(axis=1) - 1).max() < 1e-5 and targets.min() >= 0
    assert np.abs(targets - expected()).max() < 1e-6
    right, before = (np.mean(each.argmax(axis=1) == REST["label"]) for each in (targets, REST["teacher"]))
    assert right > before + 0.1
    record = read_record(tmp_path / "w.parquet")
    assert record is not None and record["method"] == "best" and "their correction by student, llm" in record["why"]
    assert (
        set(record["fitted"]["posterior"]["slopes"]) == {"teacher", "student", "llm"} and record["prospect"]["gain"] > 0.05
    )
    assert record["changed"] == np.sum(targets.argmax(axis=1) != REST["teacher"].argmax(axis=1))
    assert not (tmp_path / "w.parquet.parts").exists()


@pytest.mark.parametrize("suffix", ["csv", "npz"])
def test_other_kinds_of_files_hold_the_same(tables: list[str], tmp_path: Path, suffix: str) -> None:
    targets = matrix(best(tables, tmp_path / "w.parquet", "--opinions", "llm"))
    output = tmp_path / f"w.{suffix}"
    command = ["weigh", "--method", "best", *tables, "--opinions", "llm", "--output", str(output)]
    assert cli.main(command) == 0
    if suffix == "npz":
        with np.load(output) as file:
            assert np.array_equal(file["targets"], targets) and (file["id"] == REST["id"]).all()
    else:
        with output.open() as lines:
            rows = list(csv.DictReader(lines))
        assert list(rows[0]) == ["id", "weight", "targets_0", "targets_1", "targets_2"]
        read = np.array([[float(row[f"targets_{c}"]) for c in range(K)] for row in rows], np.float32)
        assert np.array_equal(read, targets)


def test_separate_tables_in_any_order_are_joined_by_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "STRETCH", 64)
    monkeypatch.setattr("wdistill.tables.rows.ENTRIES", 256 * K)  # more than one chunk
    rng, given = np.random.default_rng(0), []
    for option, table in (("--validation", GOLD), ("--unlabeled", REST)):
        for name, own in (("a", ("id", "label", "teacher")), ("b", ("id", "student")), ("c", ("id", "llm"))):
            rows = rng.permutation(len(table["id"])) if name != "a" else np.arange(len(table["id"]))
            part = take(table, rows, *(each for each in own if option == "--validation" or each != "label"))
            given += [option, str(write(tmp_path / f"{option[2]}{name}.parquet", part))]
    found = best(given, tmp_path / "w.parquet", "--opinions", "llm")
    assert found["id"].to_pylist() == REST["id"].tolist()
    assert np.abs(matrix(found) - expected()).max() < 1e-6
    write(tmp_path / "uc.parquet", take(REST, np.arange(5, 400), "id", "llm"))
    assert cli.main(["weigh", "--method", "best", *given, "--opinions", "llm", "--output", str(tmp_path / "x.parquet")]) == 2
    part = best(given, tmp_path / "y.parquet", "--opinions", "llm", "--allow-subset")
    assert part["id"].to_pylist() == REST["id"].tolist()[5:]
    assert np.abs(matrix(part) - expected()[5:]).max() < 1e-6


def test_logits_text_and_hard_targets(tables: list[str], tmp_path: Path) -> None:
    soft = matrix(best(tables, tmp_path / "w.parquet", "--opinions", "llm"))
    hard = matrix(best(tables, tmp_path / "h.parquet", "--opinions", "llm", "--targets", "hard"))
    assert np.array_equal(hard, one_hot(soft.argmax(axis=1), K))
    sides = ("teacher", "student", "llm")
    v, u = ({**t, **{side: np.log(t[side]) + 2 for side in sides}} for t in (GOLD, REST))
    given = ["--validation", str(write(tmp_path / "v.npz", v)), "--unlabeled", str(write(tmp_path / "u.npz", u))]
    assert np.abs(matrix(best(given, tmp_path / "l.parquet", "--opinions", "llm", "--kind", "logits")) - soft).max() < 1e-4
    mixed = ["--validation", tables[1], "--unlabeled", str(write(tmp_path / "u.csv", {**REST, "id": REST["id"]}))]
    assert np.abs(matrix(best(mixed, tmp_path / "t.parquet", "--opinions", "llm")) - soft).max() < 1e-4
    seen = experts.predict_sample(
        experts.open_experts(Paths([mixed[1]], [mixed[3]]), Options(method="best"))
    ).context.evidence
    assert debiased(seen).shape == (400,)  # text is as exact as it can be, beside gold that is not text


@pytest.mark.slow
def test_a_forest_gives_a_second_opinion(tables: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labeled = write(tmp_path / "l.parquet", take(LABELED, np.arange(100), "id", "label", "x"))
    alone = matrix(best(tables, tmp_path / "a.parquet", "--inputs", "x"))
    both = matrix(best(tables, tmp_path / "b.parquet", "--inputs", "x", "--labeled", labeled))
    right, more, before = (np.mean(each.argmax(axis=1) == REST["label"]) for each in (alone, both, REST["teacher"]))
    assert right > before + 0.05 and more > before + 0.05 and not np.array_equal(alone, both)
    record = read_record(tmp_path / "b.parquet")
    assert record is not None and list(record["fitted"]["posterior"]["slopes"]) == ["teacher", "student", "forest"]
    assert cli.main(["inspect", str(tmp_path / "b.parquet")]) == 0
    assert "their correction by student, forest" in " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_a_forest_does_not_remember_the_gold_rows_it_speaks_of() -> None:
    """Labels that nothing tells: a forest in sample knows them all, out of fold it guesses."""
    rng = np.random.default_rng(0)
    inputs, labels = rng.normal(size=(200, 4)), rng.integers(0, K, 200)
    assert np.mean(crossfit.fit_forest(inputs, labels, K)(inputs).argmax(axis=1) == labels) > 0.95
    said = crossfit.fit_fold_forests((inputs[:0], labels[:0]), (inputs, labels), folds_of(labels), K)(inputs, slice(None))
    assert said.shape == (200, K) and np.mean(said.argmax(axis=1) == labels) < 0.5
    seldom = crossfit.fit_forest(inputs, np.where(labels == 1, 2, labels), K)(inputs)
    assert not seldom[:, 1].any() and np.allclose(seldom.sum(axis=1), 1)  # a class it has not seen


def test_any_order_of_the_gold_rows_leads_to_the_same_bits(tables: list[str], tmp_path: Path) -> None:
    experts = ("--opinions", "llm", "--inputs", "x")
    best(tables, tmp_path / "a.parquet", *experts)
    write(tmp_path / "v.parquet", take(GOLD, np.random.default_rng(0).permutation(150)))
    best(tables, tmp_path / "b.parquet", *experts)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_what_puts_gold_in_doubt_is_a_warning(tables: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "v.parquet", take(GOLD, np.flatnonzero(GOLD["label"] != 1)))
    write(
        tmp_path / "u.parquet", {**REST, "id": np.where(np.arange(400) < 1, GOLD["id"][GOLD["label"] != 1][0], REST["id"])}
    )
    best(tables, tmp_path / "w.parquet")
    said = capsys.readouterr().err
    assert "warning: 1 of 3 classes have no gold row: 1." in said and "gold rows are among the unlabeled rows too" in said
    record = read_record(tmp_path / "w.parquet")
    assert record is not None and any("no gold row" in text for text in record["warnings"])
    assert cli.main(["advise", *tables]) == 0
    verdict = capsys.readouterr().out.splitlines()[0]
    assert verdict.startswith("Verdict: ") and verdict.endswith(
        "; but look first, for gold may not be what it seems; of classes without gold rows nothing is known"
    )


def test_row_numbers_of_gold_are_no_ids_of_unlabeled_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arrays = [tmp_path / f"{name}.npy" for name in ("label", "teacher", "student")]
    for path in arrays:
        np.save(path, GOLD[path.stem])
    rest = write(tmp_path / "u.parquet", {**REST, "id": np.arange(400)})
    gold = [word for path in arrays for word in ("--validation", str(path))]
    assert cli.main(["advise", *gold, "--unlabeled", str(rest), "--plan", str(tmp_path / "n.csv")]) == 0
    assert "are among the unlabeled rows" not in capsys.readouterr().out
    with (tmp_path / "n.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 400  # none is left out as known


def test_the_teachers_recalibrated_targets_where_nobody_knows_better(tmp_path: Path) -> None:
    """A student that says the same of all rows adds nothing: the targets are those that the teacher alone leads to."""
    v, u = ({**t, "student": np.full((len(t["id"]), K), 1 / K, np.float32)} for t in (GOLD, REST))
    given = ["--validation", str(write(tmp_path / "v.parquet", v)), "--unlabeled", str(write(tmp_path / "u.parquet", u))]
    found = best(given, tmp_path / "w.parquet")
    record = read_record(tmp_path / "w.parquet")
    assert record is not None and record["why"].startswith("the teacher's predictions, recalibrated on 150 gold rows")
    alone = best(given, tmp_path / "a.parquet", "--targets-from", "teacher-recalibrated")
    assert np.abs(matrix(found) - matrix(alone)).max() < 1e-7
    own = best(given, tmp_path / "o.parquet", "--targets-from", "teacher")
    assert np.abs(matrix(own) - REST["teacher"]).max() < 1e-7


def test_targets_that_nobody_can_make_are_refused(
    tables: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["weigh", "--method", "best", *tables, "--output", str(tmp_path / "w.parquet"), "--targets-from", "retrained"]
    assert cli.main(given) == 2
    said = capsys.readouterr().err
    assert "no such targets" in said and "teacher-recalibrated" in said and not (tmp_path / "w.parquet").exists()


@pytest.mark.proof
@pytest.mark.kill
def test_a_killed_job_goes_on_from_its_finished_parts(tmp_path: Path) -> None:
    for i, rows in enumerate(np.array_split(np.arange(400), 5)):
        write(tmp_path / "u" / f"{i}.parquet", take(REST, rows, "id", "teacher", "student", "llm", "x"))
    gold = write(tmp_path / "v.parquet", GOLD)
    tables = ["--validation", str(gold), "--unlabeled", str(tmp_path / "u")]
    command = ["weigh", "--method", "best", *tables, "--opinions", "llm", "--output", str(tmp_path / "w.parquet")]
    script = SLOW.format(action="os.kill(os.getpid(), signal.SIGKILL)")
    killed = subprocess.run([sys.executable, "-c", script, "part-000003", *command], capture_output=True)
    assert killed.returncode == -signal.SIGKILL and not (tmp_path / "w.parquet").exists()
    assert len(list((tmp_path / "w.parquet.parts").glob("part-*.parquet"))) == 3
    done = subprocess.run([sys.executable, "-c", SLOW.format(action="pass"), "", *command], capture_output=True, text=True)
    assert done.returncode == 0 and "finished files of an earlier run" in done.stderr, done.stderr
    assert not (tmp_path / "w.parquet.parts").exists()
    fresh = best(tables, tmp_path / "fresh.parquet", "--opinions", "llm")
    assert pq.read_table(tmp_path / "w.parquet").equals(fresh) and np.abs(matrix(fresh) - expected()).max() < 1e-6
    records = [read_record(tmp_path / f"{name}.parquet") for name in ("w", "fresh")]
    assert records[0] == records[1]


@pytest.mark.kill
@pytest.mark.proof
def test_killed_at_any_operation_it_ends_with_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Experts in two tables, one of them in another order, and three files: joining, parts and output are all cut short."""
    monkeypatch.setattr(job, "PART", 1)
    for i, rows in enumerate(np.array_split(np.arange(400), 3)):
        write(tmp_path / "u" / f"{i}.parquet", take(REST, rows, "id", "teacher", "student"))
    other = write(tmp_path / "o.parquet", take(REST, np.arange(400)[::-1], "id", "llm"))
    gold = write(tmp_path / "v.parquet", GOLD)
    tables = ["--validation", str(gold), "--unlabeled", str(tmp_path / "u"), "--unlabeled", str(other)]

    def run(folder: Path) -> None:
        given = [*tables, "--opinions", "llm", "--output", str(folder / "w.parquet")]
        assert cli.main(["weigh", "--method", "best", *given]) == 0

    counted = tmp_path / "count"

    def count(*_: object) -> None:
        with counted.open("a") as file:
            file.write(".")

    (tmp_path / "whole").mkdir()
    assert child(tmp_path / "whole", count, run) == 0
    wanted, points = (tmp_path / "whole" / "w.parquet").read_bytes(), len(counted.read_text())
    assert points > 30
    for at in range(1, points + 1, 21):
        folder = tmp_path / f"at-{at}"
        folder.mkdir()
        assert child(folder, killer(at), run) == -signal.SIGKILL
        assert child(folder, lambda *_: None, run) == 0
        assert [path.name for path in folder.iterdir()] == ["w.parquet"]
        assert (folder / "w.parquet").read_bytes() == wanted, at


def test_the_papers_method_is_the_default_and_its_record_knows_no_other(tables: list[str], tmp_path: Path) -> None:
    """Columns, record and options are those that there were before there was another method."""
    for name, more in (("a", []), ("b", ["--method", "paper"])):
        assert cli.main(["weigh", *tables, "--output", str(tmp_path / f"{name}.parquet"), *more]) == 0
    first, second = ((tmp_path / f"{name}.parquet").read_bytes() for name in ("a", "b"))
    assert hashlib.sha256(first).digest() == hashlib.sha256(second).digest()
    assert pq.read_table(tmp_path / "a.parquet").column_names == ["id", "weight", "error", "distortion"]
    record = read_record(tmp_path / "a.parquet")
    assert record is not None
    assert " ".join(record) == (
        "wdistill options validation_rows classes unlabeled_files rows clipped tied histogram warnings state sha256"
    )
    assert " ".join(record["options"]) == (
        "rule kind classes truth soft_labels renormalize allow_subset escape_formulas "
        "confidence targets estimate neighbors threshold"
    )


# the user's metric --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["macro-f1", "f1:2", "log-loss", "cost:FILE"])
def test_the_reason_has_the_gain_by_the_users_metric_and_the_targets_are_the_same(
    tables: list[str], tmp_path: Path, metric: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "costs.csv").write_text("0,1,1\n1,0,1\n9,9,0\n")
    named = metric.replace("FILE", str(tmp_path / "costs.csv"))
    plain = best(tables, tmp_path / "plain.parquet", "--opinions", "llm")
    found = best(tables, tmp_path / "named.parquet", "--opinions", "llm", "--metric", named)
    assert found.replace_schema_metadata().equals(plain.replace_schema_metadata())
    before, after = (read_record(tmp_path / name) for name in ("plain.parquet", "named.parquet"))
    assert before is not None and after is not None
    assert "metric" not in before["options"] and after["options"]["metric"] == written_out(named)
    opened = experts.open_experts(Paths([tables[1]], [tables[3]]), Options(method="best", opinions=("llm",)))
    context = experts.predict_sample(opened).context
    gain = judge(metric_of(named, "012"), context, fit_targets(context), None).gain
    told = f"; by {metric.removesuffix(':FILE')} a gain of {gain.value:+.3f}"
    assert after["why"] == f"{before['why']}{told} ({gain.low:+.3f} to {gain.high:+.3f}) on gold, out of fold"
    assert gain.low > 0
    capsys.readouterr()
    assert cli.main(["advise", *tables, "--opinions", "llm", "--metric", named, "--details"]) == 0
    assert told in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("engine", [[], ["--engine", "local"]])
def test_other_costs_in_the_same_file_are_another_job(tables: list[str], tmp_path: Path, engine: list[str]) -> None:
    """The record has the costs, not the path: equal costs give equal bytes, others are not taken for those before."""
    output = "w" if engine else "w.parquet"
    for folder, costs in (("a", "0,1,1\n1,0,1\n9,9,0\n"), ("b", "0,1,1\n1,0,1\n9,9,0\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "costs.csv").write_text(costs)
        flags = ["--metric", f"cost:{tmp_path / folder / 'costs.csv'}", *engine]
        assert cli.main(["weigh", "--method", "best", *tables, *flags, "--output", str(tmp_path / folder / output)]) == 0
    made = [sorted(p for p in (tmp_path / folder).rglob("*") if p.is_file() and p.suffix != ".csv") for folder in "ab"]
    assert [p.read_bytes() for p in made[0]] == [p.read_bytes() for p in made[1]] and made[0]
    (tmp_path / "b" / "costs.csv").write_text("0,1,1\n1,0,1\n2,2,0\n")
    again = cli.main(["weigh", "--method", "best", *tables, *flags, "--output", str(tmp_path / "b" / output)])
    assert again == (2 if engine else 0), "a finished folder is of other options; a file is made anew"


# what is refused ----------------------------------------------------------------------------------------------------

CONFLICTS = {
    "opinions of the paper": (["--opinions", "llm"], "needs --method best"),
    "inputs of the paper": (["--method", "paper", "--inputs", "x"], "needs --method best"),
    "a metric of the paper": (["--metric", "macro-f1"], "needs --method best"),
    "no such metric": (["--method", "best", "--metric", "f2"], "unknown metric"),
    "a metric of no class": (["--method", "best", "--metric", "f1:7"], "of which class"),
    "no such file of costs": (["--method", "best", "--metric", "cost:none.csv"], "the costs cannot be read"),
    "a rule": (["--method", "best", "--rule", "fidelity"], "needs --method paper"),
    "neighbours": (["--method", "best", "--neighbors", "3"], "needs --method paper"),
    "labeled rows without inputs": (["--method", "best", "--labeled", "l.parquet"], "needs --inputs"),
    "an opinion that is the student's": (["--method", "best", "--opinions", "student"], "something else"),
    "an opinion twice": (["--method", "best", "--opinions", "llm,llm"], "found: 'llm'"),
    "inputs that are labels": (["--method", "best", "--inputs", "label"], "something else"),
    "no such method": (["--method", "bets"], "invalid choice"),
    "no such opinion": (["--method", "best", "--opinions", "lmm"], "rename 'llm'"),
    "opinions of another width": (["--method", "best", "--opinions", "x"], "4"),
    "renormalized logits": (["--method", "best", "--kind", "logits", "--renormalize"], "no meaning with --kind logits"),
}


@pytest.mark.parametrize("case", CONFLICTS)
def test_options_that_make_no_sense(
    tables: list[str], tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags, word = CONFLICTS[case]
    assert word in fail(capsys, "weigh", *tables, "--output", tmp_path / "w.parquet", *flags)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["u.parquet", "v.parquet"]


def odd(values: np.ndarray, row: int, content: object) -> np.ndarray:
    changed = values.copy()
    changed[row] = content
    return changed


BAD = {
    "a sum": ("u", {"llm": odd(REST["llm"], 7, [0.5, 0.5, 0.5])}, ["do not sum to 1", "u.parquet", "'llm'", "1007"]),
    "gold that is no number": ("v", {"llm": odd(GOLD["llm"], 3, np.nan)}, ["NaN", "--validation", "'llm'"]),
    "inputs that are no number": ("u", {"x": odd(REST["x"], 9, np.inf)}, ["inputs", "'x'", "1009"]),
    "shorter inputs": ("u", {"x": REST["x"][:, :3]}, ["inputs of another length", "3 numbers", "4, as in"]),
    "an id twice": ("u", {"id": odd(REST["id"], 5, 1004)}, ["occur more than once", "u.parquet", "1004"]),
    "nine gold rows": ("v", {name: values[:9] for name, values in GOLD.items()}, ["too few gold rows", "9 rows"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("command", ["weigh", "advise"])
@pytest.mark.parametrize("case", BAD)
def test_bad_tables_are_one_clear_error(
    tables: list[str], tmp_path: Path, case: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    which, change, words = BAD[case]
    write(tmp_path / f"{which}.parquet", {**(GOLD if which == "v" else REST), **change})
    more = ["--method", "best", "--output", tmp_path / "w.parquet"] if command == "weigh" else []
    message = fail(capsys, command, *tables, "--opinions", "llm", "--inputs", "x", *more)
    assert all(word in message for word in words) and "to do: " in message, message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["u.parquet", "v.parquet"]


def test_without_scikit_learn_the_way_to_it_is_named(
    tables: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = builtins.__import__

    def without(name: str, *more: Any, **others: Any) -> Any:
        if name.split(".")[0] == "sklearn":
            raise ImportError(name)
        return real(name, *more, **others)

    monkeypatch.setattr(builtins, "__import__", without)
    for command in (["advise"], ["weigh", "--method", "best", "--inputs", "x", "--output", tmp_path / "w.parquet"]):
        assert "pip install 'wdistill[methods]'" in fail(capsys, *command, *tables)
    assert cli.main(["weigh", "--method", "best", *tables, "--output", str(tmp_path / "w.parquet")]) == 0  # it needs none


# advice -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_advice_is_the_verdict_then_few_reasons_and_all_tables_on_demand(
    tables: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    plan = tmp_path / "next.csv"
    assert cli.main(["advise", *tables, "--opinions", "llm"]) == 0
    without = capsys.readouterr()
    assert without.out.startswith("Verdict: correct the targets: about +") and "pilot" not in without.err
    words = ["advise", *tables, "--opinions", "llm", "--inputs", "x"]
    assert cli.main(words) == 0
    found = capsys.readouterr()
    assert "two linear pilot students will be trained on 4 inputs, one regression each, of 3 classes" in found.err
    assert "learns 150 gold rows and 300 of the unlabeled rows, and predicts 100 others" in found.err
    short = found.out.splitlines()
    assert short[0].startswith("Verdict: ") and max(map(len, short)) <= 80 and "pilot students" in short[4]
    assert short[1] == "150 gold rows, 400 unlabeled rows; intervals are 95 %."
    assert len(short) <= 8 and short[-1] == "All tables: --details"
    assert cli.main([*words, "--plan", str(plan), "--details"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[: len(short) - 1] == short[:-1] and lines[len(short) - 1].startswith("Rows to label next: ")
    text = "\n".join(lines[len(short) :])
    assert "150 gold rows, 400 unlabeled rows. In brackets: 95 % intervals." in text and "All tables" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert "llm alone" in text and "forest alone" in text and "corrected targets" in text and "Look first" not in text
    accuracy = np.mean(GOLD["teacher"].argmax(axis=1) == GOLD["label"])
    assert f"{100 * accuracy:.1f} % (" in text
    with plan.open() as file:
        rows = list(csv.DictReader(file))
    assert {row["use"] for row in rows} == {"judge", "teach"}
    assert len({row["id"] for row in rows}) == len(rows) == 400 and int(rows[0]["id"]) in set(REST["id"].tolist())


@pytest.mark.slow
def test_repeated_gold_rows_are_found_by_id_and_by_inputs(
    tables: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def looked(*more: str) -> str:
        assert cli.main(["advise", *tables, *more]) == 0
        return " ".join(capsys.readouterr().out.split())

    write(tmp_path / "u.parquet", {**REST, "id": np.where(np.arange(400) < 6, np.arange(400), REST["id"])})
    assert "Look first: 6 of 150 gold rows are among the unlabeled rows too, by their ids" in looked()
    inputs = REST["x"].copy()
    inputs[:4] = GOLD["x"][10:14]
    write(tmp_path / "u.parquet", {**REST, "x": inputs})
    assert "Look first: 4 of 150 gold rows are among the unlabeled rows too, by their inputs" in looked("--inputs", "x")
    for name, table in (("v", GOLD), ("u", REST)):  # row numbers are no ids
        np.savez(tmp_path / f"{name}.npz", **{key: values for key, values in table.items() if key != "id"})
    tables[1::2] = [str(tmp_path / "v.npz"), str(tmp_path / "u.npz")]
    assert "Look first" not in looked()


@pytest.mark.slow
@pytest.mark.parametrize("by", ["ids", "inputs"])
def test_a_forest_does_not_learn_from_gold_rows_among_the_labeled(
    tables: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], by: str
) -> None:
    """The planted leak: inputs that tell nothing, and all gold rows in the labeled table."""
    rng = np.random.default_rng(5)
    noise = {name: rng.normal(size=(rows, 4)).astype(np.float32) for name, rows in (("v", 150), ("u", 400))}
    write(tmp_path / "v.parquet", {**GOLD, "x": noise["v"]})
    write(tmp_path / "u.parquet", {**REST, "x": noise["u"]})
    again = {"id": GOLD["id"] if by == "ids" else GOLD["id"] + 9000, "label": GOLD["label"], "x": noise["v"]}
    if by == "ids":
        again["x"] = noise["v"] + np.float32(1e-6)  # not the same bits
    labeled = write(tmp_path / "l.parquet", {name: np.concatenate([LABELED[name], again[name]]) for name in again})
    assert cli.main(["advise", *tables, "--inputs", "x", "--labeled", str(labeled), "--details"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Look first: 150 of 150 gold rows are among the labeled rows too" in text
    alone = float(text.partition("forest alone │ ")[2].split()[0])
    assert alone < 55  # of three classes


def test_a_sample_is_drawn_at_random_and_says_so(
    tables: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experts, "SAMPLE", 100)
    assert cli.main(["advise", *tables]) == 0
    assert "400 unlabeled rows, of which 100 drawn at random were read" in " ".join(capsys.readouterr().out.split())
    drawn = experts.predict_sample(experts.open_experts(Paths([tables[1]], [tables[3]]), Options(method="best")))
    rows = np.array(drawn.ids.to_pylist()) - 1000
    assert len(rows) == 100 and drawn.rows == 400 and (np.diff(rows) > 0).all() and rows.max() > 300
    assert np.array_equal(drawn.context.evidence.teacher, REST["teacher"][rows])


@pytest.mark.slow
def test_rows_left_out_and_scaled_are_told(tables: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = {"id": REST["id"][:380], "llm": 1.1 * REST["llm"][:380]}
    more = ["--unlabeled", str(write(tmp_path / "o.parquet", other)), "--opinions", "llm", "--allow-subset", "--renormalize"]
    write(tmp_path / "u.parquet", {name: values for name, values in REST.items() if name != "llm"})
    assert cli.main(["advise", *tables, *more]) == 0
    found = capsys.readouterr()
    assert found.out.splitlines()[1].startswith("150 gold rows, 400 unlabeled rows; ")
    assert "warning: 20 unlabeled rows are not in all tables, and are left out" in found.err
    assert "column 'llm': rows were scaled to sum to 1; the largest correction is 0.1" in found.err


@pytest.mark.slow
def test_advice_says_what_best_would_do(tables: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best(tables, tmp_path / "w.parquet")
    capsys.readouterr()
    record = read_record(tmp_path / "w.parquet")
    assert cli.main(["advise", *tables, "--details"]) == 0
    assert record is not None
    assert f"would teach the gold rows as labels, and for the others {record['why']}." in " ".join(
        capsys.readouterr().out.split()
    )


@pytest.mark.slow
def test_nobody_plans_to_label_a_gold_row(tables: list[str], tmp_path: Path) -> None:
    write(tmp_path / "u.parquet", {**REST, "id": np.where(np.arange(400) < 150, np.arange(400), REST["id"])})
    assert cli.main(["advise", *tables, "--plan", str(tmp_path / "next.csv")]) == 0
    with (tmp_path / "next.csv").open() as file:
        planned = [int(row["id"]) for row in csv.DictReader(file)]
    assert sorted(planned) == list(range(1150, 1400))  # the gold rows have ids below 150


def test_a_plan_never_replaces_an_input(tables: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "among the inputs" in fail(capsys, "advise", *tables, "--plan", tables[1])
    assert "--plan" in fail(capsys, "advise", *tables, "--plan", tmp_path / "next.txt")
    assert "--plan" in fail(capsys, "advise", *tables, "--plan", tmp_path / "nowhere" / "next.csv")


@pytest.mark.slow
def test_the_tables_of_the_example_are_corrected_and_advised_on_as_the_document_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.undo()  # the forest as it is
    monkeypatch.setattr(sys, "argv", ["tables.py", str(tmp_path / "digits")])
    runpy.run_path(str(Path(__file__).parents[1] / "examples" / "tables.py"), run_name="__main__")
    given = ["--validation", f"{tmp_path}/digits/gold.parquet", "--unlabeled", f"{tmp_path}/digits/unlabeled.parquet"]
    found = best(given, tmp_path / "w.parquet", "--inputs", "pixels", "--labeled", tmp_path / "digits" / "labeled.parquet")
    truth = load_digits().target[found["id"].to_numpy()]
    said = np.stack(pq.read_table(tmp_path / "digits" / "unlabeled.parquet")["teacher"].to_numpy())
    assert np.mean(matrix(found).argmax(axis=1) == truth) > np.mean(said.argmax(axis=1) == truth) + 0.03
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[1] / "docs" / "advise.md").read_text()
    (command,) = re.findall(r"^wdistill (advise .*?)\n```", text, re.M | re.S)
    capsys.readouterr()
    for more in ([], ["--details"]):
        assert cli.main([*command.replace("\\\n", "").split(), *more]) == 0
        shown = "\n".join(row.rstrip() for row in capsys.readouterr().out.splitlines())
        assert f"```text\n{shown}\n```" in text


@pytest.mark.slow
def test_tables_and_modules_have_the_same_forest(tmp_path: Path) -> None:
    """300 columns, of which four tell the class: forests read them all, whichever way the rows come."""
    random, wide = np.random.default_rng(5), {}
    for name, table in (("labeled", LABELED), ("validation", GOLD), ("unlabeled", REST)):
        noise = random.normal(size=(len(table["id"]), 296)).astype(np.float32)
        wide[name] = {**table, "x": np.concatenate([2 * table["x"], noise], axis=1)}
    paths = {name: [str(write(tmp_path / f"{name}.parquet", table))] for name, table in wide.items()}
    from_tables = experts.open_experts(Paths(**paths), Options(method="best", inputs="x"))
    splits = {
        name: Split(name, InMemory(torch.from_numpy(table["x"])), torch.from_numpy(table["label"]), table["id"])
        for name, table in wide.items()
    }
    folds = folds_of(GOLD["label"])
    predict_part = by_forests(splits["labeled"], splits["validation"], folds, K, seed=0)
    gold, unlabeled = (
        crossfit.normalized_exp(predict_part(splits[name], slice(0, len(splits[name]))))
        for name in ("validation", "unlabeled")
    )
    assert from_tables.forest is not None
    assert np.allclose(gold, from_tables.auxiliary["forest"], atol=1e-6)
    assert np.allclose(unlabeled, from_tables.forest(wide["unlabeled"]["x"]), atol=1e-6)
    assert np.mean(unlabeled.argmax(axis=1) == REST["label"]) > 0.55  # chance is a third
