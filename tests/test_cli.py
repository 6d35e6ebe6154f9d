"""`wdistill weigh` and `wdistill inspect` on real files, as a user calls them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import wdistill
from tests.tables import columns, take, write
from wdistill import cli
from wdistill.tables import join
from wdistill.weights.evidence import Rows
from wdistill.weights.rule import Weighed
from wdistill.weights.rules import RULES

VALIDATION, UNLABELED = columns(1, 200), columns(2, 500, first=1000)


def run(*arguments: object, ok: bool = True, **settings: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "wdistill", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "100", **settings},
    )
    assert "Traceback" not in done.stderr
    if ok:
        assert done.returncode == 0, done.stderr
    return done


def fail(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 2) -> str:
    """Run in this process, expect an error, and return its message."""
    try:
        found = cli.main([str(each) for each in arguments])
    except SystemExit as stop:
        found = stop.code
    message = capsys.readouterr().err
    assert found == code, message
    assert message.startswith("error: ") or "\nerror: " in message
    return message


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path]:
    return write(tmp_path / "v.parquet", VALIDATION), write(tmp_path / "u.parquet", UNLABELED)


def weighed(validation: Path, unlabeled: Path, output: Path, *more: object) -> pa.Table:
    assert (
        cli.main(["weigh", *map(str, ("--validation", validation, "--unlabeled", unlabeled, "--output", output, *more))])
        == 0
    )
    return pq.read_table(output)


def expected_weights(**options: object) -> np.ndarray:
    evidence = wdistill.Evidence(
        VALIDATION["label"], VALIDATION["teacher"], VALIDATION["student"], UNLABELED["teacher"], UNLABELED["student"]
    )
    return wdistill.debiased(evidence, **options).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquet", "npz", "csv", "jsonl"])
def test_every_format_gives_the_weights_of_the_array_api(tmp_path: Path, kind: str) -> None:
    validation, unlabeled = write(tmp_path / f"v.{kind}", VALIDATION), write(tmp_path / f"u.{kind}", UNLABELED)
    run("weigh", "--validation", validation, "--unlabeled", unlabeled, "--output", tmp_path / "w.parquet")
    found = pq.read_table(tmp_path / "w.parquet")
    assert found.column_names == ["id", "weight", "error", "distortion"]
    assert [str(value) for value in found["id"].to_pylist()] == [str(value) for value in UNLABELED["id"]]
    if kind in ("parquet", "npz"):
        assert (found["weight"].to_numpy() == expected_weights()).all()
    else:  # text brings float32 predictions back as float64
        assert np.abs(found["weight"].to_numpy() - expected_weights()).max() < 1e-6
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([validation.name, unlabeled.name, "w.parquet"])


def test_bare_arrays(tmp_path: Path) -> None:
    for name, table in (("v", VALIDATION), ("u", UNLABELED)):
        for column in ("label", "teacher", "student"):
            np.save(tmp_path / f"{name}-{column}.npy", table[column])
    given = [
        *(f for c in ("label", "teacher", "student") for f in ("--validation", f"{c}={tmp_path}/v-{c}.npy")),
        *(f for c in ("teacher", "student") for f in ("--unlabeled", f"{c}={tmp_path}/u-{c}.npy")),
    ]
    assert cli.main(["weigh", *given, "--output", str(tmp_path / "w.npz")]) == 0
    found = np.load(tmp_path / "w.npz", allow_pickle=False)
    assert (found["weight"] == expected_weights()).all() and (found["id"] == np.arange(500)).all()


@pytest.mark.parametrize("text_ids", [False, True])
def test_separate_tables_in_any_order_are_joined_by_id(
    tmp_path: Path, text_ids: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join, "STRETCH", 64)
    rng, validation, unlabeled = np.random.default_rng(0), dict(VALIDATION), dict(UNLABELED)
    if text_ids:
        validation["id"], unlabeled["id"] = (np.array([f"row {i}\n" for i in t["id"]]) for t in (validation, unlabeled))
    parts = []
    for name, table in (("v", validation), ("u", unlabeled)):
        for side, columns_ in (("t", ("id", "label", "teacher")), ("s", ("id", "student"))):
            rows = np.arange(len(table["id"])) if side == "t" else rng.permutation(len(table["id"]))
            parts.append(write(tmp_path / f"{name}{side}.parquet", take(table, rows, *columns_)))
    given = [
        word
        for option, path in zip(["--validation"] * 2 + ["--unlabeled"] * 2, parts, strict=True)
        for word in (option, str(path))
    ]
    assert cli.main(["weigh", *given, "--output", str(tmp_path / "w.parquet")]) == 0
    found = pq.read_table(tmp_path / "w.parquet")
    assert found["id"].to_pylist() == unlabeled["id"].tolist()
    assert (found["weight"].to_numpy() == expected_weights()).all()


@pytest.mark.slow
def test_shards_their_number_and_chunking_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    validation = write(tmp_path / "v.parquet", VALIDATION)
    order = np.arange(500)
    for count in (1, 3, 7):
        for i, rows in enumerate(np.array_split(order, count)):
            write(tmp_path / f"shards{count}" / f"{i}.parquet", take(UNLABELED, rows))
    monkeypatch.setattr("wdistill.tables.rows.ENTRIES", 2000)
    monkeypatch.setattr("wdistill.tables.job.PART", 100)
    outputs = [weighed(validation, tmp_path / f"shards{count}", tmp_path / f"w{count}.parquet") for count in (1, 3, 7)]
    assert outputs[0].equals(outputs[1]) and outputs[0].equals(outputs[2])
    assert (outputs[0]["weight"].to_numpy() == expected_weights()).all()


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        (["--confidence", "entropy"], {"confidence": wdistill.entropy}),
        (["--targets", "hard", "--estimate", "ratio"], {"targets": "hard", "estimate": "ratio"}),
        (["--estimate", "conditional", "--neighbors", "5"], {"estimate": "conditional", "neighbors": 5}),
    ],
)
def test_options_reach_the_rule(
    tables: tuple[Path, Path], tmp_path: Path, flags: list[str], options: dict[str, object]
) -> None:
    found = weighed(*tables, tmp_path / "w.parquet", *flags)
    assert (found["weight"].to_numpy() == expected_weights(**options)).all()


def test_logits_and_logprobs(tmp_path: Path) -> None:
    whole = {}
    exact = [
        {
            **t,
            **{
                s: t[s].astype(np.float64) / t[s].astype(np.float64).sum(axis=1, keepdims=True)
                for s in ("teacher", "student")
            },
        }
        for t in (VALIDATION, UNLABELED)
    ]
    for kind, change in (("probabilities", lambda p: p), ("logprobs", np.log), ("logits", lambda p: np.log(p) + 3)):
        v, u = ({**t, **{side: change(t[side]) for side in ("teacher", "student")}} for t in exact)
        paths = write(tmp_path / f"v-{kind}.npz", v), write(tmp_path / f"u-{kind}.npz", u)
        whole[kind] = weighed(*paths, tmp_path / f"{kind}.parquet", "--kind", kind)["weight"].to_numpy()
    assert np.abs(whole["logits"] - whole["logprobs"]).max() < 1e-6
    assert np.mean(np.abs(whole["logits"] - whole["probabilities"]) > 1e-4) < 0.01


def test_rules_on_the_command_line(tmp_path: Path) -> None:
    validation = write(tmp_path / "v.parquet", VALIDATION)
    unlabeled = write(tmp_path / "u.parquet", {**UNLABELED, "real": UNLABELED["label"]})
    labeled = write(tmp_path / "l.parquet", take(columns(5, 50), np.arange(50), "id", "teacher"))
    right = UNLABELED["teacher"].argmax(axis=1) == UNLABELED["label"]
    oracle = weighed(validation, unlabeled, tmp_path / "o.parquet", "--rule", "oracle", "--truth", "real")
    assert (oracle["weight"].to_numpy() == right).all() and oracle["distortion"].null_count == 500
    kept = weighed(validation, unlabeled, tmp_path / "t.parquet", "--rule", "threshold", "--threshold", "0.5")
    assert (kept["weight"].to_numpy() == (wdistill.margin(UNLABELED["teacher"]) >= 0.5)).all()
    assert weighed(validation, unlabeled, tmp_path / "1.parquet", "--rule", "unweighted")["weight"].to_numpy().min() == 1
    both = weighed(validation, unlabeled, tmp_path / "c.parquet", "--rule", "debiased,fidelity", "--labeled", labeled)
    evidence = wdistill.Evidence(
        *(VALIDATION[name] for name in ("label", "teacher", "student")),
        UNLABELED["teacher"],
        UNLABELED["student"],
        labeled_teacher=pq_matrix(labeled),
    )
    assert (both["weight_fidelity"].to_numpy() == wdistill.fidelity(evidence).astype(np.float32)).all()
    product = wdistill.compose(wdistill.debiased, wdistill.fidelity)(evidence).astype(np.float32)
    assert (both["weight"].to_numpy() == product).all() and "weight_debiased" in both.column_names


@dataclass(frozen=True)
class Halved:
    name = "halved"

    def weigh_rows(self, rows: Rows) -> Weighed:
        return Weighed(rows.scan("teacher").margin / 2)


@wdistill.rule(needs=("teacher",))
def halved(evidence: wdistill.Evidence) -> Halved:
    return Halved()


def test_a_new_rule_is_one_entry_in_the_list_of_rules(
    tables: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RULES, "halved", halved)
    alone = take(UNLABELED, np.arange(500), "id", "teacher")  # no student: the rule does not need it
    output = tmp_path / "w.parquet"
    found = weighed(tables[0], write(tmp_path / "t.parquet", alone), output, "--rule", "halved")
    assert (found["weight"].to_numpy() == (wdistill.margin(UNLABELED["teacher"]) / 2).astype(np.float32)).all()
    common = ("weigh", "--validation", tables[0], "--unlabeled", tables[1], "--output", output, "--rule", "halved")
    assert "needs --rule debiased or threshold" in fail(capsys, *common, "--confidence", "entropy")
    assert "needs --rule debiased" in fail(capsys, *common, "--neighbors", "3")


def pq_matrix(path: Path) -> np.ndarray:
    column = pq.read_table(path)["teacher"].combine_chunks()
    return column.flatten().to_numpy().reshape(len(column), -1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ids", "ID", "idx", "row_id", ""])
def test_an_npz_without_ids_is_never_joined_by_position(
    name: str, tables: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gold = tmp_path / "v.npz"
    np.savez(gold, **{column: VALIDATION[column] for column in ("label", "teacher", "student")})
    shuffled = np.random.default_rng(0).permutation(500)
    ids = [{name: np.arange(500)}, {name: shuffled}] if name else [{}, {}]
    np.savez(tmp_path / "t.npz", **ids[0], teacher=UNLABELED["teacher"])
    np.savez(tmp_path / "s.npz", **ids[1], student=UNLABELED["student"][shuffled])
    joined = ("--unlabeled", tmp_path / "t.npz", "--unlabeled", tmp_path / "s.npz", "--output", tmp_path / "w.parquet")
    assert "there are no ids in this file" in fail(capsys, "weigh", "--validation", gold, *joined)
    alone = {**ids[0], "teacher": UNLABELED["teacher"], "student": UNLABELED["student"]}
    np.savez(tmp_path / "u.npz", **alone)
    given = ("--unlabeled", tmp_path / "u.npz", "--output", tmp_path / "w.parquet")
    assert "there are no ids in this file" in fail(capsys, "weigh", "--validation", tables[0], *given)  # gold has ids
    if name:
        assert "it is not clear whether these are the ids" in fail(capsys, "weigh", "--validation", gold, *given)
    else:
        run("weigh", "--validation", gold, *given)
    assert (tmp_path / "w.parquet").exists() == (not name)


def test_a_member_of_an_npz_that_is_no_array_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "u.npz", id=np.arange(500), teacher=UNLABELED["teacher"], student=UNLABELED["student"])
    content = (tmp_path / "u.npz").read_bytes()
    (tmp_path / "u.npz").write_bytes(content.replace(b"id.npy", b"id.npz"))
    given = ("--validation", tmp_path / "u.npz", "--unlabeled", tmp_path / "u.npz", "--output", tmp_path / "w.parquet")
    assert "a member 'id.npz'" in fail(capsys, "weigh", *given)


def test_options_of_the_other_method_are_refused_even_with_their_default(
    tables: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ("weigh", "--validation", tables[0], "--unlabeled", tables[1], "--output", tmp_path / "w.parquet")
    assert "needs --method paper" in fail(capsys, *common, "--method", "best", "--rule", "debiased")
    assert "needs --method best" in fail(capsys, *common, "--opinions", "none")


@pytest.mark.slow
def test_ids_that_look_like_formulas_are_escaped_on_request(
    tables: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = np.array([f"{'=+-@ax'[i % 6]}{i}" for i in range(500)])
    unlabeled, gold = {**UNLABELED, "id": ids}, {**VALIDATION, "id": np.arange(200).astype(str)}
    common = ("weigh", "--validation", write(tmp_path / "v.parquet", gold))
    common += ("--unlabeled", write(tmp_path / "u.parquet", unlabeled), "--escape-formulas")
    assert "needs --output FILE.csv" in fail(capsys, *common, "--output", tmp_path / "w.parquet")
    run(*common, "--output", tmp_path / "w.csv")
    found = [line.partition(",")[0].strip('"') for line in (tmp_path / "w.csv").read_text().splitlines()[1:]]
    assert found == [f"'{each}" if each[0] in "=+-@" else each for each in ids]


def test_gold_rows_in_the_pool_and_models_that_saw_them_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pool = {**UNLABELED, "id": np.r_[VALIDATION["id"][:7], UNLABELED["id"][7:]]}
    certain = np.eye(VALIDATION["student"].shape[1])[VALIDATION["label"]].astype(np.float32)
    gold = write(tmp_path / "v.parquet", {**VALIDATION, "student": certain})
    weighed(gold, write(tmp_path / "u.parquet", pool), tmp_path / "w.parquet")
    message = capsys.readouterr().err
    assert "7 of 200 gold rows are among the unlabeled rows too, by their ids" in message
    assert "the student is surer on gold than elsewhere" in message and "the teacher is surer" not in message


def test_weights_that_are_all_1_are_told(
    tables: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weighed(*tables, tmp_path / "w.parquet", "--rule", "threshold", "--threshold", "0")
    assert "every weight is 1" in capsys.readouterr().err


def test_equal_jobs_give_equal_bytes(tables: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.npz", "b.npz", "a.parquet", "b.parquet"):
        assert cli.main([*weigh_command(*tables, tmp_path / name)]) == 0
        monkeypatch.setattr(time, "localtime", lambda *_: time.struct_time((2030, 1, 1, 0, 0, 0, 0, 1, 0)))
        monkeypatch.setattr(time, "time", lambda: 1.9e9)
    for kind in ("npz", "parquet"):
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()


@pytest.mark.slow
def test_csv_output_keeps_every_bit(tables: tuple[Path, Path], tmp_path: Path) -> None:
    weighed(*tables, tmp_path / "w.parquet")
    run("weigh", "--validation", tables[0], "--unlabeled", tables[1], "--output", tmp_path / "w.csv")
    rows = np.genfromtxt(tmp_path / "w.csv", delimiter=",", names=True, dtype=None, encoding=None)
    assert rows.dtype.names == ("id", "weight", "error", "distortion") or '"' in rows.dtype.names[0]
    parquet = pq.read_table(tmp_path / "w.parquet")
    for i, name in enumerate(("id", "weight", "error", "distortion")):
        assert (rows[rows.dtype.names[i]].astype(parquet[name].to_numpy().dtype) == parquet[name].to_numpy()).all()


def test_labels_as_strings_and_as_distributions(tmp_path: Path) -> None:
    names = np.array(["ant", "bee", "cow", "dog"])
    unlabeled = write(tmp_path / "u.parquet", UNLABELED)
    texts = write(tmp_path / "v.parquet", {**VALIDATION, "label": names[VALIDATION["label"]]})
    found = weighed(texts, unlabeled, tmp_path / "a.parquet", "--classes", "ant,bee,cow,dog")
    (tmp_path / "classes.txt").write_text("ant\nbee\ncow\ndog\n")
    again = weighed(texts, unlabeled, tmp_path / "b.parquet", "--classes", tmp_path / "classes.txt")
    soft = write(tmp_path / "s.parquet", {**VALIDATION, "label": np.eye(4)[VALIDATION["label"]]})
    hot = weighed(soft, unlabeled, tmp_path / "c.parquet", "--soft-labels")
    assert found.equals(again) and found.equals(hot) and (found["weight"].to_numpy() == expected_weights()).all()


def test_named_wide_columns_bring_their_class_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["ant", "bee", "cow", "dog"]

    def wide(table: dict[str, np.ndarray], order: list[int]) -> dict[str, np.ndarray]:
        flat = {name: values for name, values in table.items() if values.ndim == 1}
        flat |= {f"teacher_{names[c]}": table["teacher"][:, c] for c in range(4)}
        return flat | {f"student_{names[c]}": table["student"][:, c] for c in order}

    texts = {**VALIDATION, "label": np.array(names)[VALIDATION["label"]]}
    validation = write(tmp_path / "v.parquet", wide(texts, [0, 1, 2, 3]))
    unlabeled = write(tmp_path / "u.parquet", wide(UNLABELED, [0, 1, 2, 3]))
    assert (weighed(validation, unlabeled, tmp_path / "w.parquet")["weight"].to_numpy() == expected_weights()).all()
    swapped = write(tmp_path / "x.parquet", wide(UNLABELED, [1, 0, 2, 3]))
    message = fail(capsys, "weigh", "--validation", validation, "--unlabeled", swapped, "--output", tmp_path / "y.parquet")
    assert "another order" in message and "bee, ant" in message


@pytest.mark.slow
def test_inspect_weights_and_tables(tables: tuple[Path, Path], tmp_path: Path) -> None:
    weighed(*tables, tmp_path / "w.parquet")
    shown = run("inspect", tmp_path / "w.parquet")
    assert "Teacher's accuracy by margin" in shown.stdout and (tmp_path / "w.png").read_bytes().startswith(b"\x89PNG")
    both = run("inspect", "--validation", tables[0], "--unlabeled", tables[1], "--picture", tmp_path / "both.svg")
    assert "Weights" in both.stdout and "<svg" in (tmp_path / "both.svg").read_text()
    alone = run("inspect", "--validation", tables[0], "--picture", tmp_path / "v.png")
    assert "Teacher's accuracy" in alone.stdout and "exactly 1" not in alone.stdout
    for suffix in ("csv", "npz"):
        cli.main(
            [
                "weigh",
                "--validation",
                str(tables[0]),
                "--unlabeled",
                str(tables[1]),
                "--output",
                str(tmp_path / f"w.{suffix}"),
            ]
        )
        assert "exactly 1" in run("inspect", tmp_path / f"w.{suffix}", "--picture", tmp_path / "p.png").stdout


def damaged(table: dict[str, np.ndarray], **changes: np.ndarray) -> dict[str, np.ndarray]:
    return {**table, **changes}


def with_row(values: np.ndarray, row: int, content: object) -> np.ndarray:
    changed = values.copy()
    changed[row] = content
    return changed


BAD_TABLES = {
    "NaN": (
        VALIDATION,
        damaged(UNLABELED, teacher=with_row(UNLABELED["teacher"], 7, np.nan)),
        ["NaN", "column 'teacher'", "1007"],
    ),
    "sum": (VALIDATION, damaged(UNLABELED, student=UNLABELED["student"] * 0.9), ["sum to 1", "--renormalize"]),
    "logits": (VALIDATION, damaged(UNLABELED, teacher=UNLABELED["teacher"] * 9 - 4), ["look like logits", "--kind logits"]),
    "logprobs": (
        VALIDATION,
        damaged(UNLABELED, teacher=np.log(UNLABELED["teacher"])),
        ["log-probabilities", "--kind logprobs"],
    ),
    "bad validation": (
        damaged(VALIDATION, teacher=with_row(VALIDATION["teacher"], 3, np.inf)),
        UNLABELED,
        ["--validation", "id 3"],
    ),
    "label range": (damaged(VALIDATION, label=VALIDATION["label"] - 1), UNLABELED, ["out of range", "-1 ("]),
    "one-based": (damaged(VALIDATION, label=VALIDATION["label"] + 1), UNLABELED, ["subtract 1"]),
    "class count": (VALIDATION, columns(3, 50, classes=5), ["number of classes", "4 and 5"]),
    "duplicate ids": (VALIDATION, damaged(UNLABELED, id=with_row(UNLABELED["id"], 9, 1003)), ["more than once", "1003"]),
    "duplicate validation ids": (
        damaged(VALIDATION, id=with_row(VALIDATION["id"], 9, 3)),
        UNLABELED,
        ["more than once", "--validation"],
    ),
    "no label": (take(VALIDATION, np.arange(200), "id", "teacher", "student"), UNLABELED, ["no column 'label'"]),
    "renamed": ({("labels" if n == "label" else n): c for n, c in VALIDATION.items()}, UNLABELED, ["rename 'labels'"]),
    "string labels": (damaged(VALIDATION, label=VALIDATION["label"].astype(str)), UNLABELED, ["strings", "--classes"]),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_bad_tables_are_one_clear_error_and_write_nothing(
    tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    validation, unlabeled, words = BAD_TABLES[case]
    paths = write(tmp_path / "v.parquet", validation), write(tmp_path / "u.parquet", unlabeled)
    message = fail(capsys, "weigh", "--validation", paths[0], "--unlabeled", paths[1], "--output", tmp_path / "w.parquet")
    for word in (*words, "found: ", "expected: ", "to do: "):
        assert word in message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["u.parquet", "v.parquet"]


def test_ids_of_two_tables_must_match_in_type_and_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    validation = write(tmp_path / "v.parquet", VALIDATION)
    teacher = write(tmp_path / "t.parquet", take(UNLABELED, np.arange(500), "id", "teacher"))
    texts = {**UNLABELED, "id": UNLABELED["id"].astype(str)}
    student = write(tmp_path / "s.parquet", take(texts, np.arange(500), "id", "student"))
    common = ("weigh", "--validation", validation, "--unlabeled", teacher, "--unlabeled")
    assert "another type" in fail(capsys, *common, student, "--output", tmp_path / "w.parquet")
    fewer = write(tmp_path / "f.parquet", take(UNLABELED, np.arange(3, 500), "id", "student"))
    message = fail(capsys, *common, fewer, "--output", tmp_path / "w.parquet")
    assert "3 ids only in" in message and "1000" in message and "--allow-subset" in message
    assert not (tmp_path / "w.parquet").exists()
    assert cli.main([*map(str, (*common, fewer)), "--output", str(tmp_path / "w.parquet"), "--allow-subset"]) == 0
    assert "warning: tables differ in their ids" in capsys.readouterr().err
    found = pq.read_table(tmp_path / "w.parquet")
    assert found["id"].to_pylist() == list(range(1003, 1500))
    assert (found["weight"].to_numpy() == expected_weights()[3:]).all()


CONFLICTS = {
    "--threshold without its rule": (["--threshold", "0.5"], "needs --rule threshold"),
    "threshold rule without value": (["--rule", "threshold"], "needs --threshold"),
    "oracle without truth": (["--rule", "oracle"], "needs --truth"),
    "truth without oracle": (["--truth", "label"], "needs --rule oracle"),
    "labeled without fidelity": (["--labeled", "l.parquet"], "needs --rule fidelity"),
    "neighbors without debiased": (["--rule", "fidelity", "--neighbors", "3"], "needs --rule debiased"),
    "renormalized logits": (["--kind", "logits", "--renormalize"], "no meaning with --kind logits"),
    "no such rule": (["--rule", "debiasd"], "unknown rule"),
    "neighbors of 0": (["--neighbors", "0"], "at least 1"),
    "neighbors beyond": (["--neighbors", "201"], "from 1 to 200"),
    "neighbors not whole": (["--neighbors", "2.5"], "invalid int value"),
    "unknown choice": (["--confidence", "marginal"], "invalid choice"),
    "unknown option": (["--confidnce", "margin"], "did you mean --confidence?"),
    "threshold NaN": (["--rule", "threshold", "--threshold", "nan"], "finite"),
}


@pytest.mark.parametrize("case", CONFLICTS)
def test_options_that_make_no_sense(
    tables: tuple[Path, Path], tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags, word = CONFLICTS[case]
    output = tmp_path / "w.parquet"
    assert word in fail(capsys, "weigh", "--validation", tables[0], "--unlabeled", tables[1], "--output", output, *flags)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["u.parquet", "v.parquet"]


def test_outputs_that_cannot_be(tables: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ("weigh", "--validation", tables[0], "--unlabeled", tables[1], "--output")
    assert ".parquet, .pq, .csv, .npz" in fail(capsys, *common, tmp_path / "w.txt")
    assert "mkdir -p" in fail(capsys, *common, tmp_path / "no" / "w.parquet")
    (tmp_path / "folder.parquet").mkdir()
    assert "a folder" in fail(capsys, *common, tmp_path / "folder.parquet")


def test_an_existing_output_survives_a_failed_run(
    tables: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weighed(*tables, tmp_path / "w.parquet")
    before = (tmp_path / "w.parquet").read_bytes()
    bad = write(tmp_path / "bad.parquet", {**UNLABELED, "teacher": UNLABELED["teacher"] * np.nan})
    fail(capsys, "weigh", "--validation", tables[0], "--unlabeled", bad, "--output", tmp_path / "w.parquet")
    assert (tmp_path / "w.parquet").read_bytes() == before


@pytest.mark.slow
def test_the_same_job_writes_the_same_bytes(tables: tuple[Path, Path], tmp_path: Path) -> None:
    for name in ("a", "b"):
        run(
            "weigh",
            "--validation",
            tables[0],
            "--unlabeled",
            tables[1],
            "--output",
            tmp_path / f"{name}.parquet",
            PYTHONHASHSEED="random",
        )
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_renormalize_scales_and_says_so(
    tmp_path: Path, tables: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    scaled = write(tmp_path / "s.parquet", {**UNLABELED, "teacher": UNLABELED["teacher"] * np.float32(0.5)})
    found = weighed(tables[0], scaled, tmp_path / "w.parquet", "--renormalize")
    assert "scaled to sum to 1; the largest correction is 0.5" in capsys.readouterr().err
    assert np.mean(np.abs(found["weight"].to_numpy() - expected_weights()) > 1e-5) < 0.01


def test_zero_unlabeled_rows(tmp_path: Path, tables: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    empty = write(tmp_path / "e.parquet", take(UNLABELED, np.arange(0)))
    assert "no unlabeled rows" in fail(
        capsys, "weigh", "--validation", tables[0], "--unlabeled", empty, "--output", tmp_path / "w.parquet"
    )


@pytest.mark.parametrize("repeated", [False, True])
def test_many_keys_spill_to_disk_and_still_find_the_duplicate(tmp_path: Path, repeated: bool) -> None:
    check = join.IdCheck(tmp_path, 601, limit=100)
    values = [pa.array([f"id-{i}" for i in range(start, start + 60)]) for start in range(0, 600, 60)]
    values += [pa.array(["id-17"])] if repeated else []
    for each in values:
        check.add(each)
    with pytest.raises(wdistill.InputError, match="id-17") if repeated else nullcontext():
        check.finish(lambda: iter(values), "--unlabeled")


def test_equal_keys_of_different_ids_are_no_duplicates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "keys", lambda values: np.zeros(len(values), np.int64))
    values = pa.array(["a", "b", "c"])
    check = join.IdCheck(tmp_path, 3)
    check.add(values)
    check.finish(lambda: iter([values]), "--unlabeled")


def shards(tmp_path: Path, count: int = 6) -> tuple[Path, Path]:
    """A validation table and a folder of shards."""
    for i in range(count):
        write(tmp_path / "u" / f"{i}.parquet", columns(10 + i, 300, first=1000 * i))
    return write(tmp_path / "v.parquet", VALIDATION), tmp_path / "u"


def weigh_command(validation: Path, unlabeled: Path, output: Path) -> list[str]:
    return ["weigh", "--validation", str(validation), "--unlabeled", str(unlabeled), "--output", str(output)]


SLOW = """
import sys, time, os, signal
import wdistill.tables.job as job
from wdistill import cli
from wdistill.core import store
job.PART = 1
def stopping(real):
    def writing(path, **more):
        if sys.argv[1] and path.name.startswith(sys.argv[1]):
            {action}
        return real(path, **more)
    return writing
