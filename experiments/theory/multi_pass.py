"""Algorithm 4 (Appendix E): many passes of projected SGD over N noisy examples, and the stationary points it looks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from experiments.theory import linear, page
from experiments.theory.claims import SIGMAS, Check, Finding, at_most, exact, falls, mean_and_error, near, stays, with_minus
from experiments.theory.linear import CLASSES, DIAMETER, DIMENSIONS, ERRORS, RADIUS, Instances, Weight, naive
from experiments.theory.simulator import weight
from experiments.theory.simulator import weight as debiasing
from experiments.theory.smoothness import measured
from wdistill.report.svg import BLUE, GREEN, GREY, INK, ORANGE, PURPLE
from wdistill.weights.equations import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

HORIZONS = (64, 256, 1024, 4096)  # T, with the largest N
SIZES = (64, 256, 1024, 4096)  # N, with the largest T
RUNS, FEWEST = 192, 64  # of SGD, for each T or N, order and step; with fewer the slopes would not be decided
LOOKED = 32  # iterates of a list that are looked at
FACTOR = 4.0  # the lemma's open constant: lists have come from 0 to the boundary at the smallest T
POINTS, LARGE, FIELDS = 256, (256, 1024, 4096, 16384), 200  # Θ, N and samples for the gradient field
HARD_RADIUS, HARD_ERRORS = 4.0, (0.1, 0.95)  # a second world, in which R̂^w is not convex
RESTS, SAMPLES, STARTS = (64, 1024, 16384), 24, 8  # N, samples of each and starts, where stationary points are looked for
STOPS = (0.1, 0.03, 0.01, 0.001)  # ε where descent is stopped; the last is called rest
FEW, FEW_SAMPLES = 8, 100  # N so small that some samples have several stationary points, and how many of them are drawn
APART = 0.05  # Θ̂ of one sample that are farther from each other are not the same point, stopped early
PATIENCE = 1500  # steps of such a descent, at most
ROOT = 1e-5  # ε of a minimiser: about the root of what is left to gain
WAYS = {"with replacement": "measured", "permutations": "measured", "analytic steps": "analytic"}  # constants behind C
Step = Callable[[int, float, float], float]  # T, Lipschitz constant, smoothness → η
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
class Stopped:
    """Where descent on R̂^w from many starts is stopped, for one N; (stops, samples, starts) each."""

    theta: Floats  # (…, K, d) Θ̂
    excess: Floats  # R(Θ̂) − R(Θ*)
    stationarity: Floats  # ε of R̂^w there
    distance: Floats  # ‖∇R(Θ̂) − ∇R̂^w(Θ̂)‖_F with the weights of equation (4), on the same sample

    @property
    def apart(self) -> Floats:
        """The largest distance between two Θ̂ of one sample, at rest; (samples,)."""
        rest = self.theta[-1]
        return np.asarray(np.sqrt(np.square(rest[:, :, None] - rest[:, None]).sum(axis=(-2, -1))).max(axis=(1, 2)))


def step(horizon: int, lipschitz: float, smooth: float) -> float:
    """η = FACTOR·√(diameter / (B L² T)) = C/√T  —  the lemma "Non-Convex Projected SGD"."""
    return FACTOR * math.sqrt(DIAMETER / (smooth * lipschitz**2 * horizon))


def multi_pass(seed: int = 0, scale: float = 1.0, weight: Weight = weight, step: Step = step) -> Finding:
    """A Θ in the list has R(Θ) ≤ min R + ε  —  Theorem "Reweighted Multi-Pass SGD"; as has any stationary point of R̂^w."""
    random = np.random.default_rng(seed)
    at = linear.tensors(linear.turned_world(random))
    best = linear.minimiser(at)
    least, uphill = float(linear.risk(best, at)), linear.clean_gradient(best, at)
    known = linear.regularity(RADIUS, CLASSES, max(ERRORS))
    constants = {
        "measured": _steepest(at, debiasing, random),
        "analytic": (float(linear.kappa(known)), float(linear.b_q(known))),
    }
    fields = max(50, round(scale * FIELDS))
    points = linear.scattered(POINTS, random)
    uniform, plain = ([deviations(at, each, points, n, fields, random) for n in LARGE] for each in (weight, naive))
    bent = float(linear.norm(_bent(at, points)).max())
    runs = max(FEWEST, round(scale * RUNS))
    lists = paths(at, weight, step, constants, runs, random)
    hard = Hard.drawn(random)
    samples = max(12, round(scale * SAMPLES))
    stops = {n: stopped(hard, weight, n, samples, random) for n in RESTS}
    astray = stopped(hard, naive, RESTS[-1], samples, random).excess[-1].max(axis=1)
    end = float(linear.risk(linear.end(hard.at, naive), hard.at)) - hard.least
    lowest = least_curvature(hard.at, weight, RESTS[0], random)
    few = stopped(hard, weight, FEW, max(40, round(scale * FEW_SAMPLES)), random)
    checks = (
        exact("Θ* minimises R: what is left to gain in the unit ball", float(linear.gap(best, uphill))),
        at_most("ε of Θ*, without the absolute value in the definition", ROOT, float(linear.stationarity(best, uphill))),
        _outwards(float(linear.norm(uphill))),
        near(f"N·E‖∇R̂^w(Θ*) − ∇R(Θ*)‖² at N = {LARGE[-1]:,}", *gradient_spread(at, best, weight, fields, random)),
        falls(f"largest ‖∇R̂^w − ∇R‖ of {POINTS} Θ against N", -0.5, LARGE, np.stack(uniform)),
        stays(f"naive: largest ‖∇R̂ − ∇R‖ of {POINTS} Θ, N = {LARGE[-1]:,}, limit {bent:.4f}", bent, plain[-1]),
        *_growth(lists, least),
        *_stationary(stops, few),
        _not_convex(lowest),
        _several(few),
        stays(f"naive R̂: worst R(Θ̂) − R(Θ*) of all starts, N = {RESTS[-1]:,}, limit {end:.4f}", end, astray),
    )
    return Finding(
        name="multi_pass",
        title="Multi-pass SGD, and stationary points of the reweighted objective",
        place="Algorithm 4, Theorem “Reweighted Multi-Pass SGD” and the proposition on stationary points, Appendix E.3",
        checks=checks,
        settings={
            **linear.described(at),
            "SGD": f"{runs} runs for each T with N = {SIZES[-1]:,}, and for each N with T = {HORIZONS[-1]:,}; "
            f"{LOOKED} iterates of a list are looked at",
            **{f"steps C/√T, {kind}": _step_sizes(step, *each) for kind, each in constants.items()},
            f"mean least R(Θ) − R(Θ*) at T = {', '.join(f'{each:,}' for each in HORIZONS)}": _means(lists, least),
            "ε ≤ √(2 B κ)/T^(1/4), the lemma's bound": _kept(lists, constants),
            "stationary points": f"R = {HARD_RADIUS:g}, p(x) {HARD_ERRORS[1]:g} where the teacher errs; {samples} samples "
            f"for each N, {len(few.apart)} for N = {FEW}, {STARTS} random starts for each, stopped at "
            f"ε = {', '.join(f'{each:g}' for each in STOPS)}",
            f"samples with Θ̂ more than {APART:g} apart": _share_apart({FEW: few, **stops}),
        },
        notes=(
            "Approximate stationarity is ∇·(Θ' − Θ)/‖Θ' − Θ‖ ≥ −ε for all Θ' of the ball. The paper takes the absolute "
            "value, which no minimum on the boundary meets, Θ* not either; its proof only needs the inequality.",
            "The proposition says R(Θ̂) ≤ min R + ε for an ε-stationary point. Its proof gives 2ε + 2‖∇R − ∇R̂^w‖, which is "
            "what is judged, the distance being that of the weights of equation (4): other weights break it.",
            "The lemma leaves the constant in η = Θ(√(R/(B L² T))) open; it is 4 here. With the analytic constants "
            "short lists are still on their way from 0 to the boundary; with slope and curvature as measured all arrive. "
            "√(2 B κ)/T^(1/4) is so far above what is found that it decides nothing.",
            "T^(−1/4) is slow: on their way from 0 to a wrong limit near Θ*, weights with half of p fall as fast up to "
            "T = 4,096. What gives them away is N: the gradient field, the lists and the stationary points.",
            "Davis and Drusvyatskiy bound how near an iterate is to a stationary point. The lemma takes the iterate itself "
            "for one, which it need not be by a hair inside the ball, where all of ∇ counts. But iterates that were "
            "projected lie on the boundary, and there it is.",
            "In the proof 2‖∇R̂^w − ∇R̂^w‖ should read 2‖∇R − ∇R̂^w‖, as in the display that follows it; one coordinate of the "
            "mean gradient changes by b_t ≤ 2 L_q/N, not L_q/N; the union over the net loses the factor 2dL in front of the "
            "exponential; and the constraint is the unit ball, not B_R. The rate N^(−1/2) is the same.",
        ),
        draw=lambda: {
            "Largest deviation of the gradient field": _fields(uniform, plain, bent),
            "Least ε in the list of iterates": _epsilons(lists, constants["measured"]),
            "Least excess clean risk in the list of iterates, as T grows": _risks(lists, least),
            "Least excess clean risk in the list of iterates, as N grows": _sizes(lists, least),
            "Excess clean risk of approximate stationary points": _points_stopped(stops, float(astray.mean())),
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


def draw_shares(at: Instances, n: int, samples: int, random: np.random.Generator) -> Tensor:
    """The same of which only the shares count; (samples, n, 2)."""
    import torch

    chances = linear.chances(at)
    counts = random.multinomial(n, chances.flatten().numpy(), samples) / n
    return torch.from_numpy(counts).reshape(samples, *chances.shape)


# ------------------------------------------------------------------------------------------------------ the gradient field


def deviations(at: Instances, weight: Weight, points: Tensor, n: int, samples: int, random: np.random.Generator) -> Floats:
    """The largest ‖∇R̂^w(Θ) − ∇R(Θ)‖_F of many Θ (P, K, d), for each of many samples of N examples: (samples,)."""
    import torch

    each, clean = linear.each_gradient(points, at, weight), linear.clean_gradient(points, at)
    found = torch.einsum("snl,pnlkd->spkd", draw_shares(at, n, samples, random), each)
    return np.asarray(linear.norm(found - clean).amax(dim=1))


def gradient_spread(
    at: Instances, best: Tensor, weight: Weight, samples: int, random: np.random.Generator
) -> tuple[float, Floats]:
    """E‖∇(w ℓ) − ∇R‖² at Θ*, exactly, and N·‖∇R̂^w − ∇R‖² of samples, (samples,): their mean, if the weights debias."""
    off = linear.each_gradient(best, at, weight) - linear.clean_gradient(best, at)
    predicted = float((linear.chances(at) * linear.norm(off).square()).sum())
    return predicted, LARGE[-1] * np.square(deviations(at, weight, best[None], LARGE[-1], samples, random))


def _bent(at: Instances, points: Tensor) -> Tensor:
    """∇R^naive − ∇R, where the naive gradient field leads; (P, K, d)."""
    return linear.mean_gradient(points, at, linear.chances(at), naive) - linear.clean_gradient(points, at)


# ------------------------------------------------------------------------------------------------------- stationary points


@dataclass(frozen=True)
class Hard:
    """The world of the stationary points, and the least clean risk in it."""

    at: Instances
    least: float

    @classmethod
    def drawn(cls, random: np.random.Generator) -> Hard:
        at = linear.tensors(linear.turned_world(random, HARD_RADIUS, HARD_ERRORS))
        return cls(at, float(linear.risk(linear.minimiser(at), at)))


def stopped(hard: Hard, weight: Weight, n: int, samples: int, random: np.random.Generator) -> Stopped:
    """Projected gradient descent on R̂^w of N examples, from random starts: the first Θ of each with ε ≤ a stop."""
    import torch

    at, shares = hard.at, draw_shares(hard.at, n, samples, random)[:, None]
    theta = linear.scattered(samples * STARTS, random).reshape(samples, STARTS, CLASSES, DIMENSIONS)
    kept = theta.repeat(len(STOPS), 1, 1, 1, 1)
    waiting = torch.ones(len(STOPS), samples, STARTS, dtype=torch.bool)
    for _ in range(PATIENCE):
        gradient = linear.mean_gradient(theta, at, shares, weight)
        kept = torch.where(waiting[..., None, None], theta, kept)
        waiting = waiting & (linear.stationarity(theta, gradient) > torch.tensor(STOPS, dtype=torch.float64)[:, None, None])
        if not waiting.any():
            break
        theta = linear.projected(theta - linear.gentle(at) * gradient)
    off = linear.norm(linear.clean_gradient(kept, at) - linear.mean_gradient(kept, at, shares, debiasing))
    found = (
        kept,
        linear.risk(kept, at) - hard.least,
        linear.stationarity(kept, linear.mean_gradient(kept, at, shares, weight)),
        off,
    )
    return Stopped(*(each.numpy() for each in found))


def least_curvature(at: Instances, weight: Weight, n: int, random: np.random.Generator) -> float:
    """The smallest eigenvalue of ∇²R̂^w found, over samples of N examples and random Θ."""
    import torch

    def objective(theta: Tensor, shares: Tensor) -> Tensor:
        return (shares * linear.weighted_losses(at.inputs @ theta.mT, at, weight)).sum()

    theta, size = linear.scattered(POINTS, random), CLASSES * DIMENSIONS
    found = torch.func.vmap(torch.func.jacrev(torch.func.grad(objective)))(theta, draw_shares(at, n, POINTS, random))
    return float(torch.linalg.eigvalsh(found.reshape(POINTS, size, size)).min())


# ------------------------------------------------------------------------------------------------------ lists of iterates


def _steepest(at: Instances, weight: Weight, random: np.random.Generator) -> tuple[float, float]:
    """The largest slope and curvature of w·ℓ over instances, labels and random Θ: L and B as they are."""
    import torch

    size = 2 * len(at.error) * 20
    rows = torch.arange(size) % len(at.error)
    theta = linear.projected(torch.from_numpy(random.normal(size=(size, CLASSES, DIMENSIONS))))
    found = measured(theta, at[rows], torch.arange(size) % (2 * len(at.error)) < len(at.error), weight)
    return float(np.max(found.slope)), float(np.max(found.curvature))


def paths(
    at: Instances,
    weight: Weight,
    step: Step,
    constants: dict[str, tuple[float, float]],
    runs: int,
    random: np.random.Generator,
) -> dict[Cell, Best]:
    """Algorithm 4 in all cells, those of one T side by side, each run with a sample of its own."""
    found: dict[Cell, Best] = {}
    for horizon in HORIZONS:
        cells = [Cell(way, SIZES[-1], horizon) for way in WAYS]
        if horizon == HORIZONS[-1]:
            cells += [Cell(way, size, horizon) for way, kind in WAYS.items() if kind == "measured" for size in SIZES[:-1]]
        steps = [step(horizon, *constants[WAYS[cell.way]]) for cell in cells]
        found |= _side_by_side(at, weight, cells, steps, runs, random)
    return found


def _side_by_side(
    at: Instances, weight: Weight, cells: list[Cell], steps: list[float], runs: int, random: np.random.Generator
) -> dict[Cell, Best]:
    """Cells of one T."""
    import torch

    horizon, every = cells[0].horizon, max(1, cells[0].horizon // LOOKED)
    rows, corrupted, shares = [], [], []
    for cell in cells:
        drawn, shown, share = draw(at, cell.size, runs, random)
        order = torch.from_numpy(picks(cell, runs, random))
        rows.append(drawn.T.gather(0, order))
        corrupted.append(shown.T.gather(0, order))
        shares.append(share)
    examples = zip(torch.cat(rows, dim=1), torch.cat(corrupted, dim=1), strict=True)
    each = torch.tensor(steps, dtype=torch.float64).repeat_interleave(runs).expand(horizon - 1, -1)
    sums, risks, found = torch.cat(shares), [], []
    for t, theta in enumerate(linear.iterates(linear.origin(len(cells) * runs), each, examples, at, weight), 2):  # Θ^(t)
        if t % every == 0:
            risks.append(linear.risk(theta, at))
            found.append(linear.stationarity(theta, linear.mean_gradient(theta, at, sums, weight)))
    least = [torch.stack(each).amin(dim=0).reshape(len(cells), runs).numpy() for each in (risks, found)]
    return {cell: Best(*each) for cell, *each in zip(cells, *least, strict=True)}


def picks(cell: Cell, runs: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Which of its N examples each run sees at each step; (T, runs)."""
    if cell.way != "permutations":
        return random.integers(cell.size, size=(cell.horizon, runs))
    passes = math.ceil(cell.horizon / cell.size)
    order = random.permuted(np.tile(np.arange(cell.size)[:, None], (passes, 1, runs)), axis=1)  # every pass and run its own
    return order.reshape(-1, runs)[: cell.horizon]


