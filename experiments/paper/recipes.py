"""The recipes of Appendix C. What it does not say is as in Keras' cifar10_resnet example, whose settings it shares."""

from __future__ import annotations

from dataclasses import replace

from wdistill.runs.recipe import Recipe

MOBILENET = Recipe(
    teacher_epochs=200,
    student_epochs=200,
    epochs=200,
    batch_size=32,
    optimizer="adam",
    rate=0.001,
    schedule="steps",
    augmentation=("flip", "translate"),
)
RESNET = replace(MOBILENET, weight_decay=2e-4, decayed="kernels")  # an L2 of 1e-4: the gradient of 1e-4·w² is 2e-4·w
IMAGENET = Recipe(
    teacher_epochs=100,
    student_epochs=100,
    epochs=100,
    batch_size=256,  # the paper names none; this is the one that a rate of 0.1 usually goes with
    optimizer="sgd",
    momentum=0.9,
    rate=0.1,
    schedule="warmup",
    augmentation=("flip",),
    weight_decay=2e-4,  # nor this: as the other ResNets
    decayed="kernels",
)
