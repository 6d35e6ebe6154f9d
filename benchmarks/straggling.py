"""A job of many partitions on many workers, simulated: slow attempts, attempts that fail and are tried again, and copies.

Nothing here is measured: it says what a schedule makes of the seconds that partitions take, and of assumed machines.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

DRAWN = 8  # attempts of a partition whose luck is drawn beforehand
LATE = 1.5  # an attempt that took so many times the median of all that are done gets a copy …
ENOUGH = 0.75  # … once so many partitions are done; Spark has 3 and 0.9, unless it is told otherwise


@dataclass(frozen=True)
class Machines:
    """How attempts go wrong, each by itself."""

    slow: float = 0.0  # share of attempts that are slow: a Pareto number of times, at least twice
    tail: float = 1.5  # its exponent: the smaller, the longer some take
    slowest: float = 100.0  # no attempt takes more than so many times its seconds
    fail: float = 0.0  # share of attempts that end without a result, at any point of their time


@dataclass(frozen=True)
class Schedule:
    """What became of a job."""

    seconds: float  # until its last partition was there
    busy: float  # seconds of all workers
    attempts: int


STEADY = Machines()


def simulate(
    work: Sequence[float], workers: int, machines: Machines = STEADY, *, copies: bool = False, seed: int = 0
) -> Schedule:
    """A job whose partitions take these seconds, in this order, by workers that take the next one when they are free.

    A failed attempt goes to the end of the queue. With `copies`, a worker without work begins the longest late attempt once
    more; the first of both that ends counts, and the other is stopped. The luck of an attempt depends on the seed, the
    partition and its number alone, so that settings can be compared.
    """
    return _Job(list(work), workers, copies, _Luck(len(work), machines, seed)).run()


class _Luck:
    """How many times its seconds an attempt takes, and at which part of them it fails, 1 for never."""

    def __init__(self, partitions: int, machines: Machines, seed: int) -> None:
        self.machines, self.seed = machines, seed
        self.first = self._of(np.random.default_rng(seed).random((4, partitions, DRAWN))).tolist()

    def __call__(self, partition: int, attempt: int) -> tuple[float, float]:
        if attempt < DRAWN:
            return self.first[0][partition][attempt], self.first[1][partition][attempt]
        times, part = self._of(np.random.default_rng([self.seed, partition, attempt]).random(4))
        return float(times), float(part)

    def _of(self, drawn: np.ndarray) -> np.ndarray:
        slowness = np.minimum(2 * (1 - drawn[1]) ** (-1 / self.machines.tail), self.machines.slowest)
        times = np.where(drawn[0] < self.machines.slow, slowness, 1.0)
        return np.stack([times, np.where(drawn[2] < self.machines.fail, drawn[3], 1.0)])


class _Job:
    def __init__(self, work: list[float], workers: int, copies: bool, luck: _Luck) -> None:
        self.work, self.free, self.copies, self.luck = work, workers, copies, luck
        self.queue, self.now, self.busy = deque(range(len(work))), 0.0, 0.0
        self.attempts, self.tries = 0, [0] * len(work)
        self.events: list[tuple[float, int, int]] = []  # time, attempt, partition; a partition of -1 only wakes
        self.running: dict[int, dict[int, tuple[float, bool]]] = {}  # by partition and attempt: its start, whether it fails
        self.done = list[float]()  # sorted: how many times its seconds every partition took

    def run(self) -> Schedule:
        while len(self.done) < len(self.work):
            while self.free and self.queue:
                self._begin(self.queue.popleft())
            if self.copies and self.free and not self.queue:
                self._copy()
            self.now, attempt, partition = heapq.heappop(self.events)
            if attempt in self.running.get(partition, {}):
                self._end(attempt, partition)
        return Schedule(self.now, self.busy, self.attempts)

    def _begin(self, partition: int) -> None:
        times, part = self.luck(partition, self.tries[partition])
        self.running.setdefault(partition, {})[self.attempts] = (self.now, part < 1)
        heapq.heappush(self.events, (self.now + self.work[partition] * times * part, self.attempts, partition))
        self.attempts, self.free, self.tries[partition] = self.attempts + 1, self.free - 1, self.tries[partition] + 1

    def _end(self, attempt: int, partition: int) -> None:
        start, fails = self.running[partition][attempt]
        ended = [attempt] if fails else [*self.running[partition]]
        for each in ended:
            self.busy, self.free = self.busy + self.now - self.running[partition].pop(each)[0], self.free + 1
        if not fails:
            insort(self.done, (self.now - start) / self.work[partition])
        elif not self.running[partition]:
            self.queue.append(partition)

    def _copy(self) -> None:
        """Begin late attempts once more, the longest first; or wake when the next becomes late."""
        if len(self.done) < ENOUGH * len(self.work):
            return
        limit = LATE * self.done[len(self.done) // 2]
        alone = [(partition, *each.values()) for partition, each in self.running.items() if len(each) == 1]
        for late, partition in sorted((start + limit * self.work[partition], partition) for partition, (start, _) in alone):
            if self.free and late <= self.now:
                self._begin(partition)
            elif late > self.now:
                heapq.heappush(self.events, (late, -1, -1))
                return
