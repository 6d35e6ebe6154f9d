"""A small network in Keras 3, on a teacher's corrected targets:  python examples/adapters/keras_student.py"""

from __future__ import annotations

import os

os.environ.setdefault("KERAS_BACKEND", "torch")  # before keras is imported

from typing import Any

import keras
import numpy as np
from images import IMAGES, Predict, trials

from wdistill.adapters.keras import fit_arguments
from wdistill.adapters.table import read_targets

TRAPS = (
    "mean_with_sample_weight divides by Σ weight",
    "logits taken for probabilities, or the reverse (from_logits)",
    "the Distiller of Keras' example does not look at sample_weight",
    "an array of weights may be copied: what changes during fit is not seen",
)


def train(targets: Any, ids: np.ndarray, seed: int) -> Predict:
    """A student of the rows `ids`; targets as `wdistill correct` writes them, a file or what it returns."""
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Flatten(), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(10)]
    model = keras.Sequential([keras.Input(IMAGES.shape[1:]), *layers])
    model.compile(keras.optimizers.Adam(0.01), loss=keras.losses.CategoricalCrossentropy(from_logits=True))
    # --- wdistill
    table = read_targets(targets)
    model.fit(**fit_arguments(model, IMAGES[ids], ids, table), epochs=10, batch_size=32, verbose=0)
    # ---
    return lambda images: np.asarray(model.predict(images, verbose=0).argmax(axis=1))


if __name__ == "__main__":
    print(trials(train))
