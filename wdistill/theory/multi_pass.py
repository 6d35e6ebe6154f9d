"""Algorithm 4 (Appendix E): many passes of projected SGD over N noisy examples, and the stationary points it looks for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wdistill.inspection import BLUE, GREY, INK, ORANGE
from wdistill.pages.figures import GREEN, PURPLE
from wdistill.pages.words import MINUS
from wdistill.theory import drawing, linear
from wdistill.theory.claims import Check, Finding
from wdistill.theory.judging import SIGMAS, mean_and_error, near
from wdistill.theory.linear import CLASSES, DIAMETER, DIMENSIONS, ERRORS, RADIUS, Instances, Weight, naive
from wdistill.theory.rates import exact, falls, stays
from wdistill.theory.simulator import weight
from wdistill.theory.smoothness import measured
from wdistill.weighting import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

HORIZONS = (256, 512, 1024, 2048, 4096)  # T, with the largest N
SIZES = (64, 256, 1024, 4096)  # N, with the largest T
RUNS = 16  # of SGD, for each T or N, order and step
EVERY = 32  # steps between the iterates that are looked at
SAMPLES, STARTS = 24, 8  # for each N, where stationary points are looked for
SPREAD = 400  # samples for the spread of the empirical gradient
POINTS = 20  # Θ at which slope and curvature are measured
FROM = 2  # slopes against T are fitted from the third T on, where lists have come from 0 to the boundary
RESTED = 1e-5  # ε where descent ends: about the root of what is left to gain
WAYS = {"with replacement": "measured", "permutations": "measured", "analytic steps": "analytic"}  # constants behind C
LOOKS = {"with replacement": (BLUE, "o"), "permutations": (ORANGE, "s"), "analytic steps": (GREEN, "^")}


@dataclass(frozen=True)
class Cell:
    """One way to run Algorithm 4."""

    way: str  # one of WAYS; analytic steps are with replacement
    size: int  # N
    horizon: int  # T


@dataclass(frozen=True)
class Best:
    """The best that the list Θ^(1), …, Θ^(T) contains, for every run; (runs,) each."""

    risk: Floats  # the least R(Θ)
    stationarity: Floats  # the least ε of R̂^w


@dataclass(frozen=True)
class Stationary:
    """Where descent on R̂^w from many starts comes to rest, for one N; (samples, starts) each."""

    risk: Floats  # R(Θ̂)
    stationarity: Floats  # ε of R̂^w there
    distance: Floats  # ‖∇R(Θ̂) − ∇R̂^w(Θ̂)‖_F


def step(horizon: int, lipschitz: float, smooth: float) -> float:
    """η = √(diameter / (B L² T)) = C/√T  —  the lemma "Non-Convex Projected SGD", its Θ(·) with constant 1."""
    return math.sqrt(DIAMETER / (smooth * lipschitz**2 * horizon))


def multi_pass(seed: int = 0, scale: float = 1.0, weight: Weight = weight) -> Finding:
    """A Θ in the list has R(Θ) ≤ min R + ε  —  Theorem "Reweighted Multi-Pass SGD"; as has any stationary point of R̂^w."""
    random = np.random.default_rng(seed)
    at = linear.tensors(linear.turned_world(random))
    best = linear.minimiser(at)
    least, uphill = float(linear.risk(best, at)), linear.clean_gradient(best, at)
    known = linear.regularity(RADIUS, CLASSES, max(ERRORS))
    constants = {"measured": _steepest(at, weight, random), "analytic": (linear.kappa(known), linear.b_q(known))}
    runs, samples, spread = (max(4, round(scale * each)) for each in (RUNS, SAMPLES, SPREAD))
    gentle = 1 / constants["measured"][1]
    resting = {n: rest(at, weight, n, samples, gentle, random) for n in SIZES}
    astray = rest(at, naive, SIZES[-1], samples, gentle, random).risk.max(axis=1) - least
    lists = paths(at, weight, constants, runs, random)
    limit = float(linear.risk(linear.end(at, naive), at)) - least
    checks = (
        exact("Θ* minimises R: what is left to gain in the unit ball", float(linear.gap(best, uphill))),
        _rested("ε of Θ*, without the absolute value in the definition", linear.stationarity(best, uphill).numpy()),
        _outwards(float(linear.norm(uphill))),
        near(f"N·E‖∇R̂^w(Θ*) − ∇R(Θ*)‖² at N = {SIZES[-1]:,}", *gradient_spread(at, best, weight, spread, random)),
        _rested(f"descent on R̂^w from {STARTS} starts has come to rest: largest ε", _all(resting, "stationarity")),
        _within(resting, least),
        falls("worst R(Θ̂) − R(Θ*) of all starts against N", -0.5, SIZES, _worst(resting) - least),
        *(_bounded(lists, kind, constants[kind]) for kind in constants),
        *_growth(lists, least),
        stays(f"naive R̂: worst R(Θ̂) − R(Θ*) of all starts, N = {SIZES[-1]:,}, limit {limit:.4f}", limit, astray),
    )
    return Finding(
        name="multi_pass",
        title="Multi-pass SGD, and stationary points of the reweighted objective",
        place="Algorithm 4, Theorem “Reweighted Multi-Pass SGD” and the proposition on stationary points, Appendix E.3",
        checks=checks,
        settings={
            **linear.described(at),
            "SGD": f"{runs} runs for each T with N = {SIZES[-1]:,}, and for each N with T = {HORIZONS[-1]:,}; "
            f"one of {EVERY} iterates is looked at",
            "stationary points": f"{samples} samples for each N, {STARTS} random starts for each",
            **{f"steps C/√T, {kind}": _said(*each) for kind, each in constants.items()},
        },
        notes=(
            "Approximate stationarity is ∇·(Θ' − Θ)/‖Θ' − Θ‖ ≥ −ε for all Θ' of the ball. The paper takes the absolute "
            "value, which no minimum on the boundary meets, Θ* not either; its proof only needs the inequality.",
            "The lemma leaves the constant in η = Θ(√(R/(B L² T))) open. With 1 and the analytic constants the steps are so "
            "small that the list is still on its way from 0 to the boundary; with slope and curvature as measured it "
            "arrives. √(2 B κ)/T^(1/4) and N^(−1/2) are upper bounds: the first says little at these T.",
            "Davis and Drusvyatskiy bound how near an iterate is to a stationary point. The lemma takes the iterate itself "
            "for one, which it need not be by a hair inside the ball, where all of ∇ counts. But iterates that were "
            "projected lie on the boundary, and there it is.",
            "In the proof 2‖∇R̂^w − ∇R̂^w‖ should read 2‖∇R − ∇R̂^w‖, as in the display that follows it.",
        ),
        draw=lambda: {
            "Least ε in the list of iterates": _epsilons(lists, constants["measured"]),
            "Least excess clean risk in the list of iterates": _risks(lists, least),
            "Excess clean risk as N grows": _sizes(lists, resting, float(astray.mean()), least),
        },
    )


def draw(at: Instances, n: int, samples: int, random: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Samples of N examples from D: rows (samples, N), whether corrupted (samples, N), and shares (samples, n, 2)."""
    import torch

    rows = torch.from_numpy(random.integers(len(at.error), size=(samples, n)))
    corrupted = torch.from_numpy(random.random((samples, n))) < at.error[rows]
    counts = torch.zeros(samples, 2 * len(at.error), dtype=torch.float64)
    counts.scatter_add_(1, 2 * rows + corrupted, torch.ones(samples, n, dtype=torch.float64))
    return rows, corrupted, counts.reshape(samples, len(at.error), 2) / n