# ------------------------------------------------------------------------------------------------------------- the verdicts


def _step_sizes(step: Step, lipschitz: float, smooth: float) -> str:
    return f"κ = {lipschitz:.2f}, B = {smooth:.2f}, hence C = {step(1, lipschitz, smooth):.4f}"


def _outwards(length: float) -> Check:
    claim = "ε of Θ* with the absolute value in the definition, by the way to −Θ*"
    return Check(claim, with_minus(f"> {ROOT:g}"), length, None, length > ROOT, contrast=True)


def _not_convex(lowest: float) -> Check:
    claim = f"smallest eigenvalue of ∇²R̂^w at N = {RESTS[0]}, R = {HARD_RADIUS:g}: not convex"
    return Check(claim, "< 0", lowest, None, lowest < -1e-3, contrast=True)


def _several(few: Stopped) -> Check:
    claim = f"largest distance between Θ̂ of one sample, N = {FEW}: several stationary points"
    return Check(claim, f"> {APART:g}", float(few.apart.max()), None, bool(few.apart.max() > APART), contrast=True)


def _share_apart(found: dict[int, Stopped]) -> str:
    return ", ".join(f"{(each.apart > APART).mean():.0%} for N = {n:,}" for n, each in found.items())


def _stationary(stops: dict[int, Stopped], few: Stopped) -> Iterator[Check]:
    """Any approximate stationary point: as good as the proof says, and the better the more stationary and the larger N."""
    every, epsilon = [few, *stops.values()], np.array(STOPS)[:, None, None]
    shares = [found.excess / (2 * epsilon + 2 * found.distance) for found in every]
    reached = max(float((found.stationarity / epsilon).max()) for found in every)
    yield at_most(f"descent from {STARTS} starts reaches every ε: largest ε found over ε", 1, reached)
    yield at_most("R(Θ̂) − R(Θ*) over 2ε + 2‖∇R − ∇R̂^w‖, largest of all Θ̂", 1, max(float(each.max()) for each in shares))
    at_rest = np.stack([found.excess[-1].max(axis=1) for found in stops.values()])
    yield falls(f"worst R(Θ̂) − R(Θ*) of all starts against N, ε = {STOPS[-1]:g}", -0.5, RESTS, at_rest)
    worst = stops[RESTS[-1]].excess[:-1].max(axis=2)  # (stops, samples)
    claim = f"worst R(Θ̂) − R(Θ*) of all starts against 1/ε, ε ≥ {STOPS[-2]:g}, N = {RESTS[-1]:,}"
    yield falls(claim, -1.0, [1 / each for each in STOPS[:-1]], worst)


