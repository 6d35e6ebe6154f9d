"""Proposition 2.1: the unweighted risk is biased by Bias(f), the weighted one is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from experiments.theory import page, simulator
from experiments.theory.claims import SIGMAS, Check, Finding, away, mean_and_error, near
from experiments.theory.simulator import (
    LARGEST_ERROR,
    Linear,
    Loss,
    Losses,
    Weight,
    World,
    bias,
    cross_entropy,
    distortion,
    draw,
    empirical_risk,
    half_square,
    losses,
    mean,
    risk,
    students,
    uncertain_world,
    weight,
)
from wdistill.report.svg import AMBER, BLUE, GREEN, GREY, INK, ORANGE, PURPLE, SKY
from wdistill.weights.equations import Floats, debiasing_weight

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INSTANCES, DIMENSIONS, CLASSES = 400, 10, 5
SAMPLES, EXAMPLES = 2000, 1000
LOSSES: dict[str, Loss] = {"cross-entropy": cross_entropy, "half squared error": half_square}
COLORS = {"no weights": ORANGE, "weights of equation (4)": BLUE, "clipped to [0, 1]": PURPLE}
COLORS |= {"half of p": AMBER, "p and 1 − p swapped": SKY, "weights 1 − p": GREEN}

CONTRASTS = {  # which weights err, and where that shows
    "": ("clipped to [0, 1]", "weights 1 − p"),
    " where distortion > 1": ("half of p", "p and 1 − p swapped"),
}


@dataclass(frozen=True)
class Estimates:
    """Empirical risks of every sample, and what their means should be, for one loss and one set of instances."""

    clean: float  # R(f)
    predicted: dict[str, float]  # by kind of weights
    risks: dict[str, Floats]  # (samples,) each


def debiasing(seed: int = 0, scale: float = 1.0, weight: Weight = weight) -> Finding:
    """Proposition 2.1: E[R_S(f)] = R(f) + Bias(f), and E[R_S^w(f)] = R(f)."""
    random = np.random.default_rng(seed)
    truth = Linear(random.normal(size=(DIMENSIONS, CLASSES)))
    world = uncertain_world(truth, INSTANCES, random)
    (student,) = students(truth, 1, random)
    samples = max(50, round(scale * SAMPLES))
    checks: list[Check] = []
    shown: dict[str, Estimates] = {}
    for name, loss in LOSSES.items():
        found = losses(world, student, loss)
        worse = distortion(found) > 1
        parts = {"": np.ones_like(worse), " where distortion > 1": worse, " where distortion < 1": ~worse}
        for place, chosen in parts.items():
            here, seen = restricted(world, found, chosen)
            each = estimates(here, seen, weight, samples, random)
            about = f"{place}, {name}"
            checks.append(near(f"E[R_S^w] = R{about}", each.clean, each.risks["weights of equation (4)"]))
            if not place:
                checks.append(near(f"E[R_S] = R + Bias{about}", each.predicted["no weights"], each.risks["no weights"]))
            for kind in CONTRASTS.get(place, ()):
                checks.append(away(f"{kind}{about}", each.predicted[kind], each.clean, each.risks[kind]))
            shown[about.lstrip(", ")] = each
    return Finding(
        name="debiasing",
        title="Debiasing weights",
        place="Proposition 2.1, §2.2",
        checks=tuple(checks),
        settings={
            "instances": f"{INSTANCES} in {DIMENSIONS} dimensions, {CLASSES} classes",
            "corrupted label": "the runner-up of the ground-truth classifier",
            "p(x)": f"{LARGEST_ERROR:g}·exp(−margin/2), mean {world.error.mean():.3f}",
            "predictor": "linear, the truth shrunk and disturbed",
            "samples": f"{samples:,} of {EXAMPLES:,} examples",
        },
        notes=(
            "The proposition holds for any X, so also on the instances with distortion above or below 1 alone. There wrong "
            "weights cannot hide: over all instances their errors of either sign may cancel.",
            "Clipped weights lie below R: where the distortion is below 1 they give up weight above 1. They serve training "
            "(the MSE proposition of Appendix D says why), and are no estimate of the risk.",
            "What a contrast should come to is exact: E_x[w(x)·(p ℓ(y_adv, f) + (1 − p) ℓ(f_true, f))] for any weights w.",
        ),
        draw=lambda: {f"Bias of the empirical risk, {about}": _figure(each) for about, each in list(shown.items())[:2]},
    )


def restricted(world: World, found: Losses, chosen: NDArray[np.bool_]) -> tuple[World, Losses]:
    """The same with X uniform over the chosen instances, (N,) of bool."""
    here = World(world.inputs[chosen], world.truth[chosen], world.corrupted[chosen], world.error[chosen])
    return here, Losses(found.truth[chosen], found.corrupted[chosen])


def estimates(world: World, found: Losses, weight: Weight, samples: int, random: np.random.Generator) -> Estimates:
    """Empirical risks with no weights, with those under test, and with what stands beside them as contrast."""
    p, d = world.error, distortion(found)
    weights = {
        "no weights": np.ones_like(p),
        "weights of equation (4)": weight(p, d),
        "clipped to [0, 1]": debiasing_weight(p, d),
        "half of p": simulator.weight(p / 2, d),
        "p and 1 − p swapped": simulator.weight(1 - p, d),
        "weights 1 − p": 1 - p,
    }
    values = np.stack([each * found.observed for each in weights.values()])  # (kinds, 2, N)
    risks = empirical_risk(draw(world, EXAMPLES, samples, random), values).T
    clean = float(risk(found))
    predicted = dict(zip(weights, mean(world, values).tolist(), strict=True))
    predicted |= {"no weights": clean + float(bias(world, found)), "weights of equation (4)": clean}
    return Estimates(clean, predicted, dict(zip(weights, risks, strict=True)))


def _figure(found: Estimates) -> Figure:
    figure, axes = page.panel(3.4)
    places = np.arange(len(found.risks))[::-1]
    axes.axvline(0, color=GREY, linewidth=1, linestyle=(0, (4, 2)))
    for place, (name, values) in zip(places, found.risks.items(), strict=True):
        measured, error = mean_and_error(values - found.clean)
        low, high = np.quantile(values - found.clean, [0.05, 0.95])
        axes.plot([low, high], [place, place], color=COLORS[name], linewidth=7, alpha=0.3, solid_capstyle="butt")
        axes.errorbar(measured, place, xerr=SIGMAS * error, color=COLORS[name], marker="o", markersize=5, capsize=4)
    off = np.array([found.predicted[name] for name in found.risks]) - found.clean
    axes.plot(off, places, "|", color=INK, markersize=18, markeredgewidth=1.4, label="predicted")
    axes.plot([], [], "o", color=GREY, markersize=5, label="measured")
    axes.plot([], [], color=GREY, linewidth=7, alpha=0.3, solid_capstyle="butt", label="90 % of samples")
    axes.set_yticks(places, list(found.risks))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_ylim(-0.6, len(places) - 0.4)
    axes.set_xlabel("empirical risk − R(f)")
    page.legend(figure, 3)
    return figure
