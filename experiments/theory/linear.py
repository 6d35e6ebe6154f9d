"""The common ground of Appendix E: a linear model f(x; Θ) = Θx with ‖Θ‖_F ≤ 1, cross-entropy, and weights that depend on Θ.

X is uniform over a finite set of instances, so that risks, gradients and minimisers are exact sums. Θ is (K, d), K classes
(the paper's L); leading dimensions of a Θ count models that know nothing of each other: runs, samples, starts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from experiments.theory.simulator import World
from wdistill.weights.equations import Floats

if TYPE_CHECKING:
    from torch import Tensor

Weight = Callable[["Tensor", "Tensor"], "Tensor"]  # error, distortion → weights, all of one shape
Number = float | Floats
Field = Callable[["Tensor"], "Tensor"]  # Θ → the mean gradient there, both (…, K, d)

INSTANCES, DIMENSIONS, CLASSES = 64, 4, 3
RADIUS = 1.0
TURN = math.pi / 3
ERRORS = (0.1, 0.8)  # p(x) where the teacher is right, where it is wrong
DIAMETER = 2.0  # of the unit ball
SETTLED = 1e-11  # what a model may have left to gain


# ------------------------------------------------------------------------------------------------------ the noise model


@dataclass(frozen=True)
class Instances:
    """Instances of a world as tensors: all of them, or one for each run."""

    inputs: Tensor  # (n, d)
    truth: Tensor  # (n,) f_true(x)
    corrupted: Tensor  # (n,) y_adv(x)
    error: Tensor  # (n,) p(x)

    def __getitem__(self, rows: Tensor) -> Instances:
        return Instances(self.inputs[rows], self.truth[rows], self.corrupted[rows], self.error[rows])


def turned_world(
    random: np.random.Generator, radius: float = RADIUS, errors: tuple[float, float] = ERRORS, turn: float = TURN
) -> World:
    """Inputs on the sphere of radius R; the truth is a linear classifier, the teacher the same, turned towards another one.

    Where the teacher names another class than the truth, the adversary shows that class with the second of the errors;
    elsewhere it shows the runner-up with the first.
    """
    inputs = random.normal(size=(INSTANCES, DIMENSIONS))
    inputs *= radius / np.linalg.norm(inputs, axis=1, keepdims=True)
    truth, other = random.normal(size=(2, CLASSES, DIMENSIONS))
    teacher = math.cos(turn) * truth + math.sin(turn) * other
    order = np.argsort(-inputs @ truth.T, axis=1)
    named = (inputs @ teacher.T).argmax(axis=1)
    turned = named != order[:, 0]
    return World(inputs, order[:, 0], np.where(turned, named, order[:, 1]), np.where(turned, errors[1], errors[0]))


def described(at: Instances) -> dict[str, str]:
    """The world in words, for the settings of a finding."""
    return {
        "model": f"linear, {CLASSES} classes, {DIMENSIONS} dimensions, ‖Θ‖ ≤ 1, cross-entropy",
        "instances": f"{INSTANCES} on the sphere of radius {RADIUS:g}; risks and mean gradients are exact sums over them",
        "p(x)": f"{ERRORS[1]:g} where a turned teacher errs, else {ERRORS[0]:g}; mean {float(at.error.mean()):.3f}",
    }


def scattered(points: int, random: np.random.Generator) -> Tensor:
    """Θ of the unit ball, (points, K, d): in random directions, every second one on the boundary."""
    import torch

    theta = random.normal(size=(points, CLASSES, DIMENSIONS))
    lengths = np.where(np.arange(points) % 2, 1.0, random.random(points))
    return torch.from_numpy(theta * (lengths / np.sqrt(np.square(theta).sum(axis=(1, 2))))[:, None, None])


def tensors(world: World) -> Instances:
    """The same world as tensors."""
    import torch

    return Instances(*(torch.from_numpy(each) for each in (world.inputs, world.truth, world.corrupted, world.error)))


def chances(at: Instances) -> Tensor:
    """How likely D shows each instance with its true and with its corrupted label; (n, 2), sum 1."""
    import torch

    return torch.stack([1 - at.error, at.error], dim=-1) / len(at.error)


# ------------------------------------------------------------------------------------------------------- the objectives


def naive(error: Tensor, distortion: Tensor) -> Tensor:
    """No weights: R^naive of Appendix E."""
    import torch

    return torch.ones_like(distortion)


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    """ℓ(y, z) = −log softmax(z)_y, the cross-entropy of Appendix E with its minus sign; (…), (…, K) → (…)."""
    return predictions.logsumexp(dim=-1) - predictions.gather(-1, labels.expand(predictions.shape[:-1])[..., None])[..., 0]


def weighted_losses(predictions: Tensor, at: Instances, weight: Weight) -> Tensor:
    """q = w·ℓ of Appendix E on the true and on the corrupted label; predictions Θx (…, K) → (…, 2)."""
    import torch

    losses = torch.stack([loss(at.truth, predictions), loss(at.corrupted, predictions)], dim=-1)
    return weight(at.error, losses[..., 1] / losses[..., 0])[..., None] * losses


def risk(theta: Tensor, at: Instances) -> Tensor:
    """R(Θ) = E_x[ℓ(f_true(x), Θx)], the clean population loss of Appendix E; (…, K, d) → (…)."""
    return loss(at.truth, at.inputs @ theta.mT).mean(dim=-1)


def clean_gradient(theta: Tensor, at: Instances) -> Tensor:
    """∇R(Θ), of which E.2 takes ∇_Θ(w ℓ) as an unbiased estimate; (…, K, d) → (…, K, d)."""
    import torch

    found: Tensor = torch.func.grad(lambda theta: risk(theta, at).sum())(theta)
    return found


def mean_gradient(theta: Tensor, at: Instances, shares: Tensor, weight: Weight) -> Tensor:
    """∇_Θ Σ shares·q: ∇R^w with `chances`, ∇R̂^w with how often each came; (…, K, d), (…, n, 2) → (…, K, d).

    R^w is that of the definition "Debiasing Weights" of Appendix E; ∇R̂^w the ĝ(Θ) of E.3.
    """
    import torch

    def objective(theta: Tensor) -> Tensor:
        return (shares * weighted_losses(at.inputs @ theta.mT, at, weight)).sum()  # models do not touch: their own gradients

    found: Tensor = torch.func.grad(objective)(theta)
    return found


def shown_loss(predictions: Tensor, at: Instances, corrupted: Tensor, weight: Weight) -> Tensor:
    """q = w·ℓ of Appendix E on the label that is shown; Θx (…, K), corrupted (…) of bool → (…)."""
    import torch

    losses = weighted_losses(predictions, at, weight)
    return torch.where(corrupted, losses[..., 1], losses[..., 0])


def gradients(theta: Tensor, at: Instances, corrupted: Tensor, weight: Weight) -> Tensor:
    """∇_Θ q = ∇_z q·xᵀ at an example for each model; Θ (…, r, K, d), r instances, corrupted (…, r) → (…, r, K, d)."""
    import torch

    predictions = (theta @ at.inputs[..., None])[..., 0]
    slopes: Tensor = torch.func.grad(lambda z: shown_loss(z, at, corrupted, weight).sum())(predictions)
    return slopes[..., None] * at.inputs[..., None, :]


def each_gradient(theta: Tensor, at: Instances, weight: Weight) -> Tensor:
    """∇_Θ q of every instance, on the true and on the corrupted label; (…, K, d) → (…, n, 2, K, d)."""
    import torch

    corrupted = torch.zeros(*theta.shape[:-2], len(at.error), dtype=torch.bool)
    return torch.stack([gradients(theta[..., None, :, :], at, each, weight) for each in (corrupted, ~corrupted)], dim=-3)


# ------------------------------------------------------------------------------------------------------------ the descent


def projected(theta: Tensor) -> Tensor:
    """proj_B(Θ) of Algorithms 3 and 4: the nearest point of the unit ball in ‖·‖_F; (…, K, d)."""
    return theta / norm(theta).clamp(min=1.0)[..., None, None]


def norm(theta: Tensor) -> Tensor:
    """‖Θ‖_F; (…, K, d) → (…)."""
    return theta.square().sum(dim=(-2, -1)).sqrt()


def iterates(
    theta: Tensor, steps: Iterable[Tensor], examples: Iterator[tuple[Tensor, Tensor]], at: Instances, weight: Weight
) -> Iterator[Tensor]:
    """Θ ← proj_B(Θ − η ∇_Θ(w ℓ)), Algorithms 3 and 4, for many runs at once: Θ (…, r, K, d) after each step.

    A step is (r,), one for each run; examples are rows (r,) of the instances, and whether their label is the corrupted one.
    """
    for step, (rows, corrupted) in zip(steps, examples, strict=False):
        theta = projected(theta - step[:, None, None] * gradients(theta, at[rows], corrupted, weight))
        yield theta


def settle(theta: Tensor, field: Field, step: float, limit: int = 2000) -> Tensor:
    """Θ ← proj_B(Θ − step·field(Θ)) until no model's `gap` is above SETTLED, at most `limit` times; (…, K, d)."""
    for _ in range(limit):
        gradient = field(theta)
        if float(gap(theta, gradient).max()) <= SETTLED:
            break
        theta = projected(theta - step * gradient)
    return theta