def _kept(lists: dict[Cell, Best], constants: dict[str, tuple[float, float]]) -> str:
    """How far the least ε of a list is below the lemma's bound."""
    far = {}
    for kind, known in constants.items():
        reach = math.sqrt(math.prod(known) * DIAMETER)
        shares = [reach / cell.horizon**0.25 / best.stationarity for cell, best in lists.items() if WAYS[cell.way] == kind]
        far[kind] = float(np.concatenate(shares).min())
    return ", ".join(f"{kind} constants: at least {share:,.0f} times the least ε" for kind, share in far.items())


def _means(lists: dict[Cell, Best], least: float) -> str:
    means = {way: (_growing(lists, "risk", way) - least).mean(axis=1) for way in WAYS}
    return "; ".join(f"{way} {', '.join(f'{each:.4f}' for each in found)}" for way, found in means.items())


def _growing(lists: dict[Cell, Best], name: str, way: str) -> Floats:
    """As T grows, with the largest N; (T, runs)."""
    return np.stack([getattr(lists[Cell(way, SIZES[-1], each)], name) for each in HORIZONS])


def _by_size(lists: dict[Cell, Best], way: str) -> Floats:
    """The least R(Θ) as N grows, with the largest T; (N, runs)."""
    return np.stack([lists[Cell(way, each, HORIZONS[-1])].risk for each in SIZES])