def rest(at: Instances, weight: Weight, n: int, samples: int, step: float, random: np.random.Generator) -> Stationary:
    """Stationary points of R̂^w for samples of N examples, by projected gradient descent from random starts in the ball."""
    import torch

    _, _, shares = draw(at, n, samples, random)
    starts = random.normal(size=(samples, STARTS, CLASSES, DIMENSIONS))
    starts *= (random.random((samples, STARTS)) / np.sqrt(np.square(starts).sum(axis=(-2, -1))))[..., None, None]
    theta = linear.settle(
        torch.from_numpy(starts), lambda theta: linear.mean_gradient(theta, at, shares[:, None], weight), step
    )
    gradient = linear.mean_gradient(theta, at, shares[:, None], weight)
    off = linear.norm(linear.clean_gradient(theta, at) - gradient)
    found = linear.risk(theta, at), linear.stationarity(theta, gradient), off
    return Stationary(*(each.numpy() for each in found))


def _steepest(at: Instances, weight: Weight, random: np.random.Generator) -> tuple[float, float]:
    """The largest slope and curvature of w·ℓ over instances, labels and random Θ: L and B as they are."""
    import torch

    size = 2 * len(at.error) * POINTS
    rows = torch.arange(size) % len(at.error)
    theta = linear.projected(torch.from_numpy(random.normal(size=(size, CLASSES, DIMENSIONS))))
    found = measured(theta, at[rows], torch.arange(size) % (2 * len(at.error)) < len(at.error), weight)
    return float(found.slope.max()), float(found.curvature.max())