def minimiser(at: Instances) -> Tensor:
    """Θ* = argmin R(Θ) over the unit ball, (K, d), by projected gradient descent from 0; `gap` tells whether it is."""
    return settle(origin(), lambda theta: clean_gradient(theta, at), gentle(at))


def end(at: Instances, weight: Weight) -> Tensor:
    """Where the mean over D of ∇_Θ(w ℓ) leads from 0: (K, d)."""
    shares = chances(at)
    return settle(origin(), lambda theta: mean_gradient(theta, at, shares, weight), gentle(at))


def gentle(at: Instances) -> float:
    """A step for descents on mean gradients: 1 over ½R², the largest curvature of the clean risk, and no more than ½."""
    return min(0.5, 2 / float(at.inputs.square().sum(dim=1).max()))


def origin(*models: int) -> Tensor:
    """Θ^(1) = 0 of Algorithms 3 and 4, as many as told: (…, K, d)."""
    import torch

    return torch.zeros(*models, CLASSES, DIMENSIONS, dtype=torch.float64)


def gap(theta: Tensor, gradient: Tensor) -> Tensor:
    """max ∇·(Θ − Θ') over the unit ball, = ∇·Θ + ‖∇‖_F; (…, K, d) → (…).

    0 only where no way within the ball leads down. For a convex objective no more than this is left to gain.
    """
    return (gradient * theta).sum(dim=(-2, -1)) + norm(gradient)