def _growth(lists: dict[Cell, Best], least: float) -> Iterator[Check]:
    """The rates of Theorem "Reweighted Multi-Pass SGD", T = poly(κ)/ε⁴ and N = poly(κ)/ε², where the lists arrive."""
    for way in ("with replacement", "permutations"):
        found, excess = _growing(lists, "stationarity", way), _growing(lists, "risk", way) - least
        yield falls(f"{way}: least ε in the list against T", -0.25, HORIZONS, found)
        yield falls(f"{way}: least R(Θ) − R(Θ*) in the list against T", -0.25, HORIZONS, excess)
        yield falls(f"{way}: least R(Θ) − R(Θ*) in the list against N", -0.5, SIZES, _by_size(lists, way) - least)


# -------------------------------------------------------------------------------------------------------------- the figures


def _fields(uniform: list[Floats], plain: list[Floats], bent: float) -> Figure:
    figure, axes = page.panel(3.4)
    _points(axes, LARGE, np.stack(uniform), "reweighted", BLUE, "o")
    _points(axes, LARGE, np.stack(plain), "naive", ORANGE, "s")
    axes.axhline(bent, color=ORANGE, linewidth=1.2, linestyle=(0, (1, 2)), label="where naive leads, exactly")
    _guide(axes, LARGE, 1.5 * uniform[0].mean(), -0.5, "slope −1/2")
    axes.set_ylabel("largest ‖∇R̂ − ∇R‖")
    _finish(figure, axes, LARGE, "N")
    return figure


