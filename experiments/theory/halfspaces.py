"""Naive objective fails (Appendix E.1): two halfspaces on a sphere, one of them true and one named by the teacher.

Instances are uniform on the sphere of radius R in d dimensions. A risk E[ℓ(sign(truth·x) θ·x)] depends on θ only through its
part along `truth` and the length of the rest, so it is an integral over the plane of the two: exact by Gauss–Legendre rules,
whatever d is. The clean risk takes θ* as truth, the naive objective the teacher's θ̃ at the angle π c.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from experiments.theory import page
from experiments.theory.claims import Check, Finding, at_most, mean_and_error, none_far
from wdistill.report.svg import BLUE, GREEN, GREY, INK, ORANGE, PURPLE
from wdistill.weights.equations import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

NOISE = (0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0)  # c
DIMENSIONS = {3: BLUE, 10: ORANGE, 50: GREEN}  # d
SHOWN = {0.1: BLUE, 0.3: ORANGE, 0.5: GREEN, 1.0: PURPLE}  # c of the first figure
SMALL, FACTORS = 0.1, (1.0, 5.0)  # R in units of √d / c: too small a sphere, and those of the claim
STARTS = 3  # of the optimisation, random on the unit sphere
STEPS = 50
TIGHT = 1e-5  # tolerance where no chance enters: rules of integration, the end of the optimisation
POINTS = 200_000  # instances drawn for what is measured by sampling
NODES = 48  # of each rule

Angle = Callable[[float], float]


def angle(noise: float) -> float:
    """φ = π c between θ* and θ̃, for label noise c  —  the proof in Appendix E.1."""
    return math.pi * noise


def gap(noise: float, dimensions: int, radius: float) -> float:
    """R(θ̃) − R(θ*) = R·E[r]·(1 − cos π c)/π, exactly; r is the length of a uniform unit vector's part in a plane.

    Not in the paper: it replaces the proof's bound c − R(θ*) in Appendix E.1.
    The losses on both halfspaces' own sides are alike, and ℓ(−t) − ℓ(t) = t: what remains is |θ̃·x| where they disagree.
    """
    half = dimensions / 2
    length = math.sqrt(math.pi) / 2 * math.exp(math.lgamma(half) - math.lgamma(half + 0.5))
    return radius * length * (1 - math.cos(math.pi * noise)) / math.pi


def risk(theta: Tensor, truth: Tensor, radius: Tensor) -> Tensor:
    """E[log(1 + exp(−sign(truth·x) θ·x))] over the sphere; θ (d,), a unit vector `truth` (d,), radius () → ().

    R(θ) and R^naive(θ) of Proposition "Naive Objective Fails", Appendix E, with θ* and with θ̃ as `truth`; the rule is ours.
    In the plane of `truth` and θ, x has an angle α in (−π/2, π/2) to `truth` (the other half is its mirror), and a length
    R sin τ with density ∝ sin τ cos^(d−3) τ. The rule over α is split where θ·x changes its sign.
    """
    import torch

    along = theta @ truth
    rest = torch.sqrt(torch.square(theta - along * truth).sum() + 1e-24)  # 0 has no derivative
    length, turn = torch.hypot(along, rest), torch.atan2(rest, along)
    unit, shares = (torch.from_numpy(each) for each in _rule())
    tau = math.pi / 2 * unit
    density = torch.sin(tau) * torch.cos(tau) ** (len(theta) - 3) * shares
    reach = radius * length * torch.sin(tau)[:, None]  # (nodes, 1)
    wrong = torch.nn.functional.softplus(reach * torch.sin(turn * unit))  # where θ·x < 0: from the border inwards
    right = torch.nn.functional.softplus(-reach * torch.sin((math.pi - turn) * unit))
    over_angle = (turn * (wrong * shares).sum(dim=1) + (math.pi - turn) * (right * shares).sum(dim=1)) / math.pi
    return (density * over_angle).sum() / density.sum()


@cache
def _rule() -> tuple[Floats, Floats]:
    """Gauss–Legendre on [0, 1]: where, and how much; (nodes,) each."""
    nodes, shares = np.polynomial.legendre.leggauss(NODES)
    return (nodes + 1) / 2, shares / 2


def minimise(starts: Tensor, truth: Tensor, radius: Tensor) -> Tensor:
    """Projected gradient descent on the unit ball, each start with rates of its own; (n, d), (n, d), (n,) → (n, d).

    A step that does not lower the risk enough is halved, one that does is doubled the next time. Along a ray the risk is so
    flat that after every step the end of the ray is tried too.
    """
    import torch

    value = torch.func.vmap(risk)
    slope = torch.func.vmap(torch.func.grad_and_value(risk))
    theta, rate = starts, torch.ones(len(starts), dtype=starts.dtype)
    for _ in range(STEPS):
        gradient, before = slope(theta, truth, radius)
        there = _projected(theta - rate[:, None] * gradient)
        moved = there - theta
        enough = before + (gradient * moved).sum(dim=1) + torch.square(moved).sum(dim=1) / (2 * rate)
        after = value(there, truth, radius)
        better = after <= enough
        theta, rate = torch.where(better[:, None], there, theta), torch.where(better, 2 * rate, rate / 2)
        end = theta / _length(theta)
        farther = value(end, truth, radius) < torch.where(better, after, before)
        theta = torch.where(farther[:, None], end, theta)
    return theta


def slack(theta: Tensor, truth: Tensor, radius: Tensor) -> Tensor:
    """∇·θ + ‖∇‖ of the risk: by convexity no point of the unit ball is lower by more; (n, d), (n, d), (n,) → (n,)."""
    import torch

    gradient: Tensor = torch.func.vmap(torch.func.grad(risk))(theta, truth, radius)
    return (gradient * theta).sum(dim=1) + _length(gradient)[:, 0]


def _projected(theta: Tensor) -> Tensor:
    """The nearest points of the unit ball, (n, d) → (n, d)."""
    return theta / _length(theta).clamp(min=1)


def _length(theta: Tensor) -> Tensor:
    """(n, d) → (n, 1)."""
    import torch

    length: Tensor = torch.linalg.vector_norm(theta, dim=1, keepdim=True)
    return length


@dataclass(frozen=True)
class HalfspaceCase:
    """What came out in one number of dimensions; the axes are noise levels, factors of the radius, and starts."""

    dimensions: int
    radius: Floats  # (c, factors)
    gap: Floats  # (c, factors, starts) R(θ̂) − R(θ*)
    teacher: Floats  # (c, factors) R(θ̃)
    distance: float  # the largest from a θ̂ to its θ̃
    slack: float  # the largest of a θ̂ on the naive objective, and of θ* on the clean one
    noise: Floats  # (c,) sampled share of wrong labels, off c in standard errors
    sampled: Floats  # (c, factors) sampled gap, off the integrated one in standard errors


def halfspaces(seed: int = 0, scale: float = 1.0, angle: Angle = angle) -> Finding:
    """Naive objective fails, Appendix E: its minimiser on the unit ball is worse than the best by c/2 and more."""
    starts, points = max(1, round(scale * STARTS)), max(5000, round(scale * POINTS))
    cases = [_case(d, angle, starts, points, seed) for d in DIMENSIONS]
    halves = np.array(NOISE)[:, None, None] / 2
    small = np.stack([case.gap[:, :1] / halves for case in cases])
    large = np.stack([case.gap[:, 1:] / halves for case in cases])
    relative = max(float(np.abs(case.gap / _expected(case)[:, :, None] - 1).max()) for case in cases)
    floor = min(float((case.teacher / (np.array(NOISE)[:, None] * math.log(2))).min()) for case in cases)
    step = min(float(case.teacher[-1, 0] / NOISE[-1]) for case in cases)
    checks = (
        none_far("share of wrong labels from c", np.stack([case.noise for case in cases])),
        at_most(
            "what a minimiser of the naive objective, or θ* of the clean one, can still gain",
            TIGHT,
            max(case.slack for case in cases),
        ),
        at_most("distance of a minimiser of the naive objective from θ̃", 10 * TIGHT, max(case.distance for case in cases)),
        Check("smallest gap / (c/2), R = √d/c and more", "≥ 1", float(large.min()), None, bool(large.min() >= 1)),
        at_most("gap against R·E[r]·(1 − cos π c)/π, largest relative difference", TIGHT, relative),
        none_far("sampled gap from the integrated one", np.stack([case.sampled for case in cases])),
        Check("smallest R(θ̃)/(c ln 2), on any sphere", "≥ 1", floor, None, floor >= 1),
        Check(
            f"largest gap / (c/2), R = {SMALL:g}·√d/c", "< 1", float(small.max()), None, bool(small.max() < 1), contrast=True
        ),
        Check(f"R(θ̃)/c for c = 1, R = {SMALL:g}·√d: the proof has ≥ 1", "< 1", step, None, step < 1, contrast=True),
    )
    return Finding(
        name="halfspaces",
        title="The naive objective fails",
        place="Proposition of Appendix E, proof in E.1",
        checks=checks,
        settings={
            "c": ", ".join(f"{c:g}" for c in NOISE),
            "d": ", ".join(f"{d}" for d in DIMENSIONS),
            "R": ", ".join(f"{factor:g}·√d/c" for factor in (SMALL, *FACTORS)),
            "minimisers": f"projected gradient descent from {starts} random starts each",
            "sampled": f"{points:,} instances for every d",
        },
        notes=(
            "The proof bounds R(θ̃) by c through log(1 + e^(−t)) ≥ 1{t < 0}, which lacks a factor ln 2: what holds is "
            "R(θ̃) ≥ c ln 2. The claim has slack enough.",
            "The proof's O(√d/R·log(d/R)) should read log(R/√d); and no logarithm is needed: R(θ*) ≤ 0.66·√d/R.",
            "The gap is R·E[r]·(1 − cos π c)/π exactly, and reaches c/2 at R of about 0.25·√d/c for small c. The "
            "proof's R = O(√d/c) must be a lower bound, R ≥ const·√d/c: on a much smaller sphere the gap is below c/2.",
        ),
        draw=lambda: {
            "Gap over c/2, against the radius; d = 10": _by_radius(next(case for case in cases if case.dimensions == 10)),
            f"Gap against the label noise; R = {FACTORS[0]:g}·√d/c": _by_noise(cases),
        },
    )


def _case(dimensions: int, angle: Angle, starts: int, points: int, seed: int) -> HalfspaceCase:
    """One number of dimensions: all noise levels, radii and starts in one descent."""
    import torch

    random = torch.Generator().manual_seed(1000 * seed + dimensions)

    def directions(count: int) -> Tensor:
        found = torch.randn(count, dimensions, dtype=torch.float64, generator=random)
        return found / _length(found)

    best, across = torch.linalg.qr(directions(2).T)[0].T  # θ*, and a direction orthogonal to it
    turns = [angle(c) for c in NOISE]
    teachers = torch.stack([math.cos(turn) * best + math.sin(turn) * across for turn in turns])  # θ̃ of every c
    radius = math.sqrt(dimensions) * np.array((SMALL, *FACTORS)) / np.array(NOISE)[:, None]  # (c, factors)
    shape = (*radius.shape, starts)
    radii = torch.from_numpy(radius)[:, :, None].expand(shape).reshape(-1)
    teacher = teachers[:, None, None].expand(*shape, -1).reshape(-1, dimensions)
    truth = best.expand(len(teacher), -1)
    found = minimise(directions(len(teacher)), teacher, radii)
    value = torch.func.vmap(risk)
    clean = value(truth, truth, radii)
    gaps = (value(found, truth, radii) - clean).reshape(shape).numpy()
    x = directions(points)
    return HalfspaceCase(
        dimensions,
        radius,
        gaps,
        teacher=value(teacher, truth, radii).reshape(shape)[:, :, 0].numpy(),
        distance=float(_length(found - teacher).max()),
        slack=float(torch.maximum(slack(found, teacher, radii), slack(truth, truth, radii)).max()),
        noise=_noise(x @ best, x @ teachers.T),
        sampled=_sampled(x @ best, x @ found.reshape(*shape, -1)[:, :, 0].reshape(-1, dimensions).T, radius, gaps[:, :, 0]),
    )


def _expected(case: HalfspaceCase) -> Floats:
    """The gaps that the equation predicts, (c, factors)."""
    rows = zip(NOISE, case.radius, strict=True)
    return np.array([[gap(c, case.dimensions, radius) for radius in row] for c, row in rows])


def _noise(clean: Tensor, noisy: Tensor) -> Floats:
    """How far the share of wrong labels is off c, in standard errors; θ*·x (points,), θ̃·x (points, c) → (c,)."""
    c = np.array(NOISE)
    wrong = ((clean[:, None] > 0) != (noisy > 0)).double().mean(dim=0).numpy()
    return np.asarray((wrong - c) / np.sqrt(np.maximum(c * (1 - c), 1e-12) / len(clean)))


def _sampled(clean: Tensor, found: Tensor, radius: Floats, gaps: Floats) -> Floats:
    """How far the mean of ℓ(sign(θ*·x) θ̂·x) − ℓ(|θ*·x|) is off the gap; (points,), (points, c·factors) → (c, factors)."""
    from torch.nn.functional import softplus

    off = []
    for column, r, expected in zip(found.T, radius.ravel(), gaps.ravel(), strict=True):
        excess = softplus(-clean.sign() * column * r) - softplus(-clean.abs() * r)
        measured, error = mean_and_error(excess.numpy())
        off.append((measured - expected) / error)
    return np.reshape(off, radius.shape)


def _by_radius(case: HalfspaceCase) -> Figure:
    """The gap in units of c/2 over the radius in units of √d/c: lines as predicted, dots as found by descent."""
    figure, axes = page.panel(3.9)
    factors = np.geomspace(SMALL / 1.5, 1.5 * FACTORS[-1], 100)
    axes.axhline(1, color=INK, linewidth=1.2, linestyle=(0, (4, 2)), label="c/2")
    for c, color in SHOWN.items():
        row, scale = NOISE.index(c), math.sqrt(case.dimensions) / c
        predicted = [gap(c, case.dimensions, factor * scale) / (c / 2) for factor in factors]
        axes.plot(factors, predicted, color=color, linewidth=1.6, label=f"c = {c:g}")
        measured = case.gap[row].min(axis=1) / (c / 2)
        axes.plot(case.radius[row] / scale, measured, "o", color=color, markersize=5)
    axes.plot([], [], "o", color=GREY, markersize=5, label="found")
    page.plain(axes)
    axes.set(xlabel="R / (√d/c)", ylabel="gap / (c/2)")
    page.legend(figure, 3)
    return figure


def _by_noise(cases: list[HalfspaceCase]) -> Figure:
    """The gap over c: predicted lines, found dots, and what is claimed."""
    figure, axes = page.panel(3.7)
    fine = np.linspace(0.02, 1, 100)
    for case in cases:
        color = DIMENSIONS[case.dimensions]
        predicted = [gap(c, case.dimensions, FACTORS[0] * math.sqrt(case.dimensions) / c) for c in fine]
        axes.plot(fine, predicted, color=color, linewidth=1.6, label=f"d = {case.dimensions}")
        axes.plot(NOISE, case.gap[:, 1].min(axis=1), "o", color=color, markersize=5)
    axes.plot(fine, fine / 2, color=INK, linewidth=1.4, linestyle=(0, (4, 2)), label="claimed: c/2")
    axes.plot([], [], "o", color=GREY, markersize=5, label="found")
    axes.set(xlabel="c", ylabel="R(θ̂) − R(θ*)", xlim=(0, 1.02), ylim=(0, None))
    page.legend(figure, 3)
    return figure
