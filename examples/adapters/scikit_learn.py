"""A teacher's probabilities for a student of scikit-learn, in a minute:  python examples/adapters/scikit_learn.py

Real data: scikit-learn's handwritten digits. The teacher, gradient boosting, sees all pixels and 100 labeled rows. The
students, a logistic regression and boosted trees that stop early, see 4 × 4 pixels. 200 rows are gold, 600 unlabeled.
Five trials; in each, all arms have the same rows and the same teacher.
"""

from __future__ import annotations

import sys
from collections import defaultdict

import numpy as np
from paired import paired
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from wdistill.adapters.sklearn import Distiller
from wdistill.weights.rules import unweighted

TRAPS = (
    "class_weight='balanced' counts expanded rows",
    "early stopping splits twins",
    "early_stopping='auto' counts twins",
    "students that cross-validate split twins",
    "transformers read a row once for each class",
    "marks of unlabeled rows become texts or classes",
    "scores count unlabeled rows as errors",
    "a frame of probabilities is read by position, whatever its columns are named",
)
PARTS = (100, 300, 900)
STUDENTS = {
    "logistic regression": LogisticRegression(max_iter=500),
    "boosted trees": HistGradientBoostingClassifier(early_stopping=True, max_iter=30, max_leaf_nodes=8),
}


def trial(seed: int) -> dict[tuple[str, str], float]:
    """Test accuracies, by student and arm."""
    pixels, labels = load_digits(return_X_y=True)
    small = pixels.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16) / 16
    labeled, gold, pool, test = np.split(np.random.default_rng(seed).permutation(len(labels)), PARTS)
    boosting = HistGradientBoostingClassifier(max_iter=20, random_state=seed)
    teacher = boosting.fit(pixels[labeled], labels[labeled])
    rows = np.concatenate([gold, pool])
    y = np.concatenate([labels[gold], np.full(len(pool), -1)])
    P = teacher.predict_proba(pixels[rows])  # noqa: N806
    accuracies = {("", "teacher"): teacher.score(pixels[test], labels[test])}
    for name, student in STUDENTS.items():
        for arm, method in {
            "teacher's targets + gold": unweighted,
            "paper's weights + gold": "paper",
            "best": "best",
        }.items():
            # --- wdistill
            model = Distiller(student, method, random_state=seed).fit(small[rows], y, teacher=P)
            # ---
            accuracies[name, arm] = model.score(small[test], labels[test])
        alone = student.set_params(random_state=seed).fit(small[gold], labels[gold])
        accuracies[name, "gold alone"] = alone.score(small[test], labels[test])
    if seed == 0:
        print(f"before training: {model.advice_.verdict}", flush=True)
    return accuracies


def main(trials: int = 5) -> None:
    arms: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for seed in range(trials):
        for (student, arm), accuracy in trial(seed).items():
            arms[student][arm].append(accuracy)
    teacher = arms.pop("")
    print(f"the teacher is right on {100 * np.mean(teacher['teacher']):.1f} % of the test rows")
    for student, of_arms in arms.items():
        print(f"\n{student}, {trials} trials, points of test accuracy\n")
        print(
            paired({**of_arms, "the teacher itself": teacher["teacher"]}, "teacher's targets + gold", f"digits, {student}")
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