def paths(
    at: Instances, weight: Weight, constants: dict[str, tuple[float, float]], runs: int, random: np.random.Generator
) -> dict[Cell, Best]:
    """Algorithm 4 in all cells side by side, each run with a sample of its own."""
    import torch

    cells = [Cell(way, SIZES[-1], horizon) for way in WAYS for horizon in HORIZONS]
    cells += [Cell(way, size, HORIZONS[-1]) for way in WAYS for size in SIZES[:-1]]
    rows, corrupted, shares, steps = [], [], [], []
    for cell in cells:
        drawn, shown, share = draw(at, cell.size, runs, random)
        order = torch.from_numpy(picks(cell, runs, random))
        rows.append(drawn.T.gather(0, order))
        corrupted.append(shown.T.gather(0, order))
        shares.append(share)
        sizes = step(cell.horizon, *constants[WAYS[cell.way]]) * (np.arange(HORIZONS[-1]) < cell.horizon)
        steps.append(torch.from_numpy(sizes)[:, None].expand(-1, runs))
    examples = zip(torch.cat(rows, dim=1), torch.cat(corrupted, dim=1), strict=True)
    sums, risks, found = torch.cat(shares), [], []
    thetas = linear.iterates(linear.origin(len(cells) * runs), torch.cat(steps, dim=1), examples, at, weight)
    for t, theta in enumerate(thetas, 1):
        if t % EVERY == 0:
            risks.append(linear.risk(theta, at))
            found.append(linear.stationarity(theta, linear.mean_gradient(theta, at, sums, weight)))
    least = [torch.stack(each).amin(dim=0).reshape(len(cells), runs).numpy() for each in (risks, found)]
    return {cell: Best(*each) for cell, *each in zip(cells, *least, strict=True)}


