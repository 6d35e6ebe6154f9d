"""How fast the weigh step is, next to what people would write today.

    python -m benchmarks.weigh [--quick] [--only 1,3]

Contenders take turns, so that noise hits all alike; each gets every thread, and one untimed warm-up, which is where
compilation happens. Tables go to the screen, and every figure to `results.jsonl` beside this file. README.md says what is
compared with what.
"""

from __future__ import annotations

import importlib.util
import statistics
import subprocess
import sys
import time
from functools import partial

import numpy as np
import torch
from threadpoolctl import threadpool_limits

import wdistill
from benchmarks import data, peers
from benchmarks.measuring import GB, ROUNDS, SEED, THREADS, console, keep, main, memory, race, say, table, verdict

# ---------------------------------------------------------------- 1: the whole weigh step


def whole_step(shrink: int) -> None:
    rows = []
    for n, k, m in ((1_000_000 // shrink, 10, 2_000), (160_000 // shrink, 1_000, 10_000)):
        rng = np.random.default_rng(SEED)
        known, unknown = data.predictions(rng, m, k), data.predictions(rng, n, k)[1:]
        for kind in ("logits", "probabilities"):
            if kind == "probabilities":
                known, unknown = (known[0], *map(data.softmax, known[1:])), tuple(map(data.softmax, unknown))
            say(f"1: {n:,} × {k}, m = {m:,}, {kind}")
            evidence = wdistill.Evidence(*known, *unknown, kind=kind)
            options = peers.best_options(evidence)
            contenders = {
                "wdistill": partial(peers.ours, evidence),
                "NumPy + scikit-learn": partial(peers.numpy_sklearn, evidence, options),
                "torch + cKDTree": partial(peers.torch_ckdtree, evidence),
            }
            seconds, weights = race(contenders)
            for name, target, goal in (("NumPy + scikit-learn", 10, 25), ("torch + cKDTree", 7, 15)):
                ratio = seconds[name] / seconds["wdistill"]
                differ = int(np.count_nonzero(np.abs(weights[name] - weights["wdistill"]) > 1e-4))
                case = {"n": n, "K": k, "m": m, "kind": kind, "peer": name}
                keep(1, **case, seconds=seconds["wdistill"], peer_seconds=seconds[name], ratio=ratio, differ=differ)
                took = (f"{seconds['wdistill'] * 1e3:.0f}", name, f"{seconds[name] * 1e3:.0f}", f"{ratio:.1f}×")
                judged = (f"≥ {target}, goal {goal}", verdict(ratio >= target, ratio >= goal), f"{differ:,}")
                rows.append((f"{n:,} × {k:,}, {m:,}", kind, *took, *judged))
            say(f"  scikit-learn with {options}")
            del evidence, contenders
    head = ("n × K, m", "kind", "wdistill ms", "peer", "peer ms", "ratio", "wanted", "", "differ")
    table("1  The whole weigh step, float32, medians; weights more than 1e-4 from wdistill's differ", head, rows)


# ---------------------------------------------------------------- 2: against reading the arrays once


def against_memory(shrink: int) -> None:
    n, k, m = 1_280_000 // shrink, 1_000, 10_000
    needed, free = 16 * GB / shrink, memory("MemAvailable")
    if free < needed:
        console.print(f"2  Skipped: {needed / GB:.1f} GB of free memory needed, {free / GB:.1f} GB found.\n")
        return
    say(f"2: {n:,} × {k}, m = {m:,}")
    rng = np.random.default_rng(SEED)
    known = data.predictions(rng, m, k)
    teacher, student = data.tiled(rng, n, k)
    evidence = wdistill.Evidence(known[0], *map(data.softmax, known[1:]), teacher, student)
    seconds, _ = race({"wdistill": partial(peers.ours, evidence), "reading once": partial(peers.read_once, evidence)})
    mine, reading, size = seconds["wdistill"], seconds["reading once"], 2 * teacher.nbytes / GB
    ratio = mine / reading
    keep(2, n=n, K=k, m=m, gigabytes=size, seconds=mine, read_seconds=reading, ratio=ratio)
    took = (f"{size:.1f}", f"{mine * 1e3:.0f}", f"{reading * 1e3:.0f}", f"{ratio:.2f}×")
    row = (f"{n:,} × {k:,}, {m:,}", *took, "≤ 3, goal 2", verdict(ratio <= 3, ratio <= 2))
    head = ("n × K, m", "GB", "wdistill ms", "reading once ms", "ratio", "wanted", "")
    table(f"2  The whole weigh step against summing both arrays once by torch, {THREADS} threads", head, [row])


# ---------------------------------------------------------------- 3: nearest neighbours


TREES = {"cKDTree": peers.ckdtree, "pykdtree": peers.pykdtree, "scikit-learn KDTree": peers.sklearn_tree}


def neighbor_peers(shrink: int) -> None:
    n, m, rows = 1_280_000 // shrink, 10_000, []
    for shape in ("smooth", "tie-heavy"):
        say(f"3: {n:,} queries, m = {m:,}, {shape}, against three trees")
        rng = np.random.default_rng(SEED)
        points, queries = (data.plane(rng, size, ties=shape == "tie-heavy") for size in (m, n))
        answers = data.outcomes(rng, points)
        orders = {"as given": queries, "sorted": queries[peers.along_curve(queries)]}
        contenders = {"wdistill": partial(peers.nearest, points, answers, queries)}
        for name, tree in TREES.items():
            for order, asked in orders.items():
                contenders[f"{name}, {order}"] = partial(tree, points, answers, asked)
        seconds, means = race(contenders)
        mine, clear = seconds["wdistill"], peers.clear_cut(points, queries)
        rows.append((shape, "wdistill", "as given", f"{mine:.2f}", f"{n / mine / 1e6:.2f}", "", ""))
        for name in TREES:
            apart = (np.abs(means[f"{name}, as given"] - means["wdistill"]) > 1e-9).any(axis=1)
            wrong, tied = int((apart & clear).sum()), int((~clear).sum())
            if shape == "smooth" and wrong:
                raise SystemExit(f"{name} and wdistill differ on {wrong} queries without a tie at the k-th distance")
            theirs, order = min((seconds[f"{name}, {order}"], order) for order in orders)
            ratio, agreement = theirs / mine, f"{n - tied - wrong:,} alike, {wrong:,} not, {tied:,} tied"
            case = {"n": n, "m": m, "data": shape, "peer": name, "queries": order, "tied": tied, "apart": wrong}
            keep(3, **case, seconds=mine, peer_seconds=theirs, ratio=ratio)
            rows.append((shape, name, order, f"{theirs:.2f}", f"{n / theirs / 1e6:.2f}", f"{ratio:.1f}×", agreement))
    head = ("data", "who", "queries", "s", "M queries/s", "time / wdistill", "within 1e-9 of wdistill")
    table(f"3  Means over the nearest neighbours, {n:,} queries, m = {m:,}; the better order for each peer", head, rows)


def neighbor_growth(shrink: int) -> None:
    sizes = [(n // shrink, m) for m in (2_000, 10_000) for n in (50_000, 160_000, 1_280_000, 10_000_000)]
    sizes = [(1_280_000 // shrink, 500), *sizes, (1_280_000 // shrink, 100_000)]
    rows = []
    for n, m in sizes:
        say(f"3: growth, {n:,} queries, m = {m:,}")
        rng = np.random.default_rng(SEED)
        points, queries = data.plane(rng, m), data.plane(rng, n)
        answers, ordered = data.outcomes(rng, points), queries[peers.along_curve(queries)]
        seconds, _ = race(
            {
                "wdistill": partial(peers.nearest, points, answers, queries),
                "cKDTree": partial(peers.ckdtree, points, answers, ordered),
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
        ("first debiased() on 1,200 × 10, m = 300, imports done", 1.0, partial(own_time, FIRST_CALL)),
        ('python -c "import wdistill"', 0.3, partial(whole_time, "-c", "import wdistill")),
    ]
    if importlib.util.find_spec("wdistill.cli"):
        cases.append(("wdistill --help", 0.5, partial(whole_time, "-c", command, "--help")))
    else:
        console.print("4  Skipped `wdistill --help`: there is no such command in this version.")
    rows = []
    for name, limit, run in cases:
        say(f"4: {name}")
        seconds = statistics.median([run() for _ in range(ROUNDS + 1)][1:])
        keep(4, case=name, seconds=seconds, limit=limit)
        rows.append((name, f"{seconds:.3f}", f"< {limit}", verdict(seconds < limit)))
    table("4  Fresh processes, medians", ("what", "s", "wanted", ""), rows)


TABLES = {1: whole_step, 2: against_memory, 3: nearest_neighbours, 4: fresh_processes}


if __name__ == "__main__":
    torch.set_num_threads(THREADS)
    with threadpool_limits(THREADS):
        main("benchmarks.weigh", "Measure the weigh step and its peers.", TABLES)
