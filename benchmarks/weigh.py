"""How fast the weigh step is, next to what people would write today.

    python -m benchmarks.weigh [--quick] [--only 1,3]

Contenders take turns, so that noise hits all alike; each gets every thread, and one untimed warm-up, which is where
compilation happens. Tables go to the screen, and every figure to `results.jsonl` beside this file. README.md says what is
compared with what.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pykdtree.kdtree import KDTree as PyTree
from rich import box
from rich.console import Console
from rich.table import Table
from scipy.spatial import cKDTree
from scipy.special import ndtr
from sklearn.neighbors import KDTree as SkTree
from sklearn.neighbors import KNeighborsRegressor
from threadpoolctl import threadpool_limits

import wdistill
from wdistill import store
from wdistill.neighbors import neighbors
from wdistill.threads import parallel, threads
from wdistill.weighting import neighbors_of

SEED = 20250711
THREADS = threads()
ROUNDS, SLOW_ROUNDS, SLOW = 5, 3, 5.0  # a contender that takes more than SLOW seconds has fewer rounds
RESULTS = Path(__file__).with_name("results.jsonl")
GB = 1e9

Points = np.ndarray[Any, np.dtype[np.float64]]
console = Console(width=140)
records: list[dict[str, Any]] = []


# ---------------------------------------------------------------- data


def latent(rng: np.random.Generator, n: int) -> Points:
    """(n, 2) normal numbers, one for the teacher's certainty and one for the student's; they agree to some extent."""
    z = rng.standard_normal((n, 2))
    z[:, 1] = 0.7 * z[:, 0] + 0.714 * z[:, 1]
    return z


def certainty(z: Points, a: float, b: float) -> Points:
    """Normal numbers as certainties in [0, 1) by the Kumaraswamy distribution, which is Beta-like with a closed form."""
    return (1 - ndtr(-z) ** (1 / b)) ** (1 / a)


def plane(rng: np.random.Generator, n: int, ties: bool = False) -> Points:
    """(n, 2) confidences as float32 models give them; with ties, float16 ones of which many are exactly 1."""
    z = latent(rng, n)
    found = np.stack([certainty(z[:, 0], 5, 0.5), certainty(z[:, 1], 2.5, 0.7)], axis=1).astype(np.float32)
    if ties:
        found = found.astype(np.float16)
        found[z > (0.4, 1.0)] = 1
    return found.astype(np.float64)


def outcomes(rng: np.random.Generator, points: Points) -> Points:
    """(m, 2) whether the teacher is wrong at a validation point, and its distortion where it is."""
    wrong = rng.random(len(points)) > 0.3 + 0.69 * points[:, 0]
    return np.stack([wrong, wrong * rng.lognormal(0.5, 1.0, len(points))], axis=1)


def logits(rng: np.random.Generator, labels: np.ndarray, certain: Points, k: int) -> np.ndarray:
    """(n, K) float32 logits whose chosen class, mostly the label, has about the given probability."""
    n = len(labels)
    right = rng.random(n) < 0.3 + 0.69 * certain
    chosen = np.where(right, labels, rng.integers(k, size=n))
    found = rng.standard_normal((n, k), dtype=np.float32) * np.float32(2)
    odds = certain / (1 - certain + 1e-9)
    found[np.arange(n), chosen] = np.log(np.exp(found).sum(axis=1, dtype=np.float64) * odds + 1e-6)
    return found


def softmax(values: np.ndarray) -> np.ndarray:
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    powers /= powers.sum(axis=1, keepdims=True)
    return powers


def predictions(rng: np.random.Generator, n: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels (n,), and the teacher's and the student's logits (n, K)."""
    z, labels = latent(rng, n), np.arange(n) % k
    teacher, student = (logits(rng, labels, certainty(z[:, i], *shape), k) for i, shape in enumerate([(5, 0.5), (2.5, 0.7)]))
    return labels, teacher, student


# ---------------------------------------------------------------- timing and reporting


