"""The weigh step and its nearest neighbours, by wdistill and as people would write them with other libraries."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from pykdtree.kdtree import KDTree as PyTree
from scipy.spatial import cKDTree
from sklearn.neighbors import KDTree as SkTree
from sklearn.neighbors import KNeighborsRegressor

import wdistill
from benchmarks.data import Points, softmax
from wdistill.core.threads import parallel, threads
from wdistill.weights.equations import neighbors_of
from wdistill.weights.neighbors import neighbors

THREADS = threads()


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
            for attempt in range(2):
                start = time.perf_counter()
                regressor.predict(queries[:200_000])
                seconds[algorithm, jobs, attempt] = time.perf_counter() - start
    algorithm, jobs, _ = min(seconds, key=seconds.__getitem__)
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


def read_once(evidence: wdistill.Evidence) -> float:
    return sum(float(torch.from_numpy(values).sum()) for values in (evidence.teacher, evidence.student))


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
