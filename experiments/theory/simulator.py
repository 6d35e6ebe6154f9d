"""The noise model of §2.2 on a finite set of instances, so that risk, distortion, weights and bias are exact sums.

X is uniform over N instances. A sample S of n labeled examples is kept as how often each instance came with its true and
with its corrupted label: all that a mean over S can see of it, and as quick to draw for a million examples as for ten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from wdistill.core.errors import ConfigError
from wdistill.weights import equations
from wdistill.weights.equations import Floats

if TYPE_CHECKING:
    from torch import Tensor

Ints = NDArray[np.int64]
Predictor = Callable[[Floats], Floats]  # f: inputs (N, d) → predictions (N, K)
Loss = Callable[[Ints, Floats], Floats]  # ℓ: labels (N,), predictions (N, K) → (N,), none negative
Weight = Callable[[Floats, Floats], Floats]  # error, distortion → weights, all of one shape
Numbers = TypeVar("Numbers", Floats, "Tensor")

LARGEST = float(np.finfo(np.float64).max)
LARGEST_ERROR = 0.8  # p(x) of `uncertain_world`, so that weights exceed 2


@dataclass(frozen=True)
class World:
    """Instances, each as likely as any other, their truth, and what the adversary makes of it."""

    inputs: Floats  # (N, d)
    truth: Ints  # (N,) f_true(x)
    corrupted: Ints  # (N,) y_adv(x)
    error: Floats  # (N,) p(x): how likely the adversary shows the corrupted label


@dataclass(frozen=True)
class Losses:
    """What one predictor, or each of F predictors, loses at every instance."""

    truth: Floats  # (…, N) ℓ(f_true(x), f(x))
    corrupted: Floats  # (…, N) ℓ(y_adv(x), f(x))

    @property
    def observed(self) -> Floats:
        """(…, 2, N): on the true label, on the corrupted one."""
        return np.stack([self.truth, self.corrupted], axis=-2)


def losses(world: World, predictor: Predictor, loss: Loss) -> Losses:
    """Of one predictor: (N,) on the truth, (N,) on the corrupted label."""
    predictions = predictor(world.inputs)
    return Losses(loss(world.truth, predictions), loss(world.corrupted, predictions))


def risk(found: Losses) -> Floats:
    """R(f) = E_x[ℓ(f_true(x), f(x))]  —  equation (3); (…, N) → (…)."""
    return np.asarray(found.truth.mean(axis=-1))


def distortion(found: Losses) -> Floats:
    """ℓ(y_adv(x), f(x)) / ℓ(f_true(x), f(x))  —  equation (4), with no floor under either; (…, N) → (…, N).

    Where the loss on the truth is 0 it is the largest number there is, so that the weight is 0 and w·ℓ what it tends to, 0;
    where both are 0 it is 1.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.minimum(found.corrupted / found.truth, LARGEST)
    return np.where((found.corrupted == 0) & (found.truth == 0), 1.0, ratio)


def weight(error: Numbers, distortion: Numbers) -> Numbers:
    """w_f(x) = 1 / (1 + p(x)·(distortion_f(x) − 1))  —  equation (4), not clipped to [0, 1]; arrays or tensors.

    Undefined where p = 1 and the distortion is 0, which only arrays can have: cross-entropy is never 0.
    """
    if isinstance(distortion, np.ndarray) and np.any((error == 1) & (distortion == 0)):
        raise ConfigError(
            "no weight debiases a loss that is never seen",
            where="weight of equation (4)",
            found="an instance with p = 1, and no loss on its corrupted label",
            expected="p below 1, or a loss above 0 on the corrupted label",
            remedy="lower p there, or take a loss that is never 0, such as cross-entropy",
        )
    return 1.0 / (1.0 + error * (distortion - 1.0))


