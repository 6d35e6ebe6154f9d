"""The net: a battery of small cases whose numbers must not change by accident, each reduced to a SHA-256.

    python -m tests.net [--only WORD …] [--steady] [--output FILE] [--keep FOLDER]    {part of a case: digest, or digests}
    python -m tests.net --freeze                                                      write tests/net.json anew

It goes through what users touch and nothing else: the public names of `wdistill` and the command `python -m wdistill`. It
keeps numbers, not words: arrays, parameters, columns, and the numbers in tables. The steady cases have the same digests on
every machine; these are kept in net.json and tested. The others depend on the processor's own exp, log and matrix products:
run them before and after a redesign on one machine, with this one file in both checkouts, and compare. A name that has
changed goes into RENAMED, and serves both sides.

--keep writes the numbers behind every digest to a file each: compare the folders of both sides.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import hashlib
import html
import inspect
import io
import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import wdistill

# Before → after: public names, their arguments and fields, flags and words of the command line. The new one is taken where
# it exists, so that one table serves the code before and after.
RENAMED: dict[str, str] = {"best": "max_on_test"}
AT = "threshold" if "threshold" in inspect.signature(wdistill.threshold).parameters else "at"
COLUMNS = ("id", "weight", "error", "distortion", "targets")  # of what `weigh` writes
PARTS = ("found:", "expected:", "to do:")  # of an error on the terminal, beside its first line
TIMES = ("second", "environment", "recipe", "folder", "fitted", "warnings")  # in names of fields that are no results
ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "WDISTILL_THREADS": "1"}
SETTING = {**ALONE, "COLUMNS": "1000"}  # one thread; and no printed row is broken into lines
HEAVY = ("torch", "numba", "pyarrow", "matplotlib", "scipy", "sklearn", "PIL", "rich", "jinja2")

CHECKOUT = Path(wdistill.__file__).resolve().parent.parent
FROZEN = Path(__file__).with_name("net.json")
Parts = Iterator[tuple[str, Any]]
CASES: dict[str, Callable[[], Parts]] = {}
STEADY: set[str] = set()


def case(*, steady: bool) -> Callable[[Callable[[], Parts]], Callable[[], Parts]]:
    """A case: parts with their numbers, made in an empty current folder."""

    def register(function: Callable[[], Parts]) -> Callable[[], Parts]:
        CASES[function.__name__] = function
        if steady:
            STEADY.add(function.__name__)
        return function

    return register


# digests ------------------------------------------------------------------------------------------------------------


class Several(list[Any]):
    """Things whose order and names do not matter: a digest each."""


def plain(value: Any) -> Any:
    """What a digest is made of, as JSON can hold it; every float with all its digits."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().contiguous().numpy()
    if isinstance(value, np.ndarray):
        return [value.dtype.str, *value.shape, *value.ravel().tolist()]
    if isinstance(value, Mapping):
        return [plain(each) for each in value.values()]
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value.item() if isinstance(value, np.generic) else value


def digest(value: Any) -> Any:
    if isinstance(value, Several):
        return sorted({digest(each)[:16] for each in value})
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        content = f"{value.dtype.str}{value.shape}".encode() + np.ascontiguousarray(value).tobytes()
    else:
        content = json.dumps(plain(value)).encode()
    return hashlib.sha256(content).hexdigest()


NUMBER = re.compile(r"(?<![\w.-])[+−-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?![\w]|\.\d|-\w)")


def numbers(text: str) -> list[str]:
    """The numbers in a text, in order; none that is part of a name, such as cifar10 or CIFAR-10."""
    return [found.strip(",") for found in NUMBER.findall(text)]


def row(cells: Iterable[str]) -> tuple[str, ...]:
    """The numbers of the cells that begin with one: what begins with a word is a heading, and may be said otherwise."""
    return tuple(found for cell in cells if re.match(r"\W*\d", cell) for found in numbers(cell))


def tables(text: str) -> list[list[tuple[str, ...]]]:
    """The rows of every table of Markdown, of a page or of the terminal, in no order of rows."""
    found: list[list[tuple[str, ...]]] = [[]]
    if "<table" in text:
        for each in re.findall(r"<table.*?</table>", text, re.S):
            lines = [re.findall(r"<t[dh].*?</t[dh]>", line, re.S) for line in re.findall(r"<tr.*?</tr>", each, re.S)]
            found.append([row(html.unescape(re.sub(r"<[^>]*>", "", cell)).strip() for cell in line) for line in lines])
    else:
        for line in text.splitlines():
            if line[:1] in ("|", "│", "┃"):
                found[-1].append(row(cell.strip() for cell in re.split(r"[|│┃]", line)))
            elif line[:1] not in tuple("┏┡└├"):
                found.append([])
    return [sorted(filter(None, each)) for each in found if any(each)]


def prose(text: str) -> list[str]:
    """The numbers outside of tables, in no order."""
    return sorted(each for line in text.splitlines() if line[:1] not in ("|", "│", "┃") for each in numbers(line))


def floats(value: Any, *, again: bool = False) -> list[float]:
    """Every different float in a record, whatever the record is made of, or each as often as it is there; no times."""
    found: list[float] = []

    def walk(value: Any) -> None:
        if is_dataclass(value):
            value = {each.name: getattr(value, each.name) for each in fields(value)}
        if isinstance(value, Mapping):
            value = [each for name, each in value.items() if not any(time in str(name) for time in TIMES)]
        if isinstance(value, np.ndarray | np.generic):
            value = value.tolist()
        if isinstance(value, list | tuple):
            for each in value:
                walk(each)
        elif isinstance(value, float):
            found.append(value)

    walk(value)
    return sorted(found if again else set(found))


# the surfaces -------------------------------------------------------------------------------------------------------


def get(name: str, owner: Any = wdistill) -> Any:
    """A public name, or a field of what one returned."""
    new = RENAMED.get(name, name)
    return getattr(owner, new if hasattr(owner, new) else name)


