"""The smoothness lemma (Appendix E): B_q bounds the curvature of w·ℓ, and κ its slope, whatever the instance and Θ."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from experiments.theory import page
from experiments.theory.claims import EXACT, Check, Finding
from experiments.theory.linear import Instances, Number, Regularity, Weight, b_q, kappa, loss, regularity, shown_loss
from experiments.theory.simulator import weight
from wdistill.report.svg import BLUE, GREEN, GREY, ORANGE
from wdistill.weights.equations import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

RADII = (0.5, 1.0, 2.0, 4.0)
ERRORS = (0.3, 0.6, 0.9, 1.0)  # largest p(x)
CLASSES = {2: BLUE, 3: ORANGE, 5: GREEN}
DIMENSIONS = 3
DRAWS = 400  # instances and Θ for each radius, error and number of classes
CONSTANTS = {
    "m_loss": "|ℓ| ≤ M_ℓ",
    "l_loss": "‖∇_z ℓ‖ ≤ L_ℓ",
    "b_loss": "‖∇²_z ℓ‖ ≤ B_ℓ",
    "m_weight": "|w| ≤ M_w",
    "l_weight": "‖∇_Θ w‖ ≤ L_w",
    "b_weight": "‖∇²_Θ w‖ ≤ B_w",
}

Constant = Callable[[Regularity], Number]  # of constants, or of values at many draws


@dataclass(frozen=True)
class Extremes(Regularity):
    """What `Regularity` bounds, as measured at each draw, (r,), or the largest of a setting, ()."""

    slope: Number  # ‖∇_Θ(w ℓ)‖_F
    curvature: Number  # ‖∇²_Θ(w ℓ)‖, the largest eigenvalue by size


def smoothness(seed: int = 0, scale: float = 1.0, kappa: Constant = kappa, b_q: Constant = b_q) -> Finding:
    """‖∇²_Θ(w ℓ)‖ ≤ B_q and ‖∇_Θ(w ℓ)‖_F ≤ κ, from constants of loss and weight that hold one by one."""
    random = np.random.default_rng(seed)
    draws = max(50, round(scale * DRAWS))
    known = [regularity(r, k, p) for k, r, p in product(CLASSES, RADII, ERRORS)]
    everywhere = [each for k in CLASSES for each in _extremes(k, draws, random)]
    found = [_largest(each) for each in everywhere]
    kappas, smooth = np.array([kappa(each) for each in known]), np.array([b_q(each) for each in known])
    slopes, curvatures = np.array([each.slope for each in found]), np.array([each.curvature for each in found])
    checks = [
        _within("‖∇²(w ℓ)‖ ≤ B_q: largest share of the bound", curvatures / smooth),
        _within("‖∇(w ℓ)‖ ≤ κ: largest share of the bound", slopes / kappas),
        _within(
            "‖∇²(w ℓ)‖ ≤ |ℓ|‖∇²w‖ + 2‖x‖‖∇ℓ‖‖∇w‖ + |w|‖x‖²‖∇²ℓ‖, B_q draw by draw: largest share",
            np.stack([each.curvature / b_q(each) for each in everywhere]),
        ),
        _within(
            "‖∇(w ℓ)‖ ≤ |ℓ|‖∇w‖ + ‖x‖|w|‖∇ℓ‖, κ draw by draw: largest share",
            np.stack([each.slope / kappa(each) for each in everywhere]),
        ),
    ]
    for name, sign in CONSTANTS.items():
        shares = [getattr(each, name) / getattr(bound, name) for each, bound in zip(found, known, strict=True)]
        checks.append(_within(f"{sign}: largest share of the bound", np.array(shares)))
    flat = np.array([each.m_weight * each.b_loss * each.radius**2 for each in known])
    level = np.array([each.radius * each.m_weight * each.l_loss for each in known])
    checks.append(_passed("‖∇²(w ℓ)‖ against M_w B_ℓ R² alone, as if w were constant", curvatures / flat))
    checks.append(_passed("‖∇(w ℓ)‖ against R M_w L_ℓ alone, as if w were constant", slopes / level))
    return Finding(
        name="smoothness",
        title="Smoothness of the weighted loss",
        place="smoothness lemma, Appendix E.3, and κ of Appendix E.2",
        checks=tuple(checks),
        settings={
            "model": f"linear, {', '.join(map(str, CLASSES))} classes, {DIMENSIONS} dimensions, cross-entropy",
            "R": ", ".join(f"{each:g}" for each in RADII),
            "largest p(x)": ", ".join(f"{each:g}" for each in ERRORS),
            "draws": f"{draws:,} of (x, Θ) for each of {len(known)} settings, half of them with Θ = v xᵀ on the boundary",
            "derivatives": "torch.func, in Θ",
        },
        notes=(
            "The constants of loss and weight are derived in theory/linear.py, function regularity. On the unit ball "
            "cross-entropy stays away from 0, so the distortion is bounded and smooth without any floor.",
            "The constants are not reached at one and the same point, so B_q and κ have slack and somewhat smaller formulas "
            "would pass too. Draw by draw, with the values found there in place of the constants, the same formulas are met "
            "with equality (two classes): nothing in them can be left out.",
            "B_w has a factor of about 2 to spare: it takes both losses to be least, and both derivatives of the weight in "
            "the log-distortion to be largest, at one and the same point, and there is none.",
            "As Θ enters through Θx alone, Θ = v xᵀ reaches all predictions that any Θ does: the worst case is among them.",
            "The paper takes all constants to be larger than 1 to shorten its expressions; the two bounds do not need it.",
            "In the last display of the lemma's proof ∇ℓ should read ∇²ℓ.",
        ),
        draw=lambda: {
            "Curvature of the weighted loss against B_q": _figure(smooth, curvatures, "B_q", "‖∇²(w ℓ)‖"),
            "Slope of the weighted loss against κ": _figure(kappas, slopes, "κ", "‖∇(w ℓ)‖"),
        },
    )


def measured(theta: Tensor, at: Instances, corrupted: Tensor, weight: Weight) -> Extremes:
    """Values, slopes and curvatures at r pairs of Θ and example, by torch.func; Θ (r, K, d), corrupted (r,) → (r,) each."""
    import torch

    def label(one: Instances, corrupted: Tensor) -> Tensor:
        return torch.where(corrupted, one.corrupted, one.truth)

    def weight_at(theta: Tensor, one: Instances) -> Tensor:
        prediction = theta @ one.inputs
        return weight(one.error, loss(one.corrupted, prediction) / loss(one.truth, prediction))

    def derivatives(function: Callable[..., Tensor], *points: Tensor) -> tuple[Floats, Floats, Floats]:
        """|value|, norm of the gradient and of the Hessian, in the first of the points."""
        size = points[0][0].numel()
        values = torch.func.vmap(function)(*points)
        first = torch.func.vmap(torch.func.grad(function))(*points).reshape(-1, size)
        second = torch.func.vmap(torch.func.jacrev(torch.func.grad(function)))(*points).reshape(-1, size, size)
        largest = torch.linalg.eigvalsh(second).abs().amax(dim=1)
        return values.abs().numpy(), torch.linalg.vector_norm(first, dim=1).numpy(), largest.numpy()

    parts = (at.inputs, at.truth, at.corrupted, at.error)
    predictions = (theta @ at.inputs[:, :, None])[:, :, 0]
    of_loss = derivatives(lambda z, *one: loss(label(Instances(*one[:4]), one[4]), z), predictions, *parts, corrupted)
    of_weight = derivatives(lambda theta, *one: weight_at(theta, Instances(*one)), theta, *parts)
    _, slope, curvature = derivatives(
        lambda theta, *one: shown_loss(theta @ one[0], Instances(*one[:4]), one[4], weight), theta, *parts, corrupted
    )
    radius = torch.linalg.vector_norm(at.inputs, dim=1).numpy()
    return Extremes(radius, *of_loss, *of_weight, slope, curvature)


def _extremes(classes: int, draws: int, random: np.random.Generator) -> list[Extremes]:
    """For every radius and error, at random instances and Θ; half of the Θ are v xᵀ on the boundary."""
    import torch

    settings = np.array(list(product(RADII, ERRORS))).repeat(draws, axis=0)
    size = len(settings)
    aligned = np.arange(size) % 2 == 0
    reach, share, length = np.where(aligned, 1.0, random.random((3, size)))  # of R, of the largest p, of Θ
    direction, values = _unit(random.normal(size=(size, DIMENSIONS))), _unit(random.normal(size=(size, classes)))
    anywhere = _unit(random.normal(size=(size, classes * DIMENSIONS))).reshape(size, classes, DIMENSIONS)
    truth = random.integers(classes, size=size)
    corrupted = (truth + random.integers(1, classes, size=size)) % classes
    inputs, error = direction * (reach * settings[:, 0])[:, None], share * settings[:, 1]
    theta = np.where(aligned[:, None, None], values[:, :, None] * direction[:, None], length[:, None, None] * anywhere)
    at = Instances(*(torch.from_numpy(each) for each in (inputs, truth, corrupted, error)))
    found = measured(torch.from_numpy(theta), at, torch.from_numpy(random.random(size) < 0.5), weight)
    return [Extremes(*(each[i : i + draws] for each in vars(found).values())) for i in range(0, size, draws)]


def _unit(vectors: Floats) -> Floats:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def _largest(found: Extremes) -> Extremes:
    return Extremes(*(each.max() for each in vars(found).values()))


def _within(claim: str, shares: Floats) -> Check:
    return Check(claim, "≤ 1", float(shares.max()), None, bool(shares.max() <= 1 + EXACT))


def _passed(claim: str, shares: Floats) -> Check:
    return Check(claim, "> 1 somewhere", float(shares.max()), None, bool(shares.max() > 1), contrast=True)


def _figure(bounds: Floats, values: Floats, bound: str, value: str) -> Figure:
    figure, axes = page.panel(3.4)
    per = len(RADII) * len(ERRORS)
    for i, (classes, color) in enumerate(CLASSES.items()):
        here = slice(i * per, (i + 1) * per)
        axes.plot(bounds[here], values[here], "os^"[i], color=color, markersize=5, label=f"{classes} classes")
    ends = np.array([bounds.min(), bounds.max()])
    axes.plot(ends, ends, color=GREY, linewidth=1.2, linestyle=(0, (4, 2)), label=f"the bound {bound}")
    page.plain(axes)
    decades = 10.0 ** np.arange(math.floor(math.log10(ends[0])), math.ceil(math.log10(ends[1])) + 1, 2)
    axes.set_xticks(decades, [f"{each:,.12g}" for each in decades])
    axes.set_xlabel(bound)
    axes.set_ylabel(f"largest {value} found")
    page.legend(figure, 2)
    return figure
