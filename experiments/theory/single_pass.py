"""Algorithm 3 (Appendix E): one pass of projected SGD over noisy examples, on the reweighted objective."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.theory import linear, page
from experiments.theory.claims import EXACT, SIGMAS, Check, Finding, exact, falls, mean_and_error, stays
from experiments.theory.linear import CLASSES, DIAMETER, ERRORS, RADIUS, Instances, Weight, naive
from experiments.theory.simulator import weight
from wdistill.report.svg import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, SKY
from wdistill.weights.diagnostics import standard_error
from wdistill.weights.equations import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

HORIZONS = (128, 256, 512, 1024, 2048, 4096)  # T
FROM = 3  # the slope is fitted from the fourth T on, where runs have come from 0 to the boundary
RUNS, FEWEST = 400, 100  # for each T; with fewer the slope would not be decided
SURE = 0.99  # the theorem's probability
POINTS = 64  # Θ at which the mean gradient is compared
HARSH_RADIUS, HARSH_ERRORS = 8.0, (0.1, 1.0)  # of a second world, where it decides whether the weight is differentiated
HARSH_RUNS, HARSH_HORIZON = 30, 1024
Steps = Callable[[int, float, float], Floats]  # T, Lipschitz constant, diameter → η^(t), (T,)

LOOKS: dict[str, dict[str, Any]] = {
    "reweighted": {"color": BLUE, "marker": "o"},
    "naive": {"color": ORANGE, "marker": "s"},
    "detached": {"color": PURPLE, "marker": "D", "linestyle": (0, (4, 2))},
    "dropped": {"color": SKY, "marker": "^"},
    "clean labels": {"color": GREEN, "marker": "v", "linestyle": (0, (4, 2))},
}


def last_iterate_steps(horizon: int, lipschitz: float, diameter: float) -> Floats:
    """η^(t) = diameter / (lipschitz·√T)·2^−i for T − ⌈T 2^−i⌉ < t ≤ T − ⌈T 2^−(i+1)⌉: (T,); the last phase ends at T.

    The steps of Jain, Nagaraj and Netrapalli behind the lemma "Last Iterate SGD": half of them whole, a quarter half as
    large, and so on. They depend on nothing but T, L and R.
    """
    phases = math.ceil(math.log2(horizon)) + 1
    ends = [horizon - math.ceil(horizon * 2.0**-i) for i in range(phases)] + [horizon]
    sizes = [2.0**-i for i in range(phases)]
    return np.repeat(sizes, np.diff(ends)) * (diameter / (lipschitz * math.sqrt(horizon)))


def detached(error: Tensor, distortion: Tensor) -> Tensor:
    """The weights of equation (4) as constants: what Algorithm 3 must not do."""
    return weight(error, distortion.detach())


def dropped(error: Tensor, distortion: Tensor) -> Tensor:
    """Only examples that are rather right than wrong."""
    return naive(error, distortion) * (error < 0.5)


def single_pass(seed: int = 0, scale: float = 1.0, weight: Weight = weight, steps: Steps = last_iterate_steps) -> Finding:
    """R(Θ^(T)) ≤ min R(Θ) + ε after T = Ω(κ²/ε²) steps  —  Theorem "Reweighted Single-Pass SGD"."""
    random = np.random.default_rng(seed)
    at = linear.tensors(linear.turned_world(random))
    runs = max(FEWEST, round(scale * RUNS))
    kappa = float(linear.kappa(linear.regularity(RADIUS, CLASSES, max(ERRORS))))
    best = linear.minimiser(at)
    least, uphill = float(linear.risk(best, at)), linear.clean_gradient(best, at)
    start = float(linear.risk(linear.origin(), at)) - least
    rules = {"reweighted": weight, "naive": naive, "detached": detached, "dropped": dropped, "clean labels": naive}
    schedules = [steps(horizon, kappa, DIAMETER) for horizon in HORIZONS]
    excess = dict(zip(rules, last_risks(at, list(rules.values()), schedules, runs, seed) - least, strict=True))
    ends = {name: float(linear.risk(linear.end(at, rules[name]), at)) - least for name in ("naive", "detached", "dropped")}
    points = linear.scattered(POINTS, random)
    off = linear.mean_gradient(points, at, linear.chances(at), weight) - linear.clean_gradient(points, at)
    bound = DIAMETER * kappa / np.sqrt(HORIZONS)
    fitted = f"R(Θ^(T)) − R(Θ*) against T ≥ {HORIZONS[FROM]:,}"
    checks = [
        exact("Θ* minimises R: what is left to gain in the unit ball", float(linear.gap(best, uphill))),
        exact(f"E[∇(w ℓ)] = ∇R: largest difference at {POINTS} random Θ", float(off.abs().max())),
        falls(fitted, -0.5, HORIZONS[FROM:], excess["reweighted"][FROM:]),
        _rarely_above(excess["reweighted"]),
        falls(f"clean labels: {fitted}", -0.5, HORIZONS[FROM:], excess["clean labels"][FROM:], contrast=True),
    ]
    for name, limit in ends.items():
        checks.append(stays(f"{name}: R(Θ^(T)) − R(Θ*), T = {HORIZONS[-1]:,}, limit {limit:.4f}", limit, excess[name][-1]))
    checks += harsh(weight, steps, seed)
    return Finding(
        name="single_pass",
        title="Single-pass SGD on the reweighted objective",
        place="Algorithm 3 and Theorem “Reweighted Single-Pass SGD”, Appendix E.2",
        checks=tuple(checks),
        settings={
            **linear.described(at),
            "runs": f"{runs} for each T, with the same examples for every rule",
            "steps": f"the lemma's, from the analytic κ = {kappa:.2f} and the diameter {DIAMETER:g}",
            "R(0) − R(Θ*)": f"{start:.4f}; the bound 2κ/√T is as low at T = {(DIAMETER * kappa / start) ** 2:,.0f}",
            "the bound 2κ/√T": f"{bound[-1] / excess['reweighted'][-1].mean():,.0f} times the mean excess at "
            f"T = {HORIZONS[-1]:,}: too far to decide anything, and drawn only",
            f"{SURE:.0%} quantile of R(Θ^(T)) − R(Θ*)": ", ".join(
                f"{each:.4f} at T = {horizon:,}"
                for horizon, each in zip(HORIZONS[FROM:], _quantiles(excess["reweighted"])[FROM:], strict=True)
            ),
            "where the gradient through the weight decides": f"R = {HARSH_RADIUS:g}, p(x) {HARSH_ERRORS[1]:g} where the "
            f"teacher errs; {HARSH_RUNS} runs, steps from the largest gradient found",
        },
        notes=(
            "The weight is differentiated with the loss. As a constant it makes the mean gradient that of no risk at all: "
            "detached weights end where the naive objective does, or worse.",
            "The bound is an upper one. The minimum is on the boundary and the loss is smooth: once the steps have carried "
            "the last iterate there, it does better than 1/√T. With the same step for every T the excess stays.",
            "What naive, detached and dropped examples should come to is exact: where the mean of their gradients leads.",
            "The cross-entropy of Appendix E lacks its minus sign; here it has it. The lemma says f_true where it means F. "
            "Algorithm 3 makes T updates and returns Θ^(T), the result of T − 1: so it is done here.",
        ),
        draw=lambda: {"Excess clean risk of the last iterate": _figure(excess, ends, kappa)},
    )


def _quantiles(excess: Floats) -> Floats:
    """What all but 1 % of the runs stay below; (T, runs) → (T,)."""
    return np.asarray(np.quantile(excess, SURE, axis=1))


def _rarely_above(excess: Floats) -> Check:
    """With probability 99 %: the quantile falls as fast as 1/√T, from the T where the fit begins to the last; (T, runs)."""
    limit = float(_quantiles(excess)[FROM]) * math.sqrt(HORIZONS[FROM] / HORIZONS[-1])
    runs, above = excess.shape[1], int((excess[-1] > limit).sum())
    claim = (
        f"share of runs with R(Θ^(T)) − R(Θ*) > q·√({HORIZONS[FROM]:,}/T), T = {HORIZONS[-1]:,}; q the {SURE:.0%} quantile"
    )
    predicted = f"≤ {1 - SURE:.2f}"
    return Check(claim, predicted, above / runs, standard_error(above, runs), above <= (1 - SURE) * runs + EXACT)


def harsh(weight: Weight, steps: Steps, seed: int) -> Iterator[Check]:
    """In a world of large inputs and certain corruption: through the weight near the best, detached far from it."""
    random = np.random.default_rng(seed)
    at = linear.tensors(linear.turned_world(random, HARSH_RADIUS, HARSH_ERRORS))
    least = float(linear.risk(linear.minimiser(at), at))
    limit = float(linear.risk(linear.end(at, detached), at)) - least
    slopes = linear.norm(linear.each_gradient(linear.scattered(POINTS, random), at, weight))[:, linear.chances(at) > 0]
    schedule = steps(HARSH_HORIZON, float(slopes.max()), DIAMETER)
    through, constant = last_risks(at, [weight, detached], [schedule], HARSH_RUNS, seed, clean=False)[:, 0] - least
    place = f"R = {HARSH_RADIUS:g}, p = {HARSH_ERRORS[1]:g}"
    measured, error = mean_and_error(through)
    claim = f"{place}: R(Θ^(T)) − R(Θ*), T = {HARSH_HORIZON:,}"
    yield Check(
        claim, f"≤ {limit / 100:.4f}, 1 % of the detached", measured, error, measured + SIGMAS * error <= limit / 100
    )
    yield stays(f"{place}, detached: the same, limit {limit:.2f}", limit, constant)


def last_risks(
    at: Instances, rules: list[Weight], schedules: list[Floats], runs: int, seed: int, clean: bool = True
) -> Floats:
    """R(Θ^(T)) of every rule, T and run: (rules, T, runs), T the lengths of the schedules, in growing order.

    The rules see the same examples, with the adversary's labels; if `clean`, the last of them sees true labels.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)

    def examples(size: int) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            rows = torch.randint(len(at.error), (size,), generator=generator)
            shown = torch.rand(size, generator=generator, dtype=torch.float64) < at.error[rows]
            yield rows, torch.stack([shown & (i < len(rules) - clean) for i in range(len(rules))])

    def side_by_side(error: Tensor, distortion: Tensor) -> Tensor:
        return torch.stack([rule(error, each) for rule, each in zip(rules, distortion, strict=True)])

    theta, done, risks = linear.origin(len(rules), len(schedules) * runs), 0, []
    for i, schedule in enumerate(schedules):  # all together, until the shortest is done, and so on
        ahead = np.stack([each[done : len(schedule) - 1] for each in schedules[i:]], axis=1).repeat(runs, axis=1)
        thetas = linear.iterates(theta, torch.from_numpy(ahead), examples(ahead.shape[1]), at, side_by_side)
        theta, done = deque(thetas, maxlen=1).pop(), len(schedule) - 1
        risks.append(linear.risk(theta[:, :runs], at))
        theta = theta[:, runs:]
    return torch.stack(risks, dim=1).numpy()