def call(function: Any, *given: Any, **named: Any) -> Any:
    """A call whose arguments may have other names by now."""
    taken = inspect.signature(function).parameters
    return function(*given, **{RENAMED[name] if RENAMED.get(name) in taken else name: each for name, each in named.items()})


def run(*words: Any) -> tuple[int, str, str]:
    """`python -m wdistill …` in this process: exit code, what it printed, and what it said on stderr."""
    given = [str(each) for each in words]
    if set(given) & set(RENAMED):
        known = run(given[0], "--help")[1]
        given = [RENAMED[w] if RENAMED.get(w, "\n") in re.split(r"[\s,|{}()]+", known) else w for w in given]
    out, err, before, code = io.StringIO(), io.StringIO(), sys.argv, 0
    sys.argv = ["wdistill", *given]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            runpy.run_module("wdistill", run_name="__main__", alter_sys=False)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    finally:
        sys.argv = before
    return code, out.getvalue(), err.getvalue()


def done(*words: Any) -> str:
    """What a command that must succeed has printed."""
    code, out, err = run(*words)
    if code:
        raise AssertionError(f"wdistill {' '.join(map(str, words))} ended with {code}:\n{err}")
    return out


def program(*words: Any, at: Path) -> str:
    """What another process prints, which runs a module in a copy of the checkout."""
    own = {**os.environ, "PYTHONPATH": str(at)}
    command = [sys.executable, *map(str, words)]
    ended = subprocess.run(command, cwd=at, env=own, capture_output=True, text=True)
    if ended.returncode:
        raise AssertionError(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stderr[-2000:]}")
    return ended.stdout


# data, the same bits on every machine -------------------------------------------------------------------------------


