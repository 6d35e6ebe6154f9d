"""Learning-rate schedules: functions (progress, epochs) → factor of the initial rate.

`progress` counts epochs done, with their fraction: epoch from 0 + step / steps. `epochs` is the length of the run. The
thresholds are the paper's, strict on the epoch counted from 1, and scale with the length of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Schedule = Callable[[float, int], float]

STEPS = ((180, 0.0005), (160, 0.001), (120, 0.01), (80, 0.1))  # after so many of 200 epochs
WARMUP_STEPS = ((80, 0.001), (60, 0.01), (30, 0.1))  # after so many of 100 epochs
WARMUP = 5  # of 100 epochs


def steps(progress: float, epochs: int) -> float:
    """Appendix C.1: 1, then .1, .01, .001 and .0005 after 80, 120, 160 and 180 of 200 epochs."""
    return _factor(progress, epochs, STEPS, of=200)


def warmup(progress: float, epochs: int) -> float:
    """Appendix C.2: from 0 to 1 step by step in 5 of 100 epochs, then .1, .01 and .001 after 30, 60 and 80."""
    rising = 100 * progress / (WARMUP * epochs)
    return min(rising, 1.0) * _factor(progress, epochs, WARMUP_STEPS, of=100)


def constant(progress: float, epochs: int) -> float:
    """Always the initial rate."""
    return 1.0


SCHEDULES: dict[str, Schedule] = {"steps": steps, "warmup": warmup, "constant": constant}


def _factor(progress: float, epochs: int, drops: Sequence[tuple[int, float]], of: int) -> float:
    """The factor of the last threshold that this epoch, counted from 1, is past: epoch > after · epochs / of."""
    epoch = int(progress) + 1
    return next((factor for after, factor in drops if epoch * of > after * epochs), 1.0)
