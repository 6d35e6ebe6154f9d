"""Augmentation of images, a whole batch at once: flips and translations as one gather."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import torch
from torch import Tensor

from wdistill.core.errors import not_one_of, wrong_shape
from wdistill.training.batch import Batch, described

KINDS = ("flip", "translate")
SHIFT = 0.1  # largest translation, as a share of width and height


def augment(inputs: Batch, kinds: Collection[str], seed_key: int) -> Batch:
    """Flip images (b, C, H, W) with probability 1/2 and translate them by up to a tenth, repeating edge pixels.

    `kinds` says which of the two. All randomness comes from `seed_key` ≥ 0: the key of seed, stage, epoch and step.
    """
    if not kinds:
        return inputs
    inputs = check_images(inputs, kinds)
    b, _, height, width = inputs.shape
    random = np.random.default_rng(seed_key)  # uses all bits of the key; torch.Generator uses 32
    flipped = random.random(b) < 0.5
    down, right = _shift(random.random(b), height), _shift(random.random(b), width)
    rows, columns = np.tile(np.arange(height), (b, 1)), np.tile(np.arange(width), (b, 1))
    if "translate" in kinds:
        rows = np.clip(rows - down[:, None], 0, height - 1)
        columns = np.clip(columns - right[:, None], 0, width - 1)
    if "flip" in kinds:
        columns = np.where(flipped[:, None], width - 1 - columns, columns)
    return _pixels(inputs, torch.from_numpy(rows).to(inputs.device), torch.from_numpy(columns).to(inputs.device))


def _shift(uniform: np.ndarray[tuple[int], np.dtype[np.float64]], size: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """round(u), u uniform within ± a tenth of the size; (b,) in [0, 1) → (b,) whole pixels."""
    return np.rint((2 * uniform - 1) * SHIFT * size).astype(np.int64)


def _pixels(inputs: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """inputs[i, :, rows[i, y], columns[i, x]] at (i, :, y, x), in the input's memory format; rows (b, H), columns (b, W)."""
    b, channels, height, width = inputs.shape
    index = (rows[:, :, None] * width + columns[:, None, :]).view(b, height * width)
    if inputs.is_contiguous(memory_format=torch.channels_last) and not inputs.is_contiguous():
        last = inputs.permute(0, 2, 3, 1).view(b, height * width, channels)
        gathered = last.gather(1, index[:, :, None].expand_as(last))
        return gathered.view(b, height, width, channels).permute(0, 3, 1, 2)
    flat = inputs.reshape(b, channels, height * width)
    return flat.gather(2, index[:, None, :].expand_as(flat)).view(inputs.shape)


def check_images(inputs: Batch, kinds: Collection[str]) -> Tensor:
    """The batch, if it can be augmented."""
    for kind in kinds:
        if kind not in KINDS:
            raise not_one_of("unknown augmentation", "augmentation", kind, KINDS)
    if not isinstance(inputs, Tensor) or inputs.ndim != 4:
        what, found = "only images can be augmented", f"{described(inputs)}, augmentation {', '.join(kinds)}"
        expected = "one tensor (rows, channels, height, width)"
        raise wrong_shape(what, "inputs", found, expected, "leave augmentation out, or shape the inputs as images")
    return inputs
