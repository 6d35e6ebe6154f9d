"""The simulation of a job on many machines agrees with what can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.straggling import Machines, simulate

UNSTEADY = Machines(slow=0.1, fail=0.05)


def test_one_worker_takes_the_sum() -> None:
    found = simulate([3.0, 1.0, 4.5], 1)
    assert (found.seconds, found.busy, found.attempts) == (8.5, 8.5, 3)


@pytest.mark.parametrize("partitions, workers, rounds", [(12, 4, 3), (13, 4, 4), (3, 8, 1), (64, 64, 1)])
@pytest.mark.parametrize("copies", [False, True])
def test_equal_partitions_come_in_rounds(partitions: int, workers: int, rounds: int, copies: bool) -> None:
    found = simulate([2.0] * partitions, workers, copies=copies)
    assert (found.seconds, found.busy, found.attempts) == (2.0 * rounds, 2.0 * partitions, partitions)


def test_the_next_partition_goes_to_the_worker_that_is_free_first() -> None:
    """One worker has 5 alone, the other 2 and 4."""
    assert simulate([5.0, 2.0, 4.0], 2).seconds == 6.0


def test_every_attempt_that_is_slow_takes_at_least_twice_its_time() -> None:
    assert simulate([1.0] * 50, 1, Machines(slow=1.0, slowest=2.0)).seconds == 100.0


def test_a_failed_attempt_costs_a_part_of_its_time_and_is_tried_again() -> None:
    """Half of all attempts fail, on average after half of their time: each partition needs one such attempt more."""
    found = simulate([1.0] * 20_000, 1, Machines(fail=0.5))
    assert found.attempts == pytest.approx(40_000, rel=0.02) and found.seconds == pytest.approx(30_000, rel=0.02)
    assert found.busy == pytest.approx(found.seconds)


def test_a_copy_overtakes_the_one_slow_attempt() -> None:
    """A late attempt gets a copy after one and a half times the median, which takes another one: 2.5 in place of 100."""
    machines, work = Machines(slow=0.05, slowest=100.0, tail=0.1), [1.0] * 20
    slow = [seed for seed in range(200) if simulate(work, 20, machines, seed=seed).busy == 119.0]  # one of 100, and 19 of 1
    assert slow
    found = [simulate(work, 20, machines, copies=True, seed=seed) for seed in slow]
    quick = [each for each in found if each.attempts == 21 and each.seconds < 100]
    assert quick and all(each.seconds == 2.5 and each.busy == 19 + 2.5 + 1 for each in quick)


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("workers", [1, 7, 100])
def test_no_schedule_is_better_than_workers_that_are_never_idle(workers: int, copies: bool) -> None:
    work = np.random.default_rng(1).random(300)
    found = simulate(work.tolist(), workers, UNSTEADY, copies=copies, seed=3)
    assert found.seconds >= max(work.sum() / workers, work.max()) - 1e-9
    assert found.seconds >= found.busy / workers - 1e-9 and found.attempts >= 300
    assert found == simulate(work.tolist(), workers, UNSTEADY, copies=copies, seed=3)
    assert found != simulate(work.tolist(), workers, UNSTEADY, copies=copies, seed=4)


def test_copies_and_smaller_partitions_shorten_the_wait_for_the_slowest() -> None:
    def median(partitions: int, copies: bool) -> float:
        found = [simulate([6400 / partitions] * partitions, 64, UNSTEADY, copies=copies, seed=seed) for seed in range(5)]
        return float(np.median([each.seconds for each in found]))

    assert median(640, copies=True) < median(640, copies=False) / 1.5
    assert median(6400, copies=False) < median(640, copies=False) / 1.5