def _figure(excess: dict[str, Floats], ends: dict[str, float], kappa: float) -> Figure:
    figure, axes = page.panel(3.9)
    horizons = np.array(HORIZONS)
    for name, values in excess.items():
        found = np.array([mean_and_error(each) for each in values]).T
        axes.errorbar(horizons, found[0], yerr=SIGMAS * found[1], capsize=3, markersize=4.5, label=name, **LOOKS[name])
    for name, end in ends.items():
        axes.axhline(end, color=LOOKS[name]["color"], linewidth=1, linestyle=(0, (1, 2)))
    axes.plot([], [], color=GREY, linewidth=1, linestyle=(0, (1, 2)), label="where they lead, exactly")
    axes.plot(horizons, DIAMETER * kappa / np.sqrt(horizons), color=INK, linewidth=1.3, label="the bound 2κ/√T")
    late = horizons[FROM:]
    guide = excess["reweighted"][FROM].mean() * np.sqrt(late[0] / late) * 1.6
    axes.plot(late, guide, color=GREY, linewidth=1.3, linestyle=(0, (5, 2)), label="slope −1/2")
    page.plain(axes)
    axes.set_xticks(horizons, [f"{each:,}" for each in horizons])
    axes.set_xlabel("T")
    axes.set_ylabel("R(Θ⁽ᵀ⁾) − R(Θ*)")
    page.legend(figure, 2)
    return figure