def noise(seed: int, *shape: int) -> np.ndarray:
    """Whole numbers below 2^32 (SplitMix64): no generator of a library, which might change."""
    x = np.arange(1, int(np.prod(shape)) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x += np.uint64((seed + 1) * 0xD1B54A32D192ED03 % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return (x >> np.uint64(32)).astype(np.int64).reshape(shape)


def labels_of(seed: int, rows: int, classes: int) -> np.ndarray:
    return noise(seed, rows) % classes


def logits_of(seed: int, labels: np.ndarray, classes: int, strength: float) -> np.ndarray:
    """Multiples of 1/512 that lean towards the label."""
    found = noise(seed, len(labels), classes) % 2048 / 512
    found[np.arange(len(labels)), labels] += strength
    return found


def chances_of(seed: int, labels: np.ndarray, classes: int, strength: int) -> np.ndarray:
    """Counts, divided by their sum: no exp; some rows have ties."""
    counts = 1 + (noise(seed, len(labels), classes) % 24) ** 2
    counts[np.arange(len(labels)), labels] += strength * (noise(seed + 1, len(labels)) % 24)
    return counts / counts.sum(axis=1, keepdims=True)


def predictions(kind: str, seed: int, labels: np.ndarray, classes: int, strength: int) -> np.ndarray:
    if kind == "logits":
        return logits_of(seed, labels, classes, strength / 12).astype(np.float32)
    chances = chances_of(seed, labels, classes, strength)
    return np.log(chances).astype(np.float32) if kind == "logprobs" else chances.astype(np.float32)


def table(seed: int, rows: int, first: int = 0, classes: int = 5, kind: str = "probabilities") -> dict[str, np.ndarray]:
    """ids, labels and predictions of teacher, student and somebody else, and numbers that tell something too."""
    seed *= 1000
    labels = labels_of(seed, rows, classes)
    sides = {"teacher": 24, "student": 12, "llm": 30}
    found = {
        name: predictions(kind, seed + 10 * i, labels, classes, each) for i, (name, each) in enumerate(sides.items(), 1)
    }
    inputs = logits_of(seed + 90, labels, classes + 1, 3).astype(np.float32)
    return {"id": first + np.arange(rows), "label": labels, **found, "inputs": inputs}


def evidence(kind: str = "probabilities", rows: int = 1500, known: int = 240, dtype: Any = None, **more: Any) -> Any:
    """Arrays as `Evidence` takes them, with labeled rows and the truth."""
    gold, rest, labeled = table(1, known, kind=kind), table(2, rows, kind=kind), table(3, 90, kind=kind)
    if dtype is not None:
        for each in (gold, rest, labeled):
            each |= {name: each[name].astype(dtype) for name in ("teacher", "student")}
    arrays = (
        gold["label"],
        gold["teacher"],
        gold["student"],
        rest["teacher"],
        rest["student"],
        labeled["teacher"],
        rest["label"],
    )
    return call(get("Evidence"), *arrays, kind=kind, **more)


# weights ------------------------------------------------------------------------------------------------------------


def seen(found: Any) -> list[Any]:
    """What a rule saw, bit for bit."""
    counted = ("clipped", "tied", "floored", "largest_distortion", "effective_sample_size", "share_below_one")
    arrays = [get(name, found) for name in ("weights", "error", "distortion")]
    return [*arrays, *(get(name, found) for name in counted), list(get("factors", found).values())]


def single(found: Any) -> list[Any]:
    """The same as steady as it gets: the last bits of the machine's logarithm are rounded away."""
    arrays = [get(name, found) for name in ("weights", "error", "distortion")]
    counted = [get(name, found) for name in ("clipped", "tied", "floored")]
    return [None if each is None else each.astype(np.float32) for each in arrays] + counted


def own_confidence(chances: np.ndarray) -> np.ndarray:
    return chances.max(axis=1)


def explained() -> Parts:
    """Every rule with its options on every kind of predictions."""
    debiased, entropy, fidelity, threshold = map(get, ("debiased", "entropy", "fidelity", "threshold"))
    for kind in ("probabilities", "logits", "logprobs"):
        known = evidence(kind)
        for estimate in ("paper", "conditional", "ratio"):
            for targets in ("soft", "hard"):
                options = {"estimate": estimate, "targets": targets}
                yield f"debiased {kind} {estimate} {targets}", call(debiased.explain, known, **options)
            yield f"entropy {kind} {estimate}", call(debiased.explain, known, confidence=entropy, estimate=estimate)
        yield f"fidelity {kind}", fidelity.explain(known)
        yield f"threshold {kind}", call(threshold.explain, known, **{AT: 0.4})
        yield f"threshold entropy {kind}", call(threshold.explain, known, confidence=entropy, **{AT: 0.9})
        yield f"oracle {kind}", get("oracle").explain(known)
        yield f"unweighted {kind}", get("unweighted").explain(known)
        product = get("compose")(call(debiased.using, estimate="ratio"), fidelity, call(threshold.using, **{AT: 0.1}))
        yield f"compose {kind}", product.explain(known)
    known = evidence()
    for k in (1, 2, 7, 60, 240):
        yield f"neighbors {k}", call(debiased.explain, known, neighbors=k)
    for dtype in (np.float16, np.float64):
        yield f"debiased {np.dtype(dtype).name}", debiased.explain(evidence(dtype=dtype, renormalize=True))
    sure = evidence("logits")
    sides = sure.validation_teacher, sure.validation_student * 12, sure.teacher, sure.student * 12
    yield "a student too sure", debiased.explain(call(get("Evidence"), sure.validation_labels, *sides, kind="logits"))
    yield "fidelity unlabeled", call(fidelity.explain, known, over="unlabeled")
    yield "own confidence", call(debiased.explain, known, confidence=own_confidence)
    scores = [noise(50 + i, rows) % 97 / 97 for i, rows in enumerate((240, 240, 1500, 1500))]
    yield "scores", call(debiased.explain, known, confidence=get("Scores")(*scores))


@case(steady=True)
def weights() -> Parts:
    for name, found in explained():
        yield name, single(found)
    for kind in ("probabilities", "logits"):
        known = evidence(kind)
        for measure in ("margin", "entropy"):
            yield f"{measure} {kind}", call(get(measure), known.teacher, kind=kind)
    p, d = noise(60, 500) % 101 / 100, noise(61, 500) % 301 / 100
    yield "debiasing_weight", get("debiasing_weight")(p, d)
    yield "distortion", get("distortion")(d, p)
    mean = get("EntropyMean")().plus(evidence().teacher).plus(evidence().labeled_teacher)
    yield "mean of entropies", [mean.count, mean.value]


@case(steady=False)
def weights_to_the_last_bit() -> Parts:
    for name, found in explained():
        yield name, seen(found)


@case(steady=False)
def fitted_rules() -> Parts:
    """Chunks, and rules that were stored, give the bits of the whole."""
    weigh, debiased = get("weigh"), get("debiased")
    known = evidence()
    rules = {
        "debiased": debiased,
        "ratio": call(debiased.using, estimate="ratio", targets="hard"),
        "fidelity": get("fidelity"),
    }
    rules["compose"] = get("compose")(debiased, get("fidelity"))
    rules["threshold"] = call(get("threshold").using, **{AT: 0.3})
    for name, rule in rules.items():
        get("save")(rule.fit(known), f"{name}.npz")
        fitted = get("load")(f"{name}.npz")
        chunks = [slice(first, first + 371) for first in range(0, 1500, 371)]
        found = [get("weights", weigh(fitted, known.teacher[part], known.student[part])) for part in chunks]
        yield name, np.concatenate(found)


@case(steady=True)
def many_rows() -> Parts:
    """So many that compiled code does the work; a few of them go through NumPy, with the same bits."""
    debiased, classes, rows, known = get("debiased"), 10, 430_000, 600
    for kind in ("probabilities", "logits"):
        labels, gold = labels_of(1, rows, classes), labels_of(2, known, classes)
        arrays = [predictions(kind, 3 + i, each, classes, 20) for i, each in enumerate((gold, gold, labels, labels))]
        all_rows = call(get("Evidence"), gold, *arrays, kind=kind)
        found = debiased.explain(all_rows)
        few = call(get("weigh"), debiased.fit(all_rows), arrays[2][:900], arrays[3][:900], kind=kind)
        assert (get("weights", few) == get("weights", found)[:900]).all(), f"{kind}: compiled code and NumPy differ"
        yield f"debiased {kind}", single(found)
        ratio = call(debiased.explain, all_rows, confidence=get("entropy"), estimate="ratio", targets="hard")
        yield f"entropy {kind}", single(ratio)
        yield f"fidelity {kind}", single(call(get("fidelity").explain, all_rows, over="unlabeled"))


# tables and files ---------------------------------------------------------------------------------------------------


def without(found: Mapping[str, np.ndarray], *names: str) -> dict[str, np.ndarray]:
    return {name: each for name, each in found.items() if name not in names}


def some(found: Mapping[str, np.ndarray], rows: Any, *names: str) -> dict[str, np.ndarray]:
    return {name: each[rows] for name, each in found.items() if not names or name in names}


def wide(found: Mapping[str, np.ndarray]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {}
    for name, each in found.items():
        matrix = each.ndim > 1
        columns |= {f"{name}_{c}": each[:, c].tolist() for c in range(each.shape[1])} if matrix else {name: each.tolist()}
    return columns


def write(path: str, found: Mapping[str, np.ndarray]) -> str:
    """A table in the format of its extension."""
    suffix = Path(path).suffix
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    if suffix == ".parquet":
        lists = {name: pa.array(each.tolist() if each.ndim > 1 else each) for name, each in found.items()}
        floating = {name: pa.list_(pa.float32()) for name, each in found.items() if each.ndim > 1}
        pq.write_table(pa.table({name: each.cast(floating.get(name, each.type)) for name, each in lists.items()}), path)
    elif suffix == ".npz":
        np.savez(path, **found)
    elif suffix == ".csv":
        columns = wide(found)
        with Path(path).open("w", newline="") as file:
            csv.writer(file).writerows([list(columns), *zip(*columns.values(), strict=True)])
    else:
        lists = {name: each.tolist() for name, each in found.items()}
        rows = [dict(zip(lists, each, strict=True)) for each in zip(*lists.values(), strict=True)]
        Path(path).write_text("".join(json.dumps(each) + "\n" for each in rows))
    return path


def read(path: str) -> list[Any]:
    """The columns of a file of weights, by the rows' ids."""
    if path.endswith(".csv"):
        with Path(path).open() as file:
            rows = list(csv.reader(file))
        return [[float(each) if each else None for each in line] for line in sorted(rows[1:])]
    if path.endswith(".npz"):
        with np.load(path) as file:
            found = {name: file[name] for name in COLUMNS if name in file}
    else:
        whole = pq.read_table(path)
        lists = {name: whole[name].to_pylist() for name in COLUMNS if name in whole.column_names}
        found = {name: np.array(each) if name == "id" else np.array(each, np.float32) for name, each in lists.items()}
    order = np.argsort(found["id"], kind="stable")
    return [found["id"][order].astype(str).tolist(), *(each[order] for name, each in found.items() if name != "id")]


def weighed(output: str, *words: Any) -> list[Any]:
    done("weigh", *words, "--output", output)
    return read(output)


def both(suffix: str, gold: Mapping[str, np.ndarray], rest: Mapping[str, np.ndarray], stem: str = "") -> list[str]:
    """Two tables on the disk, as a command names them."""
    return ["--validation", write(f"{stem}v.{suffix}", gold), "--unlabeled", write(f"{stem}u.{suffix}", rest)]


def gold_and_rest(kind: str = "probabilities", rows: int = 700) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    return without(table(1, 160, kind=kind), "llm", "inputs"), without(table(2, rows, 1000, kind=kind), "llm", "inputs")


@case(steady=True)
def files() -> Parts:
    """`weigh` from every format, to every format, by every rule."""
    gold, rest = gold_and_rest()
    given = {suffix: both(suffix, gold, without(rest, "label")) for suffix in ("parquet", "npz", "csv", "jsonl")}
    for suffix, tables in given.items():
        for output in ("parquet", "csv", "npz"):
            yield f"{suffix} to {output}", weighed(f"{suffix}.{output}", *tables)
    for name, each in {"vt": gold["teacher"], "vs": gold["student"], "l": gold["label"]}.items():
        np.save(f"{name}.npy", each)
    for name, each in {"t": rest["teacher"], "s": rest["student"], "i": rest["id"]}.items():
        np.save(f"{name}.npy", each)
    arrays = ["--validation", "teacher=vt.npy", "--validation", "student=vs.npy", "--validation", "label=l.npy"]
    arrays += ["--unlabeled", "teacher=t.npy", "--unlabeled", "student=s.npy"]
    yield "npy", weighed("npy.parquet", *arrays)
    yield "npy with ids", weighed("ids.parquet", *arrays, "--unlabeled", "id=i.npy")
    for first in range(0, 700, 250):
        write(f"shards/{first:03}.parquet", without(some(rest, slice(first, first + 250)), "label"))
    shards = ["--validation", "v.parquet", "--unlabeled"]
    yield "a folder", weighed("folder.parquet", *shards, "shards")
    yield "a pattern", weighed("pattern.parquet", *shards, "shards/*.parquet")


@case(steady=True)
def options() -> Parts:
    gold, rest = gold_and_rest()
    tables = both("parquet", gold, rest)
    labeled = write("l.parquet", without(table(3, 90, 9000), "llm", "inputs", "label", "student"))
    for estimate in ("paper", "conditional", "ratio"):
        yield f"estimate {estimate}", weighed(f"{estimate}.parquet", *tables, "--estimate", estimate)
    more = {
        "hard": ["--targets", "hard"],
        "entropy": ["--confidence", "entropy", "--estimate", "ratio"],
        "neighbors": ["--neighbors", 9],
        "unweighted": ["--rule", "unweighted"],
        "fidelity": ["--rule", "fidelity", "--labeled", labeled],
        "fidelity-alone": ["--rule", "fidelity"],
        "threshold": ["--rule", "threshold", "--threshold", 0.4],
        "oracle": ["--rule", "oracle", "--truth", "label"],
        "product": ["--rule", "debiased,fidelity", "--labeled", labeled],
    }
    for name, words in more.items():
        yield name, weighed(f"{name}.parquet", *tables, *words)
    for kind in ("logits", "logprobs"):
        others = both("parquet", *gold_and_rest(kind), stem=kind)
        yield kind, weighed(f"{kind}.parquet", *others, "--kind", kind, "--confidence", "entropy")
    counts = [{**each, **{name: each[name] * 8 for name in ("teacher", "student")}} for each in (gold, rest)]
    yield "renormalize", weighed("counts.parquet", *both("parquet", counts[0], counts[1], stem="c"), "--renormalize")
    names = np.array(["ant", "bee", "cow", "dog", "eel"])
    named = {**gold, "id": np.char.add("g", gold["id"].astype(str)), "label": names[gold["label"]]}
    words = both("jsonl", named, {**rest, "id": np.char.add("r", rest["id"].astype(str))}, stem="n")
    yield "class names, ids of letters", weighed("named.npz", *words, "--classes", ",".join(names))
    soft = {**gold, "label": np.eye(5, dtype=np.float32)[gold["label"]]}
    yield "soft labels", weighed("soft.parquet", *both("parquet", soft, rest, stem="s"), "--soft-labels")


@case(steady=True)
def joined() -> Parts:
    """Teacher and student in tables of their own, in another order and another format."""
    gold, rest = gold_and_rest()
    turned = np.argsort(noise(70, 700))
    given = ["--validation", write("a.parquet", without(gold, "student")), "--validation"]
    given += [write("b.jsonl", some(gold, slice(None, None, -1), "id", "student"))]
    given += ["--unlabeled", write("c.parquet", some(rest, slice(None), "id", "teacher")), "--unlabeled"]
    yield "by id", weighed("w.parquet", *given, write("d.parquet", some(rest, turned, "id", "student")))
    fewer = some(rest, turned[:520], "id", "student")
    yield "a subset", weighed("x.parquet", *given, write("e.npz", fewer), "--allow-subset")


@case(steady=True)
def many_rows_in_files() -> Parts:
    gold, rest = without(table(1, 700), "llm", "inputs"), without(table(2, 40_000, 1000), "llm", "inputs", "label")
    yield "debiased", weighed("w.parquet", *both("parquet", gold, rest))


@case(steady=False)
def inspected() -> Parts:
    gold, rest = gold_and_rest()
    tables = both("parquet", gold, rest)
    done("weigh", *tables, "--output", "w.parquet")
    yield "a file of weights", printed("inspect", "w.parquet", "--picture", "w.svg")
    yield "tables", printed("inspect", *tables, "--picture", "t.svg")
    yield "gold alone", printed("inspect", *tables[:2], "--picture", "v.svg")


def printed(*words: Any) -> Any:
    return tables(done(*words))


# corrected targets and advice ---------------------------------------------------------------------------------------


def experts() -> tuple[list[str], str]:
    """Gold, unlabeled and labeled rows with opinions and inputs."""
    gold, rest = table(1, 150, classes=3), without(table(2, 500, 1000, classes=3), "label")
    return both("parquet", gold, rest), write(
        "l.parquet", some(table(3, 80, 5000, classes=3), slice(None), "id", "label", "inputs")
    )


@case(steady=False)
def corrected() -> Parts:
    given, labeled = experts()
    best = [*given, "--method", "best"]
    forest = ["--inputs", "inputs", "--labeled", labeled]
    yield "teacher and student", weighed("a.parquet", *best)
    yield "opinions", weighed("b.parquet", *best, "--opinions", "llm")
    yield "opinions to csv", weighed("c.csv", *best, "--opinions", "llm")
    yield "hard", weighed("d.npz", *best, "--opinions", "llm", "--targets", "hard")
    yield "forest", weighed("e.parquet", *best, "--opinions", "llm", *forest)


def planned(path: str) -> Any:
    """The ids of a plan in their order, and how many there are of each use."""
    if path.endswith(".csv"):
        with Path(path).open() as file:
            ids, uses = zip(*list(csv.reader(file))[1:], strict=True)
    else:
        ids, uses = (column.to_pylist() for column in pq.read_table(path).columns)
    return [list(map(str, ids)), [uses.count(each) for each in dict.fromkeys(uses)]]


@case(steady=False)
def advised() -> Parts:
    given, labeled = experts()
    for name, plan, more in (
        ("opinions", "next.csv", ["--opinions", "llm"]),
        ("forest", "next.parquet", ["--inputs", "inputs", "--labeled", labeled, "--targets", "hard"]),
    ):
        details = ["--details"] if "--details" in run("advise", "--help")[1] else []
        out = done("advise", *given, *more, "--plan", plan, *details)
        yield f"{name}: tables", tables(out)
        yield f"{name}: sentences", prose(out)
        yield f"{name}: plan", planned(plan)


# distillation -------------------------------------------------------------------------------------------------------

CLASSES, WIDTH = 3, 6
SIZES = {"labeled": 40, "validation": 50, "unlabeled": 120, "test": 60}


def splits(images: bool = False) -> dict[str, tuple[Any, Any]]:
    import torch

    found = {}
    for i, (name, rows) in enumerate(SIZES.items()):
        labels = labels_of(200 + i, rows, CLASSES)
        inputs = (logits_of(300 + i, labels, WIDTH, 2.5) - 2).astype(np.float32)
        if images:
            inputs = (noise(400 + i, rows, 1, 8, 8) % 160 + 30 * labels[:, None, None, None]).astype(np.uint8)
        found[name] = torch.from_numpy(inputs), torch.from_numpy(labels)
    return found


def recipe(**changes: Any) -> Any:
    usual = {"teacher_epochs": 3, "student_epochs": 2, "epochs": 3, "batch_size": 16, "rate": 0.03, "device": "cpu"}
    return call(get("Recipe"), **{**usual, **changes})


def models(teacher: tuple[int, ...] = (8,), student: tuple[int, ...] = (4,)) -> tuple[Any, Any]:
    """Modules with parameters of their own: whatever is drawn before, these are the same."""
    import torch

    torch.manual_seed(5)
    return get("MLP")(WIDTH, CLASSES, teacher), get("MLP")(WIDTH, CLASSES, student)


def distilled(*both: Any, rule: Any, data: Any = None, run: Any = None, **changes: Any) -> Any:
    """A report; a single rule is an arm of our own name; `changes` are settings of the recipe."""
    arms = rule if isinstance(rule, dict) else {"weighed": rule}
    return call(get("distill"), *(both or models()), **(data or splits()), rule=arms, recipe=recipe(**changes), run=run)


def parameters(model: Any) -> list[Any]:
    return [plain(each) for each in model.state_dict().values()]


def came_to(report: Any) -> Parts:
    outcome = get("outcome", report)
    for name, model in get("students", report).items():
        yield f"student {name}", parameters(model)
    yield "outcome", floats(outcome)
    arms = get("arms", outcome).values()
    yield "accuracies", [[get(name, each) for name in ("best", "final")] for each in arms]


def kept(run: str) -> Several:
    """Whatever columns there are by row in a folder of a run: the teacher's labels, opinions, weights, targets."""
    found = Several()
    for path in sorted(Path(run).rglob("*.parquet")):
        whole = pq.read_table(path)
        order = np.argsort(np.array(whole["id"].to_pylist()), kind="stable")
        others = [name for name in whole.column_names if name != "id"]
        found += [np.array(whole[name].to_pylist())[order] for name in others]
    return found


def named(part: str, parts: Parts) -> Parts:
    return ((f"{part}: {name}", found) for name, found in parts)


@case(steady=False)
def distillation() -> Parts:
    """Every rule and every setting that changes bits, a few epochs each."""
    unweighted, debiased, oracle, arm, shuffled = map(get, ("unweighted", "debiased", "oracle", "arm", "shuffled"))
    fidelity, vid = get("fidelity"), {"vid": ("layers.1=layers.1",), "vid_scale": 0.5}
    several = {"unweighted": unweighted, "debiased": debiased, "shuffled": shuffled(), "oracle": oracle}
    several |= {"fidelity": fidelity, "threshold": get("threshold"), "product": get("compose")(debiased, fidelity)}
    yield from named("rules", came_to(distilled(rule=several, threshold=0.2)))
    own = {
        "refresh": call(arm, debiased, refresh=1),
        "hard": call(arm, debiased, targets="hard", confidence="entropy"),
        "ratio": call(arm, debiased, estimate="ratio", neighbors=9),
        "hot": call(arm, unweighted, temperature=3.0, temperature_squared=True),
        "half": call(arm, debiased, validation_in_training="half"),
        "gold": call(arm, unweighted, validation_in_training="yes"),
        "vid": call(arm, debiased, **vid),
        "control": call(arm, shuffled(), refresh=2),
        "conditional": call(arm, debiased, estimate="conditional", refresh=1),
    }
    yield from named("settings", came_to(distilled(rule=own)))
    sgd = {"optimizer": "sgd", "momentum": 0.8, "weight_decay": 0.01, "schedule": "warmup", "seed": 3}
    yield from named("sgd", came_to(distilled(rule=debiased, **sgd)))
    yield from named("bfloat16", came_to(distilled(rule=debiased, precision="bfloat16", schedule="constant")))
    trained = {"teacher_epochs": 0, "student_epochs": 0}
    yield from named("trained before", came_to(distilled(rule=debiased, **trained)))
    cnn = [call(get("CNN"), 1, CLASSES, width=each) for each in (4, 2)]
    seen = {"augmentation": ("flip", "translate"), "weight_decay": 0.01, "decayed": "kernels"}
    yield from named("images", came_to(distilled(*map(seeded, cnn), rule=debiased, data=splits(images=True), **seen)))


def seeded(model: Any) -> Any:
    """Its parameters made anew from whole numbers."""
    import torch

    for i, each in enumerate(model.parameters()):
        each.data = torch.from_numpy((noise(500 + i, each.numel()) % 257 / 512 - 0.25).astype(np.float32)).reshape(
            each.shape
        )
    return model


class Rows:
    """A map-style Dataset."""

    def __init__(self, inputs: Any, labels: Any) -> None:
        self.inputs, self.labels = inputs, labels

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, row: int) -> Any:
        return self.inputs[row], int(self.labels[row])


@case(steady=False)
def other_data() -> Parts:
    """Rows with ids, from a Dataset, streamed; models made by functions; a teacher that is a table."""
    debiased, data = get("debiased"), splits()
    makers = [lambda: get("MLP")(WIDTH, CLASSES, (8,)), lambda: get("MLP")(WIDTH, CLASSES, (4,))]
    yield from named("makers", came_to(distilled(*makers, rule=debiased)))
    ids = {name: call(get("Data"), *each, np.arange(len(each[0])) + 1000 * i) for i, (name, each) in enumerate(data.items())}
    yield from named("ids", came_to(distilled(rule=debiased, data=ids)))
    streamed = {**data, "unlabeled": get("Streamed")(Rows(*data["unlabeled"])), "labeled": Rows(*data["labeled"])}
    yield from named("streamed", came_to(distilled(rule=debiased, data=streamed)))
    for i, kind in enumerate(("probabilities", "logits", "logprobs")):
        teacher = {name: predictions(kind, 600 + 10 * i, each[1].numpy(), CLASSES, 24) for name, each in data.items()}
        rules = {"unweighted": get("unweighted"), "weighed": debiased}
        yield from named(kind, came_to(distilled(teacher, models()[1], rule=rules, kind=kind)))


@case(steady=False)
def runs() -> Parts:
    """Runs that keep a folder: `best` after advice, and two workers; read back, shown and exported."""
    best, debiased, read_run = map(get, ("best", "debiased", "read_run"))
    both, rules = models(), {"corrected": best, "weighed": debiased}
    advice = call(get("advise"), *both, **splits(), rule=rules, recipe=recipe(), run="best")
    yield "advice", floats(advice)
    report = distilled(*both, rule=rules, run="best")
    yield from named("best", came_to(report))
    yield "best: read back", floats(read_run(Path("best")))
    yield "best: kept", kept("best")
    alone = distilled(rule=rules)
    yield "best: without advice", list(map(parameters, get("students", alone).values()))
    rules = {"refresh": call(get("arm"), debiased, refresh=1), "oracle": get("oracle")}
    side_by_side = distilled(rule=rules, run="two", workers=2)
    yield from named("two workers", came_to(side_by_side))
    yield "two workers: kept", kept("two")
    yield "shown", [printed("show", each) for each in ("best", "two")]
    example = splits()["test"][0][:1]
    get("export_student")(get("student", report), example, Path("exported"), None)
    yield "exported", parameters(get("load_student")(Path("exported")))


MODELS = """
from wdistill import MLP

def teacher():
    return MLP(6, 3, (8,))
"""


def data_files() -> list[str]:
    """The splits as files, as `distill` takes them; teachers may be files too, t.parquet and p.npz."""
    words = []
    for i, (name, (inputs, labels)) in enumerate(splits().items()):
        found = {"id": np.arange(len(inputs)) + 1000 * i, "inputs": inputs.numpy(), "label": labels.numpy()}
        words += [f"--{name}", write(f"{name}.{'npz' if i % 2 else 'parquet'}", found)]
    Path("netmodels.py").write_text(MODELS)
    return words


def stored_teacher() -> str:
    parts = [(1000 * i + np.arange(len(each[1])), each[1].numpy()) for i, each in enumerate(splits().values())]
    ids, labels = (np.concatenate(each) for each in zip(*parts, strict=True))
    turned = np.argsort(noise(71, len(ids)))
    return write("t.parquet", {"id": ids[turned], "teacher": predictions("logits", 700, labels, CLASSES, 24)[turned]})


STUDENT = ["--student", f"mlp:inputs={WIDTH},classes={CLASSES},hidden=4"]
SHORT = ["--teacher-epochs", 3, "--student-epochs", 2, "--epochs", 3, "--batch-size", 16, "--rate", 0.03, "--device", "cpu"]


def shown(run: str, *words: Any) -> Parts:
    """What `distill` prints, keeps and exports."""
    yield "table", tables(done("distill", *words, "--run", run))
    yield "kept", kept(run)
    outcome = get("read_run")(Path(run))
    yield "outcome", floats(outcome)
    for i, arm in enumerate(get("arms", outcome)):
        done("export", run, "--output", f"{run}-{i}", "--arm", arm)
        yield f"student {i}", parameters(get("load_student")(Path(f"{run}-{i}")))


@case(steady=False)
def distilled_from_files() -> Parts:
    sys.path.insert(0, str(Path.cwd()))
    data = data_files()
    arms = [word for rule in ("unweighted", "debiased", "shuffled", "oracle") for word in ("--rule", rule)]
    given = ["--teacher", "netmodels:teacher", *STUDENT, *data, *SHORT]
    yield from named("arms", shown("arms", *given, *arms, "--refresh", 1))
    stored = ["--teacher", stored_teacher(), *STUDENT, *data, *SHORT, "--kind", "logits"]
    yield from named("a stored teacher, best", shown("stored", *stored, "--method", "best"))
    out = done("distill", *given, "--method", "best", "--advise", "--run", "advice")
    yield "advice: tables", tables(out)
    yield "advice: sentences", prose(out)


@case(steady=False)
def networks() -> Parts:
    """Initial parameters and logits of every network that comes with the package."""
    import torch

    images = torch.from_numpy((noise(800, 2, 3, 32, 32) % 256 / 128 - 1).astype(np.float32))
    made = {
        "MLP": lambda: get("MLP")(3 * 32 * 32, 4, (5, 6)),
        "CNN": lambda: call(get("CNN"), 3, 4, width=4),
        "MobileNet": lambda: call(get("MobileNet"), 3, 4, width=0.25),
        "CifarResNet": lambda: call(get("CifarResNet"), 3, 4, depth=11),
        "CifarResNet 1": lambda: call(get("CifarResNet"), 3, 4, depth=8, version=1),
        "ResNet": lambda: call(get("ResNet"), 3, 4, depth=18),
    }
    for name, make in made.items():
        torch.manual_seed(0)
        model = make().eval()
        with torch.no_grad():
            yield f"{name}: logits", model(images.reshape(2, -1) if name == "MLP" else images).numpy()
        yield f"{name}: parameters", [digest(each.numpy()) for each in model.state_dict().values()]


# errors and imports -------------------------------------------------------------------------------------------------


def refused(*words: Any) -> list[Any]:
    """The exit code, which parts an error has, and whether it has a traceback."""
    code, _, err = run(*words)
    errors = err[err.find("error:") :] if "error:" in err else ""
    return [code, bool(errors), [part in errors for part in PARTS], "Traceback" in err]


def bad_tables() -> Parts:
    gold, rest = gold_and_rest(rows=60)
    tables = both("parquet", gold, rest)
    yield "no such file", ["weigh", "--validation", "none.parquet", "--unlabeled", "u.parquet", "--output", "w.parquet"]
    for name, more in {
        "no such rule": ["--rule", "debaised"],
        "no such estimate": ["--estimate", "papre"],
        "no such flag": ["--confidnce", "margin"],
        "a rule without its threshold": ["--rule", "threshold"],
        "an option of another rule": ["--rule", "unweighted", "--neighbors", 3],
        "too many neighbours": ["--neighbors", 9999],
    }.items():
        yield name, ["weigh", *tables, *more, "--output", "w.parquet"]
    yield "no such format", ["weigh", *tables, "--output", "w.xyz"]
    yield "cannot be written", ["weigh", *tables, "--output", "/proc/w.parquet"]
    spoilt = rest["teacher"].copy()
    spoilt[7, 2] = np.nan
    unlike = {
        "not a number": (gold, {**rest, "teacher": spoilt}),
        "other classes": (gold, {**rest, "student": rest["student"][:, :4]}),
        "no probabilities": (gold, {**rest, "teacher": rest["teacher"] * 2}),
        "no such class": ({**gold, "label": gold["label"] + 3}, rest),
        "an id twice": (gold, {**rest, "id": rest["id"] // 2}),
        "no rows": (some(gold, slice(0)), rest),
        "no column": (without(gold, "student"), rest),
    }
    for i, (name, each) in enumerate(unlike.items()):
        yield name, ["weigh", *both("parquet", *each, stem=f"bad{i}"), "--output", "w.parquet"]
    parted = ["--unlabeled", write("p.parquet", some(rest, slice(40), "id", "teacher"))]
    parted += ["--unlabeled", write("q.parquet", some(rest, slice(20, 60), "id", "student"))]
    yield "other ids", ["weigh", *tables[:2], *parted, "--output", "w.parquet"]
    Path("garbage.parquet").write_bytes(b"PAR1 nothing that anyone could read")
    yield "garbage", ["weigh", *tables[:2], "--unlabeled", "garbage.parquet", "--output", "w.parquet"]
    few = both("parquet", some(gold, slice(6)), rest, stem="few")
    yield "too few gold rows", ["weigh", *few, "--method", "best", "--output", "w.parquet"]
    yield "advice on too few", ["advise", *few]
    yield "a plan that cannot be", ["advise", *tables, "--plan", "next.txt"]


def bad_runs() -> Parts:
    data, given = data_files(), ["--teacher", f"mlp:inputs={WIDTH},classes={CLASSES},hidden=8", *STUDENT, *SHORT]
    leaking = [*data[:2], "--validation", "labeled.parquet", *data[4:]]
    yield "leak", ["distill", *given, *leaking, "--run", "leak"]
    yield "diverges", ["distill", *given, *data, "--optimizer", "sgd", "--rate", 1e30, "--run", "diverges"]
    Path("full").mkdir()
    Path("full/notes.txt").write_text("mine")
    yield "a folder of something else", ["distill", *given, *data, "--run", "full"]
    Path("wrong.toml").write_text("epoch = 3\n")
    yield "no such setting", ["distill", *given, *data, "--recipe", "wrong.toml", "--run", "wrong"]
    yield "out of range", ["distill", *given, *data, "--epochs", 0, "--run", "wrong"]
    yield "two ways to name arms", ["distill", *given, *data, "--method", "best", "--rule", "debiased", "--run", "wrong"]
    yield "no such model", ["distill", "--teacher", "mpl:inputs=6", *given[2:], *data, "--run", "wrong"]
    yield "another recipe", ["distill", *given, *data, "--seed", 4, "--run", "held"]
    yield "no such arm", ["export", "held", "--output", "out", "--arm", "none"]
    yield "no run", ["show", "nowhere"]
    yield "nothing to report", ["report", "nowhere"]


@case(steady=True)
def exit_codes() -> Parts:
    for name, words in bad_tables():
        yield name, refused(*words)
    data, given = data_files(), ["--teacher", f"mlp:inputs={WIDTH},classes={CLASSES},hidden=8", *STUDENT, *SHORT]
    busy: list[Any] = []

    def meanwhile(known: Any) -> Any:
        """A rule of a user, who starts the same run in another place while this one is at work."""
        busy.append(refused("distill", *given, *data, "--run", "held"))
        return np.ones(SIZES["unlabeled"])

    distilled(rule={"mine": meanwhile}, run="held")
    yield "busy", busy[0]
    for name, words in bad_runs():
        yield name, refused(*words)
    for name in ("reproduce", "theory", "data"):
        yield f"no such thing to {name}", refused(name, "nothing")
    yield "no such command", refused("wiegh")
    yield "no command", refused()


@case(steady=True)
def exceptions() -> Parts:
    """The kinds of errors that Python's callers catch."""
    known, debiased = evidence(), get("debiased")
    tries = {
        "InputError": lambda: get("Evidence")(
            known.validation_labels[:5], known.validation_teacher, known.validation_student
        ),
        "ConfigError": lambda: call(debiased, known, neighbors=0),
        "FileError": lambda: get("load")("nowhere.npz"),
        "LeakError": lambda: distilled(rule=debiased, data={**splits(), "validation": splits()["labeled"]}),
        "NumericalError": lambda: distilled(rule=debiased, optimizer="sgd", rate=1e30),
    }
    for name, attempt in tries.items():
        try:
            attempt()
            raised = False
        except get(name) as error:
            raised = isinstance(error, get("WdistillError"))
        yield name, raised


@case(steady=True)
def imports() -> Parts:
    """What `import wdistill`, --version and --help load: nothing that takes time."""
    at, end = CHECKOUT, f"print('loaded', *sorted(set({HEAVY}) & set(sys.modules)))"
    yield "import", program("-c", f"import sys, wdistill; {end}", at=at).split()
    for words in (["--version"], ["--help"], ["weigh", "--help"], ["distill", "--help"], ["theory", "--help"]):
        code = f"import sys, runpy; sys.argv = ['wdistill', *{words}]\n"
        code += f"try: runpy.run_module('wdistill', run_name='__main__')\nexcept SystemExit: {end}"
        yield " ".join(words), program("-c", code, at=at).split("loaded")[-1].split()


# the program --------------------------------------------------------------------------------------------------------


def numbers_of(name: str, keep: Path | None = None) -> dict[str, Any]:
    """Digests of one case by part, made in a folder of its own; where it fails, that is what it says."""
    before, found = Path.cwd(), {}
    with tempfile.TemporaryDirectory(prefix="net-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.chdir(folder)
        try:
            for part, value in CASES[name]():
                found[f"{name}: {part}"] = digest(value)
                if keep is not None:
                    content = json.dumps(sorted(map(plain, value), key=str) if isinstance(value, Several) else plain(value))
                    file = re.sub(r"[^-\w]+", "-", f"{name} {part}")
                    (keep / f"{file}.json").write_text(content.replace("], ", "],\n"))
        except Exception as error:
            traceback.print_exc()
            found[f"{name}: failed"] = f"{type(error).__name__}: {error}"
        finally:
            os.chdir(before)
    return found


def chosen(only: Sequence[str]) -> list[str]:
    return [name for name in CASES if not only or any(word in name for word in only)]


def main() -> int:
    parser = argparse.ArgumentParser(description="The numbers that a redesign must not change, as digests.")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="cases with one of these in their names")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where the JSON goes (default: stdout)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where the numbers themselves go, a file for each part")
    parser.add_argument("--steady", action="store_true", help="only the cases whose digests are the same on every machine")
    parser.add_argument("--freeze", action="store_true", help="write the digests of the steady cases to net.json")
    given = parser.parse_args()
    if not SETTING.items() <= os.environ.items():  # libraries look at it when they are imported: begin again
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **SETTING})
    if given.keep is not None:
        given.keep = given.keep.resolve()
        given.keep.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"checkout": str(CHECKOUT)}
    for name in chosen(given.only):
        if name not in STEADY and (given.steady or given.freeze):
            continue
        found |= numbers_of(name, given.keep)
    if given.freeze:
        steady = {part: each for part, each in found.items() if part.partition(":")[0] in STEADY}
        FROZEN.write_text(json.dumps(steady, indent=1) + "\n")
        return 0
    text = json.dumps(found, indent=1) + "\n"
    given.output.write_text(text) if given.output else print(text, end="")
    return int(any(part.endswith(": failed") for part in found))


if __name__ == "__main__":
    sys.exit(main())
