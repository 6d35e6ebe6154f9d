"""Run folders: what lies where, which state they are in, and what they came to. Nothing here needs torch.

RUN/generation-*.json    the run's ledger: recipe, data, environment, warnings, whether it is finished
    initial/             parameters that teacher and student began with
    teacher/ student/    ledgers of the two pretrainings
    labels/              the teacher's logits by row id
    opinions/NAME-0/ …   ledgers of models that learn from gold rows too, where an arm asks for them
    opinions/NAME/       what they say, by row id
    arms/NAME/           a ledger for every arm: weights by row id, checkpoints, the student's parameters
    metrics.jsonl        one line for every epoch
    report.html          for people
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from wdistill import states
from wdistill.arms import folder_of
from wdistill.errors import FileError
from wdistill.ledger import Generation, content_of, peek
from wdistill.outcome import Epoch, Outcome, Training, refresh_of
from wdistill.rules import Fitted


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run, or the beginning of one."""
    return bool(peek(folder).state.get("run"))


def find_runs(folder: Path) -> list[Path]:
    """The folder itself if it is a run, else all runs below it, in order of their names."""
    if is_run(folder):
        return [folder]
    if not folder.is_dir():
        return []
    return [run for each in sorted(folder.iterdir()) if each.is_dir() and not each.is_symlink() for run in find_runs(each)]


def state_of(folder: Path) -> str:
    """finished, running (its lock is held), or interrupted."""
    if peek(folder).state.get("finished"):
        return "finished"
    try:
        with (folder / "lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "running"
    except OSError:
        pass
    return "interrupted"


def read_run(folder: Path) -> Outcome:
    """What a run came to, or has come to so far."""
    state = peek(folder).state
    if not state.get("run"):
        raise FileError(
            "not a run",
            where=str(folder),
            found="no run in this folder" if folder.is_dir() else "no such folder",
            expected="a folder that `wdistill distill` or wdistill.distill(run=…) wrote",
            remedy="list the runs there are: wdistill runs FOLDER",
        )
    teacher, student = _training(folder / "teacher", "teacher"), _training(folder / "student", "student")
    arms = {name: _training(folder / "arms" / folder_of(name), name) for name in state["arms"]}
    rules, settings = state.get("rules", {}), state.get("settings", {})  # which older runs lack
    known: dict[str, Training | None] = {"teacher": teacher, "student": student, **arms}
    seconds = {name: sum(each.seconds.values()) for name, each in known.items() if each}
    return Outcome(
        folder=folder,
        state=state_of(folder),
        recipe=state["identity"]["recipe"],
        environment=state["environment"],
        rows=state["rows"],
        classes=state["classes"],
        teacher=None if state["identity"]["teacher"].get("table") else teacher or Training("teacher", ()),
        student=student or Training("student", ()),
        accuracies=state.get("accuracies", {}),
        arms={
            name: replace(each or Training(name, ()), rule=rules.get(name, name), settings=settings.get(name, {}))
            for name, each in arms.items()
        },
        seconds={**seconds, **state.get("seconds", {})},
        warnings=tuple(state.get("warnings", ())),
    )


def metrics_of(folder: Path) -> Iterator[dict[str, Any]]:
    """One record for every epoch of every training, in the order of stages; `seconds` is the only field about time."""
    state = peek(folder).state
    places = {"teacher": folder / "teacher", "student": folder / "student"}
    places |= {name: folder / "arms" / folder_of(name) for name in state["arms"]}
    for name, place in places.items():
        found = _training(place, name)
        refreshes = {each.after: each for each in found.refreshes} if found else {}
        for epoch in found.epochs if found else ():
            refresh = refreshes.get(epoch.epoch - 1)
            weights = {} if refresh is None else {"weights": summary(refresh.weights)}
            yield {"stage": name, **asdict(epoch), **weights}


def metrics_bytes(folder: Path) -> bytes:
    return "".join(json.dumps(line, allow_nan=False) + "\n" for line in metrics_of(folder)).encode()


def summary(histogram: Any) -> dict[str, float]:
    """What is said of weights in one line."""
    return {
        "mean": histogram.mean,
        "effective_sample_size": histogram.effective_sample_size,
        "share_below_one": histogram.share_below_one,
    }


def _training(folder: Path, name: str) -> Training | None:
    found = peek(folder)
    if not found.number or "epochs" not in found.state:
        return None
    state: Mapping[str, Any] = found.state
    refreshes = tuple(refresh_of(each) for each in state["refreshes"])
    epochs = tuple(Epoch(**each) for each in state["epochs"])
    told = {"why": state.get("why", ""), "gold": state.get("gold", False)}
    return Training(name, epochs, refreshes, _fitted(folder, found), state["seconds"], **told)


def _fitted(folder: Path, found: Generation) -> tuple[Fitted, ...]:
    """The stored states of the rule, first and last; none that a training which goes on has replaced meanwhile."""
    names = sorted(name for name in found.files if name.startswith("weights/") and name.endswith(".npz"))
    contents = {name: content_of(folder, found, name) for name in names}
    return tuple(states.from_bytes(content, name) for name, content in contents.items() if content is not None)
