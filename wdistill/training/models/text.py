"""A linear student on text: one row of parameters for every bucket of words and pairs of words that texts have."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from wdistill.core.errors import bad_value
from wdistill.text.features import PAIRS, TextFeatures
from wdistill.text.ngrams import COLUMNS
from wdistill.text.plain import BITS, BUCKETS

# settings of a Recipe that suit it
TEXT_RECIPE: Mapping[str, str | int | float] = {
    "optimizer": "adam",
    "rate": 0.02,
    "schedule": "linear",
    "batch_size": 256,
    "student_epochs": 10,
    "epochs": 10,
}


class TextBag(nn.Module):
    """Logistic regression on text; rows (b, L) of whole numbers, as `text_rows` makes them → logits (b, classes).

    The rarity of n-grams and the two norms are inside, as in `TextFeatures`, so nothing but a hash is needed to predict. A
    bag made without features counts all n-grams alike. One made with them has parameters for those `columns` alone that
    count anything there: steps are shorter, and the student is smaller.
    """

    idf: Tensor  # (1 + 2¹⁹,) of padding, then of every column
    places: Tensor  # (1 + 2¹⁹,) rows of the parameters; 0 for padding and for columns that have none

    def __init__(self, classes: int, columns: int = COLUMNS) -> None:
        super().__init__()
        self.arguments = {"classes": classes, "columns": columns}
        self.weight = nn.Parameter(torch.zeros(1 + columns, classes))
        self.bias = nn.Parameter(torch.zeros(classes))
        self.register_buffer("idf", torch.ones(1 + COLUMNS))
        self.register_buffer("places", torch.arange(1 + COLUMNS, dtype=torch.int32).clamp(max=columns))

    def forward(self, rows: Tensor) -> Tensor:
        return self.sums(rows, self.weight) + self.bias

    def sums(self, rows: Tensor, parameters: Tensor) -> Tensor:
        """The weighted sums of the rows (1 + columns, k) of parameters that texts have → (b, k)."""
        columns, counts = rows & ((1 << (BITS + 2)) - 1), rows >> (BITS + 2)
        values = counts * functional.embedding(columns, self.idf[:, None])[..., 0]
        pairs = columns > BUCKETS
        squares = torch.stack([(values**2 * ~pairs).sum(1), (values**2 * pairs).sum(1)], 1)
        scales = torch.tensor([1.0, PAIRS], device=rows.device) * squares.clamp(min=1e-20).rsqrt()
        values = values * torch.where(pairs, scales[:, 1:], scales[:, :1])
        places = functional.embedding(columns, self.places[:, None])[..., 0]
        summed: Tensor = functional.embedding_bag(places, parameters, per_sample_weights=values, mode="sum", padding_idx=0)
        return summed


def text_bag(features: TextFeatures, classes: int) -> TextBag:
    """A new student that weighs n-grams as these features do."""
    if features.texts < 2:
        expected, remedy = "features fitted to at least 2 texts", "fit them to the unlabeled texts"
        raise bad_value("features of too few texts", "features", f"{features.texts} texts", expected, remedy)
    known = torch.from_numpy(np.flatnonzero(features.idf))
    bag = TextBag(classes, max(1, len(known)))
    bag.idf[1:] = torch.from_numpy(features.idf)
    bag.idf[0] = 0
    bag.places.zero_()
    bag.places[1 + known] = torch.arange(1, 1 + len(known), dtype=torch.int32)
    return bag
