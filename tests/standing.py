"""Lines of the leaderboard as trials write them, made up: every method gains what it is told, with some luck."""

from __future__ import annotations

import numpy as np

from experiments.leaderboard.run import GOLD, methods_of
from experiments.leaderboard.tasks import FORMER, Protocol, Task
from experiments.leaderboard.transfer import Line

TRIALS = 5
PLAN = Protocol(FORMER, methods_of, GOLD)
GAINS: dict[str, float] = {  # points over unweighted, of some size
    "unweighted": 0.0,
    "oracle": 1.5,
    "shuffled": -0.3,
    "paper": 0.1,
    "labels+gold": -2.0,
    "unweighted+gold": 0.5,
    "paper+gold": 0.6,
    "logistic+gold": 0.8,
    "corrected+gold": 1.9,
    "retrained+gold": 2.0,
    "corrected-retrained+gold": 2.3,
    "best": 2.2,
}


def line(task: Task, gold: int, trial: int, gains: dict[str, float] | None = None) -> Line:
    """One trial; `gains` take the place of the usual ones."""
    random = np.random.default_rng([*task.name.encode(), gold, trial])
    usual = {name: GAINS.get(name, float(random.normal(0.3, 0.3))) for name in methods_of(task)}
    told, scale = usual | {name: each for name, each in (gains or {}).items() if name in usual}, float(np.log10(gold) - 1.7)
    size = 0.5 + float(np.random.default_rng([*task.name.encode()]).random())

    def accuracies() -> dict[str, float]:
        return {name: 80 + size * scale * each + float(random.normal(0, 0.1)) for name, each in told.items()}

    corrected = random.random() < 0.4 + 0.2 * scale
    why = "targets corrected by student, second" if corrected else "the teacher's own targets: second adds nothing"
    promised = size * scale * 0.024 + float(random.normal(0, 0.003))
    return {
        "task": task.name,
        "gold": gold,
        "trial": trial,
        "settings": {"split": task.splits + trial},
        "rows": {
            "labeled": task.labeled,
            "unlabeled": task.unlabeled - 900 * (task.name == "texture") * (gold > 500),
            "test": 4000,
        },
        "accuracies": {each: accuracies() for each in (("soft", "hard") if task.all_methods else ("soft",))},
        "data": {"name": task.data, "official": task.data != "letter", "source": "a table"},
        "before": 75.0,
        "experts": {"teacher": 82.0, "student": 75.0},
        "experts_gold": {"teacher": 83.0, "student": 76.0},
        "prospect": {"likelihood": 0.1, "gain": promised, "gain_error": 0.01, "corrected": 85.0},
        "why": {"best": f"{why}: log-likelihood on gold +0.012 ± 0.004"},
        "seconds": 60.0,
        "commit": "24dc0811aaaa",
        "environment": {"processor": "Intel(R) Xeon(R) Processor @ 2.80GHz", "cores": 2, "torch": "2.13.0"},
    }


def lines(trials: int = TRIALS, tasks: tuple[Task, ...] = FORMER, gold: tuple[int, ...] = GOLD) -> list[Line]:
    return [line(task, each, trial) for trial in range(trials) for each in gold for task in tasks]
