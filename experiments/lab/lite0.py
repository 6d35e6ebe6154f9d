"""What EfficientNet-lite0, trained on ImageNet and never on CIFAR-10, makes of CIFAR-10's first train rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.lab.encoders import imagenet

ROWS = 10_000  # of the train rows, in their order
CLASSES: tuple[tuple[int, ...], ...] = (  # of ImageNet, by number from 0, for each of CIFAR-10's
    (404, 895),  # airplane: airliner, warplane
    (436, 468, 511, 609, 627, 656, 661, 751, 817),  # automobile: beach wagon, cab, convertible, jeep, … sports car
    (*range(7, 25), *range(80, 101), *range(127, 147)),  # bird: cock to great grey owl, grouse to swan, stork to albatross
    tuple(range(281, 286)),  # cat: the domestic ones
    (351, 352, 353),  # deer, which ImageNet lacks: hartebeest, impala, gazelle
    tuple(range(151, 269)),  # dog: all breeds
    (30, 31, 32),  # frog: bullfrog, tree frog, tailed frog
    (339,),  # horse: sorrel
    (403, 472, 484, 510, 554, 625, 628, 724, 780, 814, 833, 871, 914),  # ship: aircraft carrier, canoe, … yawl
    (555, 569, 675, 717, 734, 864, 867),  # truck: fire engine, garbage truck, moving van, pickup, … trailer truck
)


def lite0(images: NDArray[np.uint8]) -> dict[str, dict[str, NDArray[Any]]]:
    """By file: probabilities (n, 10) of the first images, and features (n, 1280)."""
    features, chances = imagenet(images[:ROWS])
    return {"cifar10": {"teacher": as_cifar10(chances)}, "cifar10-features": {"features": features}}


def as_cifar10(chances: NDArray[np.float32]) -> NDArray[np.float64]:
    """Probabilities of ImageNet's classes (n, 1000) → of CIFAR-10's (n, 10): their sums, made to sum to 1."""
    sums = np.stack([chances[:, list(each)].sum(axis=1) for each in CLASSES], axis=1).astype(np.float64)
    return np.asarray(sums / sums.sum(axis=1, keepdims=True))