store.writing, store.synced = stopping(store.writing), stopping(store.synced)
sys.exit(cli.main(sys.argv[2:]))
"""


@pytest.mark.kill
@pytest.mark.parametrize("stop_at", ["part-000000", "part-000003", "w.parquet"])
def test_a_killed_job_goes_on_from_its_finished_parts(tmp_path: Path, stop_at: str) -> None:
    validation, unlabeled = shards(tmp_path)
    command = weigh_command(validation, unlabeled, tmp_path / "w.parquet")
    script = SLOW.format(action="os.kill(os.getpid(), signal.SIGKILL)")
    killed = subprocess.run([sys.executable, "-c", script, stop_at, *command], capture_output=True)
    assert killed.returncode == -signal.SIGKILL and not (tmp_path / "w.parquet").exists()
    finished = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "w.parquet.parts").glob("part-*.parquet")}
    assert len(finished) == {"part-000000": 0, "part-000003": 3, "w.parquet": 6}[stop_at]
    resumed = subprocess.run(
        [sys.executable, "-c", SLOW.format(action="pass"), stop_at, *command], capture_output=True, text=True
    )
    assert resumed.returncode == 0, resumed.stderr
    assert ("finished files of an earlier run" in resumed.stderr) == bool(finished)
    assert not (tmp_path / "w.parquet.parts").exists()
    fresh = weighed(validation, unlabeled, tmp_path / "fresh.parquet")
    assert pq.read_table(tmp_path / "w.parquet").equals(fresh)


@pytest.mark.kill
def test_parts_of_changed_files_are_done_again_and_those_of_other_options_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    validation, unlabeled = shards(tmp_path)
    command = weigh_command(validation, unlabeled, tmp_path / "w.parquet")
    script = SLOW.format(action="os.kill(os.getpid(), signal.SIGKILL)")
    subprocess.run([sys.executable, "-c", script, "part-000004", *command], capture_output=True)
    write(unlabeled / "1.parquet", columns(99, 300, first=1000))
    assert cli.main(command) == 0
    assert pq.read_table(tmp_path / "w.parquet").equals(weighed(validation, unlabeled, tmp_path / "fresh.parquet"))
    subprocess.run([sys.executable, "-c", script, "part-000004", *command], capture_output=True)
    message = fail(capsys, *command, "--targets", "hard")
    assert "another job for this output is not finished" in message and "4 finished parts" in message
    assert "other --targets" in message and len(list((tmp_path / "w.parquet.parts").glob("part-*"))) == 4
    shutil.rmtree(tmp_path / "w.parquet.parts")
    assert cli.main([*command, "--targets", "hard"]) == 0
    hard = weighed(validation, unlabeled, tmp_path / "hard.parquet", "--targets", "hard")
    assert pq.read_table(tmp_path / "w.parquet").equals(hard)


@pytest.mark.kill
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_interrupted_by_a_signal(tmp_path: Path, sent: signal.Signals, code: int) -> None:
    validation, unlabeled = shards(tmp_path)
    command = weigh_command(validation, unlabeled, tmp_path / "w.parquet")
    script = SLOW.format(action="open(path.parent.parent / 'here', 'w').close(); time.sleep(60)")
    job = subprocess.Popen([sys.executable, "-c", script, "part-000002", *command], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "here").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    job.send_signal(sent)
    _, message = job.communicate(timeout=60)
    assert job.returncode == code and not (tmp_path / "w.parquet").exists() and "Traceback" not in message
    assert cli.main(command) == 0
    assert pq.read_table(tmp_path / "w.parquet").equals(weighed(validation, unlabeled, tmp_path / "fresh.parquet"))


@pytest.mark.kill
def test_two_jobs_for_one_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    validation, unlabeled = shards(tmp_path)
    command = weigh_command(validation, unlabeled, tmp_path / "w.parquet")
    script = SLOW.format(action="open(path.parent.parent / 'here', 'w').close(); time.sleep(60)")
    job = subprocess.Popen([sys.executable, "-c", script, "part-000002", *command])
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "here").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        message = fail(capsys, *command, code=5)
        assert "another process" in message and str(job.pid) in message
    finally:
        job.kill()
        job.wait()
    assert cli.main(command) == 0


@pytest.mark.slow
def test_no_space_is_an_error_of_ours_and_loses_nothing(tmp_path: Path) -> None:
    validation, unlabeled = shards(tmp_path)
    command = weigh_command(validation, unlabeled, tmp_path / "w.parquet")
    script = SLOW.format(action="raise store.storage_error(OSError(28, 'No space left on device'), path)")
    full = subprocess.run([sys.executable, "-c", script, "part-000003", *command], capture_output=True, text=True)
    assert full.returncode == 3 and "No space left" in full.stderr and "to do: " in full.stderr
    assert len(list((tmp_path / "w.parquet.parts").glob("part-*.parquet"))) == 3
    assert cli.main(command) == 0


def test_a_folder_that_may_not_be_written(tables: tuple[Path, Path]) -> None:
    done = run("weigh", "--validation", tables[0], "--unlabeled", tables[1], "--output", "/proc/w.parquet", ok=False)
    assert done.returncode == 3 and "cannot write" in done.stderr


def test_control_characters_in_ids_are_shown_not_obeyed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = np.array([f"\x1b[31m{i // 2}" for i in range(500)])
    paths = write(tmp_path / "v.parquet", VALIDATION), write(tmp_path / "u.parquet", {**UNLABELED, "id": texts})
    message = fail(capsys, "weigh", "--validation", paths[0], "--unlabeled", paths[1], "--output", tmp_path / "w.parquet")
    assert "\x1b" not in message and "x1b" in message


def test_help_and_version() -> None:
    assert "weigh" in run("--help").stdout and "--renormalize" in run("weigh", "--help").stdout
    assert run("--version").stdout.strip() == f"wdistill {wdistill.__version__}"
    assert run(ok=False).returncode == 2


@pytest.mark.kill
def test_a_joined_job_goes_on_rightly_after_its_first_table_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    validation, whole = write(tmp_path / "v.parquet", VALIDATION), columns(7, 600, first=5000)
    for i, rows in enumerate(np.array_split(np.arange(600), 3)):
        write(tmp_path / "t" / f"{i}.parquet", take(whole, rows, "id", "teacher"))
    student = write(tmp_path / "s.parquet", take(whole, rng.permutation(600), "id", "student"))
    command = ["weigh", "--validation", str(validation), "--unlabeled", str(tmp_path / "t"), "--unlabeled", str(student)]
    command += ["--output", str(tmp_path / "w.parquet")]
    script = SLOW.format(action="os.kill(os.getpid(), signal.SIGKILL)")
    subprocess.run([sys.executable, "-c", script, "part-000002", *command], capture_output=True)
    assert len(list((tmp_path / "w.parquet.parts").glob("part-*.parquet"))) == 2
    write(tmp_path / "t" / "2.parquet", take(whole, rng.permutation(np.arange(400, 600)), "id", "teacher"))
    assert cli.main(command) == 0
    assert "resuming after 2 finished files" in capsys.readouterr().err
    found = pq.read_table(tmp_path / "w.parquet")
    assert cli.main([*command[:-1], str(tmp_path / "fresh.parquet")]) == 0
    assert found.equals(pq.read_table(tmp_path / "fresh.parquet"))


@pytest.mark.proof
@pytest.mark.kill
def test_warnings_survive_an_interruption(tmp_path: Path) -> None:
    validation = write(tmp_path / "v.parquet", VALIDATION)
    for i, rows in enumerate(np.array_split(np.arange(500), 3)):
        write(tmp_path / "t" / f"{i}.parquet", take(UNLABELED, rows, "id", "teacher"))
    student = write(tmp_path / "s.parquet", take(UNLABELED, np.arange(3, 500), "id", "student"))
    command = ["weigh", "--validation", str(validation), "--unlabeled", str(tmp_path / "t"), "--unlabeled", str(student)]
    command += ["--allow-subset", "--output", str(tmp_path / "w.parquet")]
    script = SLOW.format(action="os.kill(os.getpid(), signal.SIGKILL)")
    subprocess.run([sys.executable, "-c", script, "part-000001", *command], capture_output=True)
    subprocess.run([sys.executable, "-c", SLOW.format(action="pass"), "-", *command], capture_output=True, check=True)
    resumed = (tmp_path / "w.parquet").read_bytes()
    subprocess.run([sys.executable, "-c", SLOW.format(action="pass"), "-", *command], capture_output=True, check=True)
    assert "tables differ in their ids" in run("inspect", tmp_path / "w.parquet").stdout
    assert (tmp_path / "w.parquet").read_bytes() == resumed


def test_what_is_not_ours_is_never_removed(
    tables: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "w.parquet.parts"
    (folder / "sub").mkdir(parents=True)
    (folder / "notes.txt").write_text("precious")
    command = ("weigh", "--validation", tables[0], "--unlabeled", tables[1], "--output", tmp_path / "w.parquet")
    assert "notes.txt" in fail(capsys, *command)
    assert (folder / "notes.txt").read_text() == "precious" and (folder / "sub").is_dir()


def test_the_output_is_never_an_input(tables: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = [path.read_bytes() for path in tables]
    shard = write(tmp_path / "shards" / "a.parquet", UNLABELED)
    cases = [
        (tables[1], tables[0]),
        (tables[1], tables[1]),
        (tmp_path / "shards", tmp_path / "shards" / "w.parquet"),
        (tmp_path / "shards" / "*.parquet", tmp_path / "shards" / "w.parquet"),
    ]
    for unlabeled, output in cases:
        command = ("weigh", "--validation", tables[0], "--unlabeled", unlabeled, "--output", output)
        assert "among the inputs" in fail(capsys, *command)
    assert [path.read_bytes() for path in tables] == before and list((tmp_path / "shards").iterdir()) == [shard]


def test_what_was_asked_is_checked_before_any_table_is_opened(
    tables: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(*_: object, **__: object) -> None:
        raise AssertionError("a table was opened")

    for module in ("weigh", "experts"):
        monkeypatch.setattr(f"wdistill.tables.{module}.open_tables", opened)
    common = ("--validation", tables[0], "--unlabeled", tables[1])
    for method in (["--rule", "fidelity"], ["--method", "best"]):
        assert "among the inputs" in fail(capsys, "weigh", *common, *method, "--output", tables[1])
        assert "needs" in fail(capsys, "weigh", *common, *method, "--neighbors", "3", "--output", tmp_path / "w.parquet")
    (tmp_path / "w.parquet.parts").mkdir()
    (tmp_path / "w.parquet.parts" / "notes.txt").write_text("precious")
    assert "notes.txt" in fail(capsys, "weigh", *common, "--output", tmp_path / "w.parquet")
    assert "among the inputs" in fail(capsys, "advise", *common, "--plan", tables[1])
    assert "needs --inputs" in fail(capsys, "advise", *common, "--labeled", tables[1])
    assert "needs --threshold" in fail(capsys, "inspect", *common, "--rule", "threshold")


def test_logits_beside_probabilities_are_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logits = {**VALIDATION, **{side: np.log(VALIDATION[side]) * 3 for side in ("teacher", "student")}}
    weighed(
        write(tmp_path / "v.npz", logits), write(tmp_path / "u.npz", UNLABELED), tmp_path / "w.parquet", "--kind", "logits"
    )
    assert "these logits look like probabilities" in capsys.readouterr().err


def test_an_empty_path_is_an_error(tables: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "empty path" in fail(
        capsys, "weigh", "--validation", "", "--unlabeled", tables[1], "--output", tmp_path / "w.csv"
    )


def test_a_poor_terminal_is_no_reason_to_fail(tables: tuple[Path, Path], tmp_path: Path) -> None:
    common = ("weigh", "--validation", tables[0], "--unlabeled", tables[1], "--output", tmp_path / "w.parquet")
    run(*common, PYTHONIOENCODING="ascii")
    run("weigh", "--help", PYTHONIOENCODING="ascii")


INSPECTED = {
    "options beside weights": (["w.parquet", "--estimate", "ratio"], "has its own options"),
    "nothing": ([], "nothing to inspect"),
    "a rule without rows": (["--validation", "v.parquet", "--rule", "fidelity"], "needs unlabeled rows"),
    "predictions": (["u.parquet"], "a table of predictions"),
    "no weights": (["v2.parquet"], "no column 'weight'"),
    "NaN weights": (["nan.parquet"], "nan.parquet"),
    "string weights": (["text.parquet"], "text.parquet"),
    "no rows": (["empty.parquet"], "no weights"),
    "a bad record": (["record.parquet"], "record is damaged"),
    "a strange picture": (["w.parquet", "--picture", "p.gif"], ".png or .svg"),
    "no such file": (["none.parquet"], "none.parquet"),
}


@pytest.mark.parametrize("case", INSPECTED)
def test_what_cannot_be_inspected(
    tables: tuple[Path, Path], tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    weighed(*tables, tmp_path / "w.parquet")
    write(tmp_path / "v2.parquet", {"id": np.arange(3), "wait": np.ones(3)})
    write(tmp_path / "nan.parquet", {"id": np.arange(3), "weight": np.array([0.5, np.nan, 1.0])})
    write(tmp_path / "text.parquet", {"id": np.arange(3), "weight": np.array(["a", "b", "c"])})
    write(tmp_path / "empty.parquet", {"id": np.arange(0), "weight": np.ones(0)})
    damaged_record = pa.table({"id": [1], "weight": [1.0]}).replace_schema_metadata(
        {"wdistill": '{"histogram": {"counts": [1]}}'}
    )
    pq.write_table(damaged_record, tmp_path / "record.parquet")
    before = sorted(tmp_path.iterdir())
    flags, word = INSPECTED[case]
    assert word in fail(capsys, "inspect", *flags)
    assert sorted(tmp_path.iterdir()) == before


def test_class_lists_in_files(tables: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ("weigh", "--validation", tables[0], "--unlabeled", tables[1], "--output", tmp_path / "w.parquet", "--classes")
    assert "cannot be read" in fail(capsys, *common, tmp_path / "none.txt")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n")
    assert "cannot be read" in fail(capsys, *common, tmp_path / "latin.txt")
    assert "3 names" in fail(capsys, *common, "a,b,c")
