"""Every table and figure of the paper that is made of experiments, in its order."""

from __future__ import annotations

from experiments.lab.items import Item
from experiments.paper import (
    celeba,
    cifar10,
    cifar100,
    fidelity,
    figure1,
    figure2,
    figure3,
    imagenet,
    refresh,
    small,
    small_celeba,
    small_temperature,
    svhn,
    temperature,
)

ITEMS: tuple[Item, ...] = (
    figure1.ITEM,
    figure2.ITEM,
    figure3.ITEM,
    svhn.ITEM,
    cifar10.ITEM,
    cifar100.ITEM,
    celeba.ITEM,
    imagenet.ITEM,
    refresh.ITEM,
    fidelity.ITEM,
    temperature.ITEM,
    *small.ITEMS,
    small_celeba.ITEM,
    small_temperature.ITEM,
)
