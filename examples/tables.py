"""Tables for `wdistill advise` and `wdistill weigh` from real data, in seconds:  python examples/tables.py FOLDER

scikit-learn's handwritten digits. A teacher learns from 80 labeled rows, a student that sees 4 × 4 pixels from the same; 300
rows are gold; the rest is unlabeled. The pixels are in all three tables, for the second opinion of a forest.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

LABELED, GOLD = 80, 300


def main(folder: Path) -> None:
    inputs, labels = load_digits(return_X_y=True)
    inputs = inputs / 16
    small = inputs.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16)
    rows = np.random.default_rng(0).permutation(len(labels))
    labeled, gold, unlabeled = np.split(rows, [LABELED, LABELED + GOLD])
    columns = {"id": np.arange(len(labels)), "label": labels, "pixels": inputs}
    for name, seen in (("teacher", inputs), ("student", small)):
        model = LogisticRegression(max_iter=1000).fit(seen[labeled], labels[labeled])
        columns[name] = model.predict_proba(seen)
    folder.mkdir(exist_ok=True)
    parts = {
        "labeled": (labeled, ("id", "label", "pixels")),
        "gold": (gold, ("id", "label", "teacher", "student", "pixels")),
        "unlabeled": (unlabeled, ("id", "teacher", "student", "pixels")),
    }
    for name, (part, kept) in parts.items():
        table = {column: columns[column][part] for column in kept}
        pq.write_table(pa.table({column: list(values) for column, values in table.items()}), folder / f"{name}.parquet")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "digits"))
