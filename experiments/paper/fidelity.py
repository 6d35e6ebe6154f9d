"""Figure 10 (tables): our weights, fidelity weights and their product, on CIFAR-10 and CIFAR-100.

Command:  wdistill reproduce fidelity
Time:     about 6,100 core-hours on one core of a 2.8 GHz Xeon (extrapolated by python -m experiments.paper.times);
          no GPU was at hand
Expected: CIFAR10_PAPER and CIFAR100_PAPER below. As in Appendix C.3 the validation rows also train the student; our weights
          are estimated after every epoch on CIFAR-10 and once on CIFAR-100. The unweighted arm is ours.
"""

from __future__ import annotations

from dataclasses import replace

from experiments.lab.items import Item, by_labels
from experiments.lab.results import printed
from experiments.paper import cifar10, cifar100
from wdistill.runs.arms import arm
from wdistill.weights.debiased import debiased
from wdistill.weights.rule import compose
from wdistill.weights.rules import fidelity, shuffled, unweighted

CIFAR10_PAPER = printed("""
labels            7500         10000       12500       15000       17500
teacher           67.55        72.85       74.85       77.63       78.40
debiased-refresh  70.59±0.05   74.59±0.07  75.75±0.32  78.56±0.14  79.21±0.17
fidelity          69.31±0.41   73.39±0.44  74.69±0.31  77.10±0.16  78.19±0.19
composition       71.20±0.097  75.54±0.21  76.80±0.29  79.55±0.22  80.28±0.28
""")
CIFAR100_PAPER = printed("""
labels            7500         10000       12500       15000       17500
teacher           44.70        51.45       56.00       58.70       61.82
debiased          46.18±0.25   53.15±0.16  57.51±0.4   59.65±0.4   62.02±0.25
fidelity          46.32±0.23   52.92±0.20  57.40±0.47  59.48±0.17  61.39±0.09
composition       46.62±0.44   53.39±0.16  57.11±0.41  59.63±0.15  62.30±0.26
""")
CIFAR10 = replace(
    cifar10.EXPERIMENT,
    name="fidelity-cifar10",
    validation=500,
    arms={
        "unweighted": unweighted,
        "debiased-refresh": arm(debiased, refresh=1),
        "fidelity": fidelity,
        "composition": arm(compose(debiased, fidelity), refresh=1),
        "shuffled": shuffled(fidelity),  # a control that the paper has not: fidelity's weights, shuffled
    },
    recipe=replace(cifar10.EXPERIMENT.recipe, confidence="entropy", validation_in_training="yes"),
)
CIFAR100 = replace(
    cifar100.EXPERIMENT,
    name="fidelity-cifar100",
    validation=500,
    arms={
        "unweighted": unweighted,
        "debiased": debiased,
        "fidelity": fidelity,
        "composition": compose(debiased, fidelity),
        "shuffled": shuffled(fidelity),
    },
    recipe=replace(cifar100.EXPERIMENT.recipe, confidence="entropy", validation_in_training="yes"),
)
TEN = by_labels(
    CIFAR10,
    "Figure 10, top: CIFAR-10",
    CIFAR10_PAPER,
    {"fidelity-cifar10": ("CIFAR-10, with fidelity", tuple(CIFAR10.arms))},
)
HUNDRED = by_labels(
    CIFAR100,
    "Figure 10, bottom: CIFAR-100",
    CIFAR100_PAPER,
    {"fidelity-cifar100": ("CIFAR-100, with fidelity", tuple(CIFAR100.arms))},
)
ITEM = Item("fidelity", "Figure 10, tables: our weights, fidelity and both", (TEN, HUNDRED))