def bias(world: World, found: Losses) -> Floats:
    """Bias(f) = E_x[p(x)·(distortion_f(x) − 1)·ℓ(f_true(x), f(x))]  —  Proposition 2.1; (…, N) → (…).

    That is E_x[p(x)·(ℓ(y_adv(x), f(x)) − ℓ(f_true(x), f(x)))], which needs no ratio.
    """
    return np.asarray((world.error * (found.corrupted - found.truth)).mean(axis=-1))


def mean(world: World, values: Floats) -> Floats:
    """E_(x,y)~D[h(x, y)] for values h (…, 2, N) on the true and the corrupted label  —  third line of Appendix D.3."""
    chances = np.stack([1.0 - world.error, world.error])
    return np.asarray((chances * values).sum(axis=-2).mean(axis=-1))


def variance(world: World, values: Floats) -> Floats:
    """Var_(x,y)~D[h(x, y)] for values h (…, 2, N): what the sample variances of Appendix D estimate."""
    return mean(world, np.square(values)) - np.square(mean(world, values))


def draw(world: World, n: int, samples: int, random: np.random.Generator) -> Ints:
    """Samples S ~ D^n: (samples, 2, N), how often each instance came with its true and with its corrupted label."""
    chances = np.concatenate([1.0 - world.error, world.error]) / len(world.error)
    return random.multinomial(n, chances, samples).reshape(samples, 2, len(world.error))


def empirical_risk(drawn: Ints, values: Floats) -> Floats:
    """R_S(f)  —  equation (2); with weighted values R_S^w(f)  —  equation (5); (samples, 2, N), (F, 2, N) → (samples, F)."""
    flat = drawn.reshape(len(drawn), -1)
    return np.asarray(flat @ values.reshape(len(values), -1).T / flat.sum(axis=1, keepdims=True))


def sample_variance(drawn: Ints, values: Floats) -> Floats:
    """V_S(f), or V_S^w(f) of weighted values  —  the corollary of Appendix D; (samples, 2, N), (F, 2, N) → (samples, F)."""
    n = drawn.sum(axis=(1, 2))[:, None]
    spread = empirical_risk(drawn, np.square(values)) - np.square(empirical_risk(drawn, values))
    return np.asarray(np.maximum(spread, 0.0) * n / (n - 1))


# ------------------------------------------------------------------------------------- a world, predictors and losses


@dataclass(frozen=True)
class Linear:
    """A linear predictor: logits inputs @ directions."""

    directions: Floats  # (d, K)

    def __call__(self, inputs: Floats) -> Floats:
        return inputs @ self.directions


def uncertain_world(truth: Linear, instances: int, random: np.random.Generator) -> World:
    """Normal inputs; a teacher that is the less sure the closer two classes are, and then names the runner-up."""
    inputs = random.normal(size=(instances, len(truth.directions)))
    logits = truth(inputs)
    order = np.argsort(-logits, axis=1)
    best, second = np.sort(logits, axis=1)[:, :-3:-1].T
    return World(inputs, order[:, 0], order[:, 1], LARGEST_ERROR * np.exp((second - best) / 2.0))


def students(truth: Linear, count: int, random: np.random.Generator) -> list[Linear]:
    """Imperfect linear predictors: the truth, shrunk and disturbed."""
    shape = (count, *truth.directions.shape)
    return [Linear(each) for each in 0.3 * truth.directions + 0.25 * random.normal(size=shape)]


def cross_entropy(labels: Ints, predictions: Floats) -> Floats:
    """−log softmax(predictions)_label; (N,), (N, K) → (N,)."""
    return equations.truth_loss(labels, equations.log_probabilities(predictions, "logits"))


def half_square(labels: Ints, predictions: Floats) -> Floats:
    """½‖one-hot label − softmax(predictions)‖², in [0, 1]; (N,), (N, K) → (N,)."""
    predicted = equations.probabilities(predictions, "logits")
    return np.asarray(0.5 * np.square(np.eye(predictions.shape[1])[labels] - predicted).sum(axis=1))
