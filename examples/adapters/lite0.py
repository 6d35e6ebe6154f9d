"""Features of EfficientNet-lite0 teach a small CNN, in a loop of one's own:  python examples/adapters/lite0.py [ROOT]

Real data: the first 10,000 train rows of CIFAR-10, and what EfficientNet-lite0, which was trained on ImageNet, makes of them
before its last layer. The teacher is a logistic regression on these features, of 500 labeled rows. ROOT, or WDISTILL_DATA,
is the folder that `wdistill data cifar10` and `python -m experiments.lab.converting lite0 FOLDER` have prepared.

In each trial all arms have the same rows, first weights and number of steps. Images are cut to 30 principal directions
where targets are corrected. The settings were chosen before the first run.
"""

from __future__ import annotations

import sys
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from paired import paired
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch.utils.data import DataLoader

import wdistill
from wdistill.adapters.refresh import predict
from wdistill.adapters.table import read_targets
from wdistill.adapters.torch import WithTargets
from wdistill.core.errors import WdistillError
from wdistill.datasets import data_root, load
from wdistill.training.losses import weighted_loss

TRAPS = (
    "targets in row order are those of other rows once a loader shuffles",
    "a loss divided by Σ weight undoes the weights",
    "predictions in train mode are of other weights, and move batch norm",
)
TRIALS = range(5)
BASE = "teacher's targets + gold"
LABELED, GOLD, POOL, TEST = 500, 500, 3000, 3000
EPOCHS, BATCH = 5, 32  # epochs over gold and pool; students of fewer rows take as many steps
CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def prepared(root: Path | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images (10000, 3, 32, 32), their classes, and their features (10000, 1280)."""
    path = data_root(root) / "lite0" / "cifar10-features.npz"
    if not path.exists():
        found = f"{path} is missing; python -m experiments.lab.converting lite0 FOLDER makes it"
        sys.exit(f"{found} (set WDISTILL_DATA, or name the folder of the data)")
    features = np.load(path)["features"]
    train = load("cifar10", root).train
    scaled = (np.asarray(train.inputs[: len(features)], np.float32) / 255 - 0.5) / 0.25
    return scaled, np.asarray(train.labels[: len(features)]), features


def train(images: np.ndarray, targets: Any, ids: np.ndarray, seed: int, test: np.ndarray) -> np.ndarray:
    """What a student of the rows `ids` says of the test rows; targets as `wdistill correct` writes them."""
    torch.manual_seed(seed)
    net = wdistill.CNN(channels=3, classes=10, width=8)
    optimizer = torch.optim.Adam(net.parameters(), 0.003)
    # --- wdistill
    data = WithTargets(images[ids], read_targets(targets), ids)
    # ---
    for _ in range(EPOCHS * (GOLD + POOL) // len(ids)):
        for x, given, weight in DataLoader(data, BATCH, shuffle=True):
            optimizer.zero_grad()
            # --- wdistill
            loss = weighted_loss(net(x), given, weight)
            # ---
            loss.backward()
            optimizer.step()
    # --- wdistill
    said = predict(net, images[test])
    # ---
    return said.argmax(axis=1)


def trials(images: np.ndarray, labels: np.ndarray, features: np.ndarray) -> str:
    """Students on four kinds of targets."""
    torch.set_num_threads(1)
    arms: dict[str, list[float]] = {}
    for seed in TRIALS:
        order = np.random.default_rng(seed).permutation(len(labels))
        labeled, gold, pool, test, _ = np.split(order, np.cumsum([LABELED, GOLD, POOL, TEST]))
        teacher = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(features[labeled], labels[labeled])
        said, one_hot = teacher.predict_proba(features), np.eye(10)[labels]
        ids, taught = np.concatenate([gold, pool]), np.concatenate([gold, labeled])
        directions = PCA(30, svd_solver="randomized", random_state=seed).fit_transform(images[ids].reshape(len(ids), -1))
        answers = {"id": ids, "teacher": said[ids], "inputs": directions}
        known = {"id": gold, "label": [CLASSES[label] for label in labels[gold]]}
        with redirect_stderr(StringIO()):  # what was read, line by line
            best = wdistill.correct(answers, known, classes=CLASSES, inputs="inputs")
        mixed = np.concatenate([gold, np.random.default_rng(seed).permutation(pool)])  # ids of other rows
        by_id = dict(zip(best.table["id"].to_pylist(), best.table["targets"].to_pylist(), strict=True))
        targets = {
            BASE: ({"id": ids, "targets": np.concatenate([one_hot[gold], said[pool]])}, ids),
            "best targets": (best, ids),
            "best targets, of other rows": ({"id": mixed, "targets": [by_id[str(key)] for key in ids]}, ids),
            "labels of gold and of the teacher's rows": ({"id": taught, "targets": one_hot[taught]}, taught),
        }
        for arm, (given, rows) in targets.items():
            predicted = train(images, given, rows, seed, test)
            arms.setdefault(arm, []).append(float(np.mean(predicted == labels[test])))
        arms.setdefault("the teacher itself", []).append(float(np.mean(said[test].argmax(1) == labels[test])))
    rows = f"{POOL:,} rows of the teacher, {GOLD} of gold, {TEST:,} of the test, {len(TRIALS)} trials"
    return f"CIFAR-10: 10 classes, {rows}\n\n{paired(arms, BASE, 'CIFAR-10')}\n"


if __name__ == "__main__":
    try:
        given = prepared(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
    except WdistillError as error:  # CIFAR-10 is not prepared: the message says what to do
        sys.exit(str(error))
    print(trials(*given))