def picks(cell: Cell, runs: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Which of its N examples each run sees at each step; (T, runs)."""
    if cell.way != "permutations":
        return random.integers(cell.size, size=(HORIZONS[-1], runs))
    passes = math.ceil(HORIZONS[-1] / cell.size)
    order = random.permuted(np.tile(np.arange(cell.size)[:, None], (passes, 1, runs)), axis=1)  # every pass and run its own
    return order.reshape(-1, runs)[: HORIZONS[-1]]


def gradient_spread(
    at: Instances, best: Tensor, weight: Weight, samples: int, random: np.random.Generator
) -> tuple[float, Floats]:
    """E‖∇(w ℓ) − ∇R‖² at Θ*, exactly, and N·‖∇R̂^w − ∇R‖² of samples, (samples,): their mean, if the weights debias."""
    import torch

    gradient = linear.clean_gradient(best, at)
    each = torch.func.jacrev(lambda theta: linear.weighted_losses(at.inputs @ theta.mT, at, weight))(best)  # (n, 2, K, d)
    predicted = float((linear.chances(at) * linear.norm(each - gradient).square()).sum())
    _, _, shares = draw(at, SIZES[-1], samples, random)
    off = linear.norm(torch.einsum("snl,nlkd->skd", shares, each) - gradient)
    return predicted, SIZES[-1] * np.square(off.numpy())


# ------------------------------------------------------------------------------------------------------------- the verdicts


def _said(lipschitz: float, smooth: float) -> str:
    return f"κ = {lipschitz:.2f}, B = {smooth:.2f}, hence C = {step(1, lipschitz, smooth):.4f}"


def _all(resting: dict[int, Stationary], name: str) -> Floats:
    return np.stack([getattr(each, name) for each in resting.values()])


def _worst(resting: dict[int, Stationary]) -> Floats:
    """The largest R(Θ̂) of all starts; (N, samples)."""
    return np.asarray(_all(resting, "risk").max(axis=2))


def _rested(claim: str, found: Floats) -> Check:
    return Check(claim, f"≤ {RESTED:g}".replace("-", MINUS), float(found.max()), None, bool(found.max() <= RESTED))


def _outwards(length: float) -> Check:
    claim = "ε of Θ* with the absolute value in the definition, by the way to −Θ*"
    return Check(claim, f"> {RESTED:g}".replace("-", MINUS), length, None, length > RESTED, contrast=True)


def _within(resting: dict[int, Stationary], least: float) -> Check:
    """The proof's inequality, at every stationary point found."""
    bound = 2 * _all(resting, "distance") + 2 * _all(resting, "stationarity")
    share = float(((_all(resting, "risk") - least) / bound).max())
    return Check("R(Θ̂) − R(Θ*) ≤ 2‖∇R − ∇R̂^w‖ + 2ε: largest share of the bound", "≤ 1", share, None, share <= 1)


def _bounded(lists: dict[Cell, Best], kind: str, constants: tuple[float, float]) -> Check:
    """99 of 100 lists contain an iterate as stationary as the lemma says."""
    reach = math.sqrt(math.prod(constants) * DIAMETER)
    within = [best.stationarity <= reach / cell.horizon**0.25 for cell, best in lists.items() if WAYS[cell.way] == kind]
    share = float(np.concatenate(within).mean())
    return Check(f"{kind} constants: share of lists with an ε ≤ √(2 B κ)/T^(1/4)", "≥ 0.99", share, None, share >= 0.99)


def _growing(lists: dict[Cell, Best], name: str, way: str) -> Floats:
    """As T grows, with the largest N; (T, runs)."""
    return np.stack([getattr(lists[Cell(way, SIZES[-1], each)], name) for each in HORIZONS])


def _by_size(lists: dict[Cell, Best], way: str) -> Floats:
    """The least R(Θ) as N grows, with the largest T; (N, runs)."""
    return np.stack([lists[Cell(way, each, HORIZONS[-1])].risk for each in SIZES])


def _growth(lists: dict[Cell, Best], least: float) -> Iterator[Check]:
    """The rates of Theorem "Reweighted Multi-Pass SGD", T = poly(κ)/ε⁴ and N = poly(κ)/ε², where the lists arrive."""
    late = HORIZONS[FROM:]
    for way in ("with replacement", "permutations"):
        found, excess = _growing(lists, "stationarity", way), _growing(lists, "risk", way) - least
        yield falls(f"{way}: least ε in the list against T", -0.25, late, found[FROM:])
        yield falls(f"{way}: least R(Θ) − R(Θ*) in the list against T", -0.25, late, excess[FROM:])
        yield falls(f"{way}: least R(Θ) − R(Θ*) in the list against N", -0.5, SIZES, _by_size(lists, way) - least)


# -------------------------------------------------------------------------------------------------------------- the figures


def _epsilons(lists: dict[Cell, Best], constants: tuple[float, float]) -> Figure:
    figure, axes = drawing.panel(3.5)
    for way, look in LOOKS.items():
        _points(axes, HORIZONS, _growing(lists, "stationarity", way), way, *look)
    bound = math.sqrt(math.prod(constants) * DIAMETER) / np.array(HORIZONS) ** 0.25
    axes.plot(HORIZONS, bound, color=INK, linewidth=1.3, label="√(2 B κ)/T^(1/4), measured")
    axes.set_ylabel("least ε")
    _finish(figure, axes, HORIZONS, "T")
    return figure


def _risks(lists: dict[Cell, Best], least: float) -> Figure:
    figure, axes = drawing.panel(3.5)
    for way, look in LOOKS.items():
        _points(axes, HORIZONS, _growing(lists, "risk", way) - least, way, *look)
    late = np.array(HORIZONS[FROM:])
    above = 3 * (_growing(lists, "risk", "with replacement")[FROM].mean() - least)
    axes.plot(late, above * (late[0] / late) ** 0.25, color=GREY, linestyle=(0, (5, 2)), label="slope −1/4")
    axes.set_ylabel("least R(Θ) − R(Θ*)")
    _finish(figure, axes, HORIZONS, "T")
    return figure


def _sizes(lists: dict[Cell, Best], resting: dict[int, Stationary], astray: float, least: float) -> Figure:
    figure, axes = drawing.panel(3.8)
    worst, sizes = _worst(resting) - least, np.array(SIZES)
    _points(axes, SIZES, worst, "worst stationary point", PURPLE, "D")
    for way in ("with replacement", "permutations"):
        _points(axes, SIZES, _by_size(lists, way) - least, way, *LOOKS[way])
    bound = 2 * _all(resting, "distance") + 2 * _all(resting, "stationarity")
    axes.plot(SIZES, bound.mean(axis=(1, 2)), color=INK, linewidth=1.3, label="2‖∇R − ∇R̂ʷ‖ + 2ε")
    axes.axhline(astray, color=GREY, linewidth=1.2, linestyle=(0, (1, 2)), label="naive, largest N")
    axes.plot(
        sizes, 1.8 * worst[0].mean() * np.sqrt(sizes[0] / sizes), color=GREY, linestyle=(0, (5, 2)), label="slope −1/2"
    )
    axes.set_ylabel("R(Θ) − R(Θ*)")
    _finish(figure, axes, SIZES, "N")
    return figure


def _points(axes: Axes, sizes: Sequence[int], values: Floats, label: str, color: str, marker: str) -> None:
    """Means over runs of values (sizes, runs), and SIGMAS standard errors."""
    mean, error = np.array([mean_and_error(each) for each in values]).T
    axes.errorbar(sizes, mean, yerr=SIGMAS * error, color=color, marker=marker, markersize=4.5, capsize=3, label=label)


def _finish(figure: Figure, axes: Axes, sizes: Sequence[int], name: str) -> None:
    drawing.plain(axes)
    axes.set_xticks(sizes, [f"{each:,}" for each in sizes])
    axes.set_xlabel(name)
    drawing.legend(figure, 2)
