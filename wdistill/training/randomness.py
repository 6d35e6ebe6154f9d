"""Randomness as a function of where one is: (seed, stage, epoch, step). Nothing has to be saved to go on from there."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor


def key(seed: int, *place: int | str) -> int:
    """A number of 63 bits that depends on all of the arguments."""
    text = "/".join(map(str, (seed, *place))).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def permutation(n: int, place: int) -> Tensor:
    """The order (n,) of rows at that place."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(place))


def begin(place: int, device: torch.device) -> None:
    """Set the global generators, which dropout and the like draw from."""
    torch.default_generator.manual_seed(place)
    if device.type == "cuda":
        torch.cuda.manual_seed(place)
    elif device.type == "mps":
        torch.mps.manual_seed(place)
