"""Augmentation against a slow reference that moves one image at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from wdistill.core.errors import ConfigError, InputError
from wdistill.core.settings import settings_of
from wdistill.runs.recipe import Recipe
from wdistill.training.augmentation import KINDS, augment

torch.set_num_threads(1)


def images(rows: int, channels: int, height: int, width: int) -> Tensor:
    """Images in which every pixel is a number of its own."""
    count = rows * channels * height * width
    return torch.arange(count, dtype=torch.float32).view(rows, channels, height, width)


def slowly(image: Tensor, flip: bool, down: int, right: int) -> Tensor:
    """One image (C, H, W), moved and then flipped, pixel by pixel."""
    _, height, width = image.shape
    found = torch.empty_like(image)
    for y in range(height):
        for x in range(width):
            source_y, source_x = min(max(y - down, 0), height - 1), min(max(x - right, 0), width - 1)
            found[:, y, width - 1 - x if flip else x] = image[:, source_y, source_x]
    return found


@pytest.mark.slow
@given(st.integers(0, 2**40), st.sampled_from([(), ("flip",), ("translate",), KINDS]), st.integers(1, 4), st.booleans())
def test_every_image_is_one_of_those_the_slow_reference_can_make(
    key: int, kinds: tuple[str, ...], rows: int, last: bool
) -> None:
    inputs = images(rows, 2, 10, 21)  # moved by up to 1 down and 2 to the right
    given = inputs.contiguous(memory_format=torch.channels_last) if last else inputs
    found = augment(given, kinds, key)
    flips = (False, True) if "flip" in kinds else (False,)
    downs, rights = ((-1, 0, 1), (-2, -1, 0, 1, 2)) if "translate" in kinds else ((0,), (0,))
    for image, result in zip(inputs, found, strict=True):
        assert any(torch.equal(result, slowly(image, f, d, r)) for f in flips for d in downs for r in rights)
    assert torch.equal(given, inputs)  # the inputs are left alone


def test_all_moves_happen_as_often_as_they_should() -> None:
    rows, width = 4000, 30  # round(uniform(−3, 3)): ±3 has chance 1/12, the others 1/6
    inputs = torch.arange(width, dtype=torch.float32).expand(rows, 1, width, width)
    moved = augment(inputs, ("translate",), 1)
    right = 15 - moved[:, 0, 0, 15].long()
    expected = np.array([1, 2, 2, 2, 2, 2, 1]) / 12 * rows
    counts = np.bincount(right.numpy() + 3, minlength=7)
    assert np.all(np.abs(counts - expected) < 5 * np.sqrt(expected))
    down = 15 - augment(inputs.transpose(2, 3), ("translate",), 1)[:, 0, 15, 0].long()
    assert abs(np.corrcoef(down, right)[0, 1]) < 0.08  # independent of each other
    flipped = augment(inputs, ("flip",), 1)[:, 0, 0, 0] == width - 1
    assert abs(int(flipped.sum()) - rows / 2) < 5 * np.sqrt(rows / 4)


def test_the_key_decides_and_the_global_generators_do_not() -> None:
    inputs = images(64, 1, 32, 32)
    torch.manual_seed(0)
    before, again = augment(inputs, KINDS, 7), torch.rand(3)
    torch.manual_seed(0)
    assert torch.equal(again, torch.rand(3))
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    assert torch.equal(augment(inputs, KINDS, 7), before)
    others = [augment(inputs, KINDS, key) for key in (8, 7 + 2**32, 7 + 2**64)]  # every bit of the key counts
    assert not any(torch.equal(other, before) for other in others)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtypes_and_memory_formats_are_kept(dtype: torch.dtype) -> None:
    inputs = torch.randint(0, 255, (8, 3, 16, 12)).to(dtype)
    wanted = augment(inputs, KINDS, 3)
    assert wanted.dtype == dtype and wanted.is_contiguous()
    last = augment(inputs.contiguous(memory_format=torch.channels_last), KINDS, 3)
    assert last.is_contiguous(memory_format=torch.channels_last) and torch.equal(last, wanted)
    strided = torch.cat([inputs, inputs], dim=3)[:, :, :, :12]  # a view that is contiguous in neither format
    assert torch.equal(augment(strided, KINDS, 3), wanted)


def test_what_is_no_image_or_no_kind_is_refused() -> None:
    with pytest.raises(InputError, match=r"\(5, 64\)"):
        augment(torch.zeros(5, 64), ("flip",), 0)
    assert augment(torch.zeros(5, 64), (), 0).shape == (5, 64)
    with pytest.raises(ConfigError, match="rotate"):
        augment(images(1, 1, 4, 4), ("rotate",), 0)
    assert augment(images(0, 1, 4, 4), KINDS, 0).shape == (0, 1, 4, 4)


def test_the_recipe_knows_these_kinds() -> None:
    assert settings_of(Recipe)["augmentation"].choices == KINDS