def say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def race(contenders: dict[str, Callable[[], Any]]) -> tuple[dict[str, float], dict[str, Any]]:
    """Median seconds of every contender, taking turns, and what each returned in the untimed warm-up."""
    returned, times, rounds = {}, {name: [] for name in contenders}, {}
    for name, run in contenders.items():
        start = time.perf_counter()
        returned[name] = run()
        rounds[name] = SLOW_ROUNDS if time.perf_counter() - start > SLOW else ROUNDS
        say(f"  warmed up: {name}")
    for turn in range(ROUNDS):
        for name, run in contenders.items():
            if turn < rounds[name]:
                start = time.perf_counter()
                run()
                times[name].append(time.perf_counter() - start)
    for name, each in times.items():
        say(f"  {name}: {' '.join(f'{seconds:.3f}' for seconds in each)} s")
    return {name: statistics.median(each) for name, each in times.items()}, returned


def verdict(met_target: bool, met_goal: bool = False) -> str:
    return "[green]goal met[/]" if met_goal else "[green]target met[/]" if met_target else "[red]target missed[/]"


def table(title: str, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    shown = Table(*columns, title=title, title_justify="left", box=box.SIMPLE)
    for row in rows:
        shown.add_row(*row)
    console.print(shown)


def keep(number: int, **figures: Any) -> None:
    records.append({"table": number, **figures})


# ---------------------------------------------------------------- 1: the whole weigh step


def ours(evidence: wdistill.Evidence) -> Points:
    return wdistill.debiased(replace(evidence))  # made anew, so that its checks are timed as well


def peer_outcomes(evidence: wdistill.Evidence, teacher: Any, student: Any, log: Callable[[Any], Any]) -> Points:
    """Lines 3 to 11 of Algorithm 2 on NumPy arrays or torch tensors: wrong, and distortion where wrong."""
    labels = evidence.validation_labels
    logs = log(student.clip(1e-12))
    wrong = np.asarray(teacher.argmax(1)) != labels
    truth, target = -logs[np.arange(len(labels)), labels], -(teacher * logs).sum(1)
    return np.stack([wrong, wrong * (np.asarray(target) / np.maximum(np.asarray(truth), 1e-6))], axis=1)


def peer_weights(means: Points) -> Points:
    error, distorted = means.T
    return 1 / (1 + error * np.maximum(0, distorted - error))


def numpy_margin(values: np.ndarray) -> Points:
    two = np.partition(values, -2, axis=1)[:, -2:].astype(np.float64)
    return two[:, 1] - two[:, 0]


def numpy_part(evidence: wdistill.Evidence) -> tuple[Points, Points, Points]:
    """Validation points, their outcomes, and queries, by NumPy."""
    given = (evidence.validation_teacher, evidence.validation_student, evidence.teacher, evidence.student)
    known_t, known_s, teacher, student = map(softmax, given) if evidence.kind == "logits" else given
    points = np.stack([numpy_margin(known_t), numpy_margin(known_s)], axis=1)
    queries = np.stack([numpy_margin(teacher), numpy_margin(student)], axis=1)
    return points, peer_outcomes(evidence, known_t, known_s, np.log), queries


def numpy_sklearn(evidence: wdistill.Evidence, options: dict[str, Any]) -> Points:
    points, answers, queries = numpy_part(evidence)
    return peer_weights(KNeighborsRegressor(neighbors_of(len(points)), **options).fit(points, answers).predict(queries))


def best_options(evidence: wdistill.Evidence) -> dict[str, Any]:
    """The options that make scikit-learn's regressor fastest on some of the queries."""
    points, answers, queries = numpy_part(evidence)
    seconds = {}
    for algorithm in ("kd_tree", "auto"):
        for jobs in (None, THREADS):
            regressor = KNeighborsRegressor(neighbors_of(len(points)), algorithm=algorithm, n_jobs=jobs).fit(points, answers)
            start = time.perf_counter()
            regressor.predict(queries[:100_000])
            seconds[algorithm, jobs] = time.perf_counter() - start
    algorithm, jobs = min(seconds, key=seconds.__getitem__)
    return {"algorithm": algorithm, "n_jobs": jobs}


def torch_margin(values: torch.Tensor) -> Points:
    two = torch.topk(values, 2, dim=1).values.double()
    return (two[:, 0] - two[:, 1]).numpy()


def torch_ckdtree(evidence: wdistill.Evidence) -> Points:
    given = (evidence.validation_teacher, evidence.validation_student, evidence.teacher, evidence.student)
    known_t, known_s, teacher, student = (
        tensor.softmax(dim=1) if evidence.kind == "logits" else tensor for tensor in map(torch.from_numpy, given)
    )
    points = np.stack([torch_margin(known_t), torch_margin(known_s)], axis=1)
    queries = np.stack([torch_margin(teacher), torch_margin(student)], axis=1)
    return peer_weights(ckdtree(points, peer_outcomes(evidence, known_t, known_s, torch.log), queries))


def whole_step(shrink: int) -> None:
    rows = []
    for n, k, m in ((1_000_000 // shrink, 10, 2_000), (160_000 // shrink, 1_000, 10_000)):
        rng = np.random.default_rng(SEED)
        known, unknown = predictions(rng, m, k), predictions(rng, n, k)[1:]
        for kind in ("logits", "probabilities"):
            if kind == "probabilities":
                known, unknown = (known[0], *map(softmax, known[1:])), tuple(map(softmax, unknown))
            say(f"1: {n:,} × {k}, m = {m:,}, {kind}")
            evidence = wdistill.Evidence(*known, *unknown, kind=kind)
            options = best_options(evidence)
            contenders = {
                "wdistill": lambda e=evidence: ours(e),
                "NumPy + scikit-learn": lambda e=evidence, o=options: numpy_sklearn(e, o),
                "torch + cKDTree": lambda e=evidence: torch_ckdtree(e),
            }
            seconds, weights = race(contenders)
            for name, target, goal in (("NumPy + scikit-learn", 10, 25), ("torch + cKDTree", 7, 15)):
                ratio = seconds[name] / seconds["wdistill"]
                differ = int(np.count_nonzero(np.abs(weights[name] - weights["wdistill"]) > 1e-4))
                case = {"n": n, "K": k, "m": m, "kind": kind, "peer": name}
                keep(1, **case, seconds=seconds["wdistill"], peer_seconds=seconds[name], ratio=ratio, differ=differ)
                rows.append(
                    (f"{n:,} × {k:,}, {m:,}", kind, f"{seconds['wdistill'] * 1e3:.0f}", name, f"{seconds[name] * 1e3:.0f}")
                    + (f"{ratio:.1f}×", f"≥ {target}, goal {goal}", verdict(ratio >= target, ratio >= goal), f"{differ:,}")
                )
            say(f"  scikit-learn with {options}")
            del evidence, contenders
    head = ("n × K, m", "kind", "wdistill ms", "peer", "peer ms", "ratio", "wanted", "", "weights > 1e-4 apart")
    table("1  The whole weigh step, float32, medians", head, rows)


# ---------------------------------------------------------------- 2: against reading the arrays once


def read_once(evidence: wdistill.Evidence) -> float:
    return sum(float(torch.from_numpy(values).sum()) for values in (evidence.teacher, evidence.student))


def against_memory(shrink: int) -> None:
    n, k, m, block = 1_280_000 // shrink, 1_000, 10_000, 4_096
    needed, free = 16 * GB / shrink, memory("MemAvailable")
    if free < needed:
        console.print(f"2  Skipped: {needed / GB:.1f} GB of free memory needed, {free / GB:.1f} GB found.\n")
        return
    say(f"2: {n:,} × {k}, m = {m:,}")
    rng = np.random.default_rng(SEED)
    known = predictions(rng, m, k)
    ranks = (ndtr(latent(rng, n)) * block).astype(np.int64)
    certain = (np.arange(block) + 0.5) / block
    unknown = []
    for column in range(2):  # distinct rows in order of certainty, put into place by rank: 5 GB in a few seconds
        rows = softmax(logits(rng, np.arange(block) % k, certain, k))
        unknown.append(np.take(rows, ranks[:, column], axis=0))
    evidence = wdistill.Evidence(known[0], *map(softmax, known[1:]), *unknown)
    seconds, _ = race({"wdistill": lambda: ours(evidence), "reading once": lambda: read_once(evidence)})
    size, ratio = 2 * unknown[0].nbytes / GB, seconds["wdistill"] / seconds["reading once"]
    keep(2, n=n, K=k, m=m, gigabytes=size, seconds=seconds["wdistill"], read_seconds=seconds["reading once"], ratio=ratio)
    cells = (
        f"{n:,} × {k:,}, {m:,}",
        f"{size:.1f}",
        f"{seconds['wdistill'] * 1e3:.0f}",
        f"{seconds['reading once'] * 1e3:.0f}",
    )
    head = ("n × K, m", "GB", "wdistill ms", "reading once ms", "ratio", "wanted", "")
    table(
        f"2  The whole weigh step against summing both arrays once by torch, {THREADS} threads",
        head,
        [(*cells, f"{ratio:.2f}×", "≤ 3, goal 2", verdict(ratio <= 3, ratio <= 2))],
    )


# ---------------------------------------------------------------- 3: nearest neighbours


def averaged(search: Callable[[Points], np.ndarray], answers: Points, queries: Points, chunk: int) -> Points:
    """Mean answers of the points a search finds, a chunk of queries at a time, so that the indices stay in the cache."""
    columns, means = np.ascontiguousarray(answers.T), np.empty((len(queries), 2))
    for first in range(0, len(queries), chunk):
        nearest = search(queries[first : first + chunk])
        for column, values in enumerate(columns):
            means[first : first + chunk, column] = values.take(nearest).mean(axis=1)
    return means


def ckdtree(points: Points, answers: Points, queries: Points) -> Points:
    tree, k = cKDTree(points), neighbors_of(len(points))
    return averaged(lambda part: tree.query(part, k, workers=THREADS)[1], answers, queries, 1 << 16)


def pykdtree(points: Points, answers: Points, queries: Points) -> Points:
    tree, k = PyTree(points), neighbors_of(len(points))
    return averaged(lambda part: tree.query(part, k, sqr_dists=True)[1], answers, queries, 1 << 18)


def sklearn_tree(points: Points, answers: Points, queries: Points) -> Points:
    tree, k, means = SkTree(points), neighbors_of(len(points)), np.empty((len(queries), 2))

    def search(part: Points) -> np.ndarray:
        return tree.query(part, k, return_distance=False, sort_results=False)

    def work(part: slice) -> None:  # one query runs on one thread, but several may run at once
        means[part] = averaged(search, answers, queries[part], 1 << 14)

    parallel(work, len(queries), 1 << 14)
    return means


def nearest(points: Points, answers: Points, queries: Points) -> Points:
    return neighbors(points, answers, neighbors_of(len(points))).means(queries)


def along_curve(queries: Points) -> np.ndarray:
    """The order of queries along the Z-curve: interleaved bits of both coordinates."""
    code = np.zeros(len(queries), np.uint64)
    grid = (queries * 65535).astype(np.uint64)
    for bit in np.arange(16, dtype=np.uint64):
        for axis in range(2):
            code |= ((grid[:, axis] >> bit) & np.uint64(1)) << (np.uint64(2) * bit + np.uint64(axis))
    return np.argsort(code, kind="stable")


def clear_cut(points: Points, queries: Points) -> np.ndarray:
    """Where the k-th and the next distance differ, so that there is only one set of k nearest points."""
    tree, k, clear = cKDTree(points), neighbors_of(len(points)), np.empty(len(queries), bool)
    for first in range(0, len(queries), 1 << 16):
        far = tree.query(queries[first : first + (1 << 16)], [k, k + 1], workers=THREADS)[0]
        clear[first : first + (1 << 16)] = far[:, 1] - far[:, 0] > 1e-12
    return clear


def neighbor_peers(shrink: int) -> None:
    n, m, rows = 1_280_000 // shrink, 10_000, []
    for data in ("smooth", "tie-heavy"):
        say(f"3: {n:,} queries, m = {m:,}, {data}, against three trees")
        rng = np.random.default_rng(SEED)
        points, queries = (plane(rng, size, data == "tie-heavy") for size in (m, n))
        answers, order = outcomes(rng, points), along_curve(queries)
        given = {"as given": queries, "sorted": queries[order]}
        peers = {"cKDTree": ckdtree, "pykdtree": pykdtree, "scikit-learn KDTree": sklearn_tree}
        contenders = {"wdistill": lambda p=points, a=answers, q=queries: nearest(p, a, q)}
        for name, peer in peers.items():
            for how, asked in given.items():
                contenders[f"{name}, {how}"] = lambda f=peer, p=points, a=answers, q=asked: f(p, a, q)
        seconds, means = race(contenders)
        clear = clear_cut(points, queries)
        rows.append(
            (data, "wdistill", "as given", f"{seconds['wdistill']:.2f}", f"{n / seconds['wdistill'] / 1e6:.2f}", "", "")
        )
        for name in peers:
            apart = np.abs(means[f"{name}, as given"] - means["wdistill"]).max(axis=1) > 1e-9
            wrong = int(np.count_nonzero(apart & clear))
            if data == "smooth" and wrong:
                raise SystemExit(f"{name} and wdistill differ on {wrong} queries without a tie at the k-th distance")
            how = min(given, key=lambda how, name=name: seconds[f"{name}, {how}"])
            taken = seconds[f"{name}, {how}"]
            ratio = taken / seconds["wdistill"]
            case = {"n": n, "m": m, "data": data, "peer": name, "queries": how}
            keep(
                3,
                **case,
                seconds=seconds["wdistill"],
                peer_seconds=taken,
                ratio=ratio,
                tied=int((~clear).sum()),
                apart=wrong,
            )
            agreement = f"{int(clear.sum()) - wrong:,} alike, {wrong:,} apart, {int((~clear).sum()):,} tied"
            rows.append((data, name, how, f"{taken:.2f}", f"{n / taken / 1e6:.2f}", f"{ratio:.1f}×", agreement))
    head = (
        "data",
        "who",
        "queries",
        "s",
        "M queries/s",
        "time / wdistill",
        "answers within 1e-9 of wdistill's; ties left out",
    )
    table(f"3  Means over the nearest neighbours, {n:,} queries, m = {m:,}; the better order for each peer", head, rows)


def neighbor_growth(shrink: int) -> None:
    sizes = [(n // shrink, m) for m in (2_000, 10_000) for n in (50_000, 160_000, 1_280_000, 10_000_000)]
    sizes = [(1_280_000 // shrink, 500), *sizes, (1_280_000 // shrink, 100_000)]
    rows = []
    for n, m in sizes:
        say(f"3: growth, {n:,} queries, m = {m:,}")
        rng = np.random.default_rng(SEED)
        points, queries = plane(rng, m), plane(rng, n)
        answers, ordered = outcomes(rng, points), queries[along_curve(queries)]
        seconds, _ = race(
            {
                "wdistill": lambda p=points, a=answers, q=queries: nearest(p, a, q),
                "cKDTree": lambda p=points, a=answers, q=ordered: ckdtree(p, a, q),
            }
        )
        mine, theirs = seconds["wdistill"], seconds["cKDTree"]
        keep(3, n=n, m=m, data="smooth, growth", peer="cKDTree", seconds=mine, peer_seconds=theirs, ratio=theirs / mine)
        rates = (f"{n / mine / 1e6:.2f}", f"{n / theirs / 1e6:.2f}", f"{theirs / mine:.1f}×")
        rows.append((f"{n:,}", f"{m:,}", f"{mine:.3f}", f"{theirs:.3f}", *rates))
    head = ("n", "m", "wdistill s", "cKDTree s", "wdistill M queries/s", "cKDTree M queries/s", "cKDTree time / wdistill")
    table("3  Growth in n and m, smooth; wdistill takes queries as given, cKDTree sorted along a curve", head, rows)


def nearest_neighbours(shrink: int) -> None:
    neighbor_peers(shrink)
    neighbor_growth(shrink)


# ---------------------------------------------------------------- 4: fresh processes

FIRST_CALL = """
import time, warnings
import numpy as np
import wdistill
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
draw = lambda n: rng.dirichlet(np.full(10, 0.1), n).astype(np.float32)
evidence = wdistill.Evidence(np.arange(300) % 10, draw(300), draw(300), draw(1200), draw(1200))
start = time.perf_counter()
wdistill.debiased(evidence)
print(time.perf_counter() - start)
"""


def own_time(code: str) -> float:
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


def whole_time(*arguments: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return time.perf_counter() - start


def fresh_processes(_: int) -> None:
    command = "import sys; from wdistill.cli import main; sys.exit(main())"  # as the installed script does
    cases = [
        ("first debiased() on 1,200 × 10, m = 300, imports done", 1.0, lambda: own_time(FIRST_CALL)),
        ('python -c "import wdistill"', 0.3, lambda: whole_time("-c", "import wdistill")),
    ]
    if importlib.util.find_spec("wdistill.cli"):
        cases.append(("wdistill --help", 0.5, lambda: whole_time("-c", command, "--help")))
    else:
        console.print("4  Skipped `wdistill --help`: there is no such command in this version.")
    rows = []
    for name, limit, run in cases:
        say(f"4: {name}")
        seconds = statistics.median([run() for _ in range(ROUNDS + 1)][1:])
        keep(4, case=name, seconds=seconds, limit=limit)
        rows.append((name, f"{seconds:.3f}", f"< {limit}", verdict(seconds < limit)))
    table("4  Fresh processes, medians", ("what", "s", "wanted", ""), rows)


# ---------------------------------------------------------------- the run


def memory(field: str) -> float:
    """Bytes by that name in /proc/meminfo."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(float(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def git(*arguments: str) -> str:
    found = subprocess.run(["git", *arguments], cwd=RESULTS.parent, capture_output=True, text=True)
    return found.stdout.strip() if found.returncode == 0 else "unknown"


def circumstances(quick: bool) -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    changed = git("status", "--porcelain", "--", ":/", f":(exclude){RESULTS.name}")
    packages = ("numpy", "numba", "torch", "scikit-learn", "scipy", "pykdtree")
    return {
        "when": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "commit": git("rev-parse", "HEAD") + (" (dirty)" if changed else ""),
        "cpu": next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown"),
        "threads": THREADS,
        "memory_gb": round(memory("MemTotal") / GB, 1),
        "load": [round(each, 2) for each in os.getloadavg()],
        "versions": {"python": sys.version.split()[0], **{name: version(name) for name in packages}},
        "seed": SEED,
        "quick": quick,
    }


TABLES = {1: whole_step, 2: against_memory, 3: nearest_neighbours, 4: fresh_processes}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.weigh", description="Measure the weigh step and its peers.")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the rows: to see that it runs")
    parser.add_argument("--only", default="1,2,3,4", help="tables to make, such as 1,3")
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    warnings.simplefilter("ignore", wdistill.WdistillWarning)
    header = circumstances(options.quick)
    for name, value in header.items():
        console.print(f"{name:>10}  {value}", highlight=False)
    with threadpool_limits(THREADS):
        for number in sorted({int(each) for each in options.only.split(",")}):
            TABLES[number](20 if options.quick else 1)
            gc.collect()
    lines = "".join(json.dumps(header | record) + "\n" for record in records)
    store.write_bytes(RESULTS, (RESULTS.read_bytes() if RESULTS.exists() else b"") + lines.encode())


if __name__ == "__main__":
    main()
