"""The weights in a trainer's checkpoint: whatever bit flips, they are those that were saved, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from wdistill.adapters.weights_file import NAME, load_weights, save_weights
from wdistill.core.errors import WdistillError
from wdistill.training.tensors import from_bytes, to_bytes


class Rows:
    """What is saved of a Dataset: its weights, and the ids of its table."""

    def __init__(self) -> None:
        self.weight, self.table = torch.linspace(0, 1, 9), self
        self.ids = np.arange(9)

    def __len__(self) -> int:
        return len(self.ids)

    def set_weights(self, weights: Any, ids: Any) -> None:
        self.weight = weights


def test_no_flipped_bit_is_loaded_as_another_weight_or_epoch(tmp_path: Path) -> None:
    rows: Any = Rows()
    save_weights(rows, 3, tmp_path)
    path, before = tmp_path / NAME, rows.weight.clone()
    assert load_weights(rows, tmp_path) == 3 and torch.equal(rows.weight, before)
    whole, refused = path.read_bytes(), 0
    for bit in range(0, 8 * len(whole), 3):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            assert load_weights(rows, tmp_path) == 3 and torch.equal(rows.weight, before), bit
        except WdistillError as error:
            refused += 1
            assert str(path) in error.where and error.remedy
    assert refused > len(whole) * 8 / 3 - 20


def test_weights_without_a_digest_are_refused(tmp_path: Path) -> None:
    rows: Any = Rows()
    save_weights(rows, 3, tmp_path)
    values = from_bytes((tmp_path / NAME).read_bytes(), NAME)
    (tmp_path / NAME).write_bytes(to_bytes({name: each for name, each in values.items() if name != "sha256"}))
    with pytest.raises(WdistillError, match="no digest"):
        load_weights(rows, tmp_path)