def _epsilons(lists: dict[Cell, Best], constants: tuple[float, float]) -> Figure:
    figure, axes = page.panel(3.5)
    for way, look in LOOKS.items():
        _points(axes, HORIZONS, _growing(lists, "stationarity", way), way, *look)
    bound = math.sqrt(math.prod(constants) * DIAMETER) / np.array(HORIZONS) ** 0.25
    axes.plot(HORIZONS, bound, color=INK, linewidth=1.3, label="√(2 B κ)/T^(1/4), measured")
    axes.set_ylabel("least ε")
    _finish(figure, axes, HORIZONS, "T")
    return figure


def _risks(lists: dict[Cell, Best], least: float) -> Figure:
    figure, axes = page.panel(3.5)
    for way, look in LOOKS.items():
        _points(axes, HORIZONS, _growing(lists, "risk", way) - least, way, *look)
    above = 3 * (_growing(lists, "risk", "with replacement")[0].mean() - least)
    _guide(axes, HORIZONS, above, -0.25, "slope −1/4")
    axes.set_ylabel("least R(Θ) − R(Θ*)")
    _finish(figure, axes, HORIZONS, "T")
    return figure


def _sizes(lists: dict[Cell, Best], least: float) -> Figure:
    figure, axes = page.panel(3.5)
    for way in ("with replacement", "permutations"):
        _points(axes, SIZES, _by_size(lists, way) - least, way, *LOOKS[way])
    _guide(axes, SIZES, 1.8 * (_by_size(lists, "with replacement")[0].mean() - least), -0.5, "slope −1/2")
    axes.set_ylabel("least R(Θ) − R(Θ*)")
    _finish(figure, axes, SIZES, "N")
    return figure


