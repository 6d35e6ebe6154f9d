"""Randomness as a function of the position in a run: (seed, stage, epoch, step). A resume needs no saved generators."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor


def key(seed: int, *position: int | str) -> int:
    """A number of 63 bits that depends on all of the arguments."""
    text = "/".join(map(str, (seed, *position))).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def permutation(n: int, key: int) -> Tensor:
    """A random order (n,) of rows."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(key))


def seed_generators(key: int, device: torch.device) -> None:
    """Seed the global generators, from which dropout and the like draw."""
    torch.default_generator.manual_seed(key)
    if device.type == "cuda":
        torch.cuda.manual_seed(key)
    elif device.type == "mps":
        torch.mps.manual_seed(key)