def stationarity(theta: Tensor, gradient: Tensor) -> Tensor:
    """The least ε with ∇·(Θ' − Θ)/‖Θ' − Θ‖ ≥ −ε for all Θ' of the unit ball; (…, K, d) → (…).

    The definition of Appendix E without its absolute value, which would exclude minima on the boundary. Inside the ball
    it is ‖∇‖_F; on the boundary what points outwards does not count.
    """
    import torch

    length = norm(theta).clamp(min=1e-300)
    outwards = -(gradient * theta).sum(dim=(-2, -1)) / length
    blocked = torch.where(length >= 1 - 1e-12, outwards.clamp(min=0.0), 0.0)
    return (norm(gradient).square() - blocked.square()).clamp(min=0.0).sqrt()


# ------------------------------------------------------------------------------------------------- regularity assumptions


@dataclass(frozen=True)
class Regularity:
    """The constants of the definition "Regularity Assumptions" (Appendix E): bounded by M, Lipschitz by L, smooth by B."""

    radius: Number  # R ≥ ‖x‖
    m_loss: Number
    l_loss: Number  # in z
    b_loss: Number  # in z
    m_weight: Number
    l_weight: Number  # in Θ
    b_weight: Number  # in Θ


def regularity(radius: float, classes: int, error: float) -> Regularity:
    """Constants of cross-entropy and of the weight of equation (4), for ‖z‖ ≤ R, K classes and p(x) ≤ error.

    The definition "Regularity Assumptions" of Appendix E asks for them; their values are not in the paper.

    The loss, with s = softmax(z): ℓ = log(1 + Σ_{j≠y} exp(z_j − z_y)). Its exponents are at most √2·R, hence
    M_ℓ = log(1 + (K − 1) e^{√2 R}). It is least where all z_j but z_y are equal, z_y − z_j = R·√(K/(K − 1)), hence
    ℓ ≥ m = log(1 + (K − 1) e^{−R√(K/(K−1))}) > 0. ‖∇ℓ‖ = ‖s − e_y‖ ≤ √2 (1 − s_y) and s_y = e^{−ℓ}, hence
    L_ℓ = √2 (1 − e^{−M_ℓ}). ∇²ℓ = diag(s) − ssᵀ has (Gershgorin) no eigenvalue above 2 max_j s_j (1 − s_j) ≤ ½ = B_ℓ, and
    none above 2 (1 − s_y).

    Its logarithm: ‖∇ log ℓ‖ ≤ √2 (1 − e^{−ℓ})/ℓ falls in ℓ, so it is at most ρ = √2 (1 − e^{−m})/m. Likewise
    ‖∇²ℓ‖/ℓ ≤ β = min(½, 2 (1 − e^{−m}))/m.

    The weight, with h = log distortion = log ℓ(y_adv, z) − log ℓ(f_true, z): w = 1/(1 − p + p e^h) ≤ M_w at
    distortion = m/M_ℓ. dw/dh = −w (1 − (1 − p) w), d²w/dh² = w (1 − (1 − p) w)(1 − 2 (1 − p) w), and (1 − p) w is in [0, 1]:
    both are at most Φ = max w (1 − (1 − p) w) over 0 ≤ w ≤ M_w. ‖∇h‖ ≤ 2ρ; ∇²h is a difference of two positive
    semi-definite matrices, each at most β + ρ². As Θ enters through z = Θx alone, a derivative in Θ has a factor R more:
    L_w = 2ρΦR and B_w = (4ρ² + β + ρ²)ΦR². All of them grow with p.
    """
    least = math.log1p((classes - 1) * math.exp(-radius * math.sqrt(classes / (classes - 1))))
    m_loss = math.log1p((classes - 1) * math.exp(math.sqrt(2) * radius))
    rho = math.sqrt(2) * -math.expm1(-least) / least
    beta = min(0.5, 2 * -math.expm1(-least)) / least
    m_weight = 1 / (1 - error * (1 - least / m_loss))
    worst = min(m_weight, 0.5 / (1 - error)) if error < 1 else m_weight
    phi = worst * (1 - (1 - error) * worst)
    return Regularity(
        radius=radius,
        m_loss=m_loss,
        l_loss=math.sqrt(2) * -math.expm1(-m_loss),
        b_loss=0.5,
        m_weight=m_weight,
        l_weight=2 * rho * phi * radius,
        b_weight=(5 * rho**2 + beta) * phi * radius**2,
    )


def kappa(known: Regularity) -> Number:
    """κ = L_w M_ℓ + R M_w L_ℓ ≥ ‖∇_Θ(w ℓ)‖_F  —  Theorem "Reweighted Single-Pass SGD"; L_q in the proof of E.3."""
    return known.l_weight * known.m_loss + known.radius * known.m_weight * known.l_loss


def b_q(known: Regularity) -> Number:
    """B_q = M_ℓ B_w + 2 L_ℓ L_w R + M_w B_ℓ R² ≥ ‖∇²_Θ(w ℓ)‖  —  the smoothness lemma of Appendix E."""
    cross = 2 * known.l_loss * known.l_weight * known.radius
    return known.m_loss * known.b_weight + cross + known.m_weight * known.b_loss * known.radius**2