def _points_stopped(stops: dict[int, Stopped], astray: float) -> Figure:
    figure, axes = page.panel(3.8)
    looks = ((ORANGE, "s"), (GREEN, "^"), (BLUE, "o"), (PURPLE, "D"))
    for i, (epsilon, (color, marker)) in enumerate(zip(STOPS, looks, strict=True)):
        worst = np.stack([found.excess[i].max(axis=1) for found in stops.values()])
        _points(axes, RESTS, worst, f"ε = {epsilon:g}", color, marker)
    bound = [2 * STOPS[-1] + 2 * found.distance[-1].mean() for found in stops.values()]
    axes.plot(RESTS, bound, color=INK, linewidth=1.3, label=f"2ε + 2‖∇R − ∇R̂ʷ‖, ε = {STOPS[-1]:g}")
    axes.axhline(astray, color=GREY, linewidth=1.2, linestyle=(0, (1, 2)), label="naive, largest N")
    axes.set_ylabel("worst R(Θ̂) − R(Θ*)")
    _finish(figure, axes, RESTS, "N")
    return figure


def _guide(axes: Axes, sizes: Sequence[int], begin: float, rate: float, label: str) -> None:
    x = np.array(sizes, np.float64)
    axes.plot(x, begin * (x / x[0]) ** rate, color=GREY, linestyle=(0, (5, 2)), label=label)


def _points(axes: Axes, sizes: Sequence[int], values: Floats, label: str, color: str, marker: str) -> None:
    """Means over runs of values (sizes, runs), and SIGMAS standard errors."""
    mean, error = np.array([mean_and_error(each) for each in values]).T
    axes.errorbar(sizes, mean, yerr=SIGMAS * error, color=color, marker=marker, markersize=4.5, capsize=3, label=label)


def _finish(figure: Figure, axes: Axes, sizes: Sequence[int], name: str) -> None:
    page.plain(axes)
    axes.set_xticks(sizes, [f"{each:,}" for each in sizes])
    axes.set_xlabel(name)
    page.legend(figure, 2)
