"""Run folders: their layout, their state and their results. Nothing here needs torch.

RUN/generation-*.json    the run's checkpoints: recipe, data, environment, warnings, whether it is finished
    initial/             initial parameters of teacher and student
    teacher/ student/    checkpoints of the two pretrainings
    labels/              the teacher's logits by row id
    auxiliary/NAME-0/ …  checkpoints of auxiliary models, which are trained on gold rows too, where an arm needs them
    auxiliary/NAME/      their predictions, by row id
    arms/NAME/           of every arm: weights by row id, checkpoints, the student's parameters
    metrics.jsonl        one line for every epoch
    report.html          the report page
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from wdistill.core import checks
from wdistill.core.errors import CheckpointError, FileError, unreadable
from wdistill.core.paths import as_path
from wdistill.runs.arms import STAGES, folder_of
from wdistill.runs.checkpoints import Snapshot, content_of, damaged, is_begun, read_manifest, visible_damage
from wdistill.runs.judgement import judgement_of
from wdistill.runs.outcome import Epoch, Outcome, Training, refresh_of
from wdistill.weights import saved
from wdistill.weights.rule import Fitted


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run, or the beginning of one."""
    return bool(read_manifest(folder).state.get("run"))


def find_runs(folder: Path) -> list[Path]:
    """The folder itself if it is a run, also a damaged one, else all runs below it, in order of their names."""
    if is_run(folder) or _is_unreadable(folder):
        return [folder]
    if not folder.is_dir():
        return []
    below = sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    return [run for path in below for run in find_runs(path)]


def _is_unreadable(folder: Path) -> bool:
    """Whether a folder has manifests, and none that can be read; or none, where folders below are those of a run."""
    return not read_manifest(folder).number if is_begun(folder) else lacks_manifests(folder)


def lacks_manifests(folder: Path) -> bool:
    """Whether a folder has none of its own manifests, and below it are the parts of a run, with theirs."""
    parts = [*(folder / name for name in STAGES), *(folder / "arms").glob("*")]
    return not is_begun(folder) and any(is_begun(part) and not is_run(part) for part in parts)


def existing_runs(folder: Path) -> list[Path]:
    """As `find_runs`, and an error where there are none."""
    if not (runs := find_runs(folder)):
        raise _no_run("no run", folder, "in or below", "correct the path")
    return runs


def read_trials(folder: Path) -> dict[str, list[Outcome]]:
    """The runs at or below a folder, as trials of the setting that their parent folder names; "" for the folder itself."""
    settings: dict[str, list[Outcome]] = {}
    for run in existing_runs(folder):
        name = "" if run == folder or run.parent == folder else run.parent.relative_to(folder).as_posix()
        try:
            settings.setdefault(name, []).append(read_run(run))
        except CheckpointError as error:
            if run == folder:
                raise
            checks.warn(f"left out: {error}")
    return settings


def damage_of(run: Path) -> list[str]:
    """Files of a run that are seen to be damaged or missing without reading all of them; a running one is not judged."""
    if state_of(run) == "running":
        return []
    folders = sorted({manifest.parent for manifest in run.rglob("generation-*.json")})
    found = [(folder / name).relative_to(run).as_posix() for folder in folders for name in visible_damage(folder)]
    return [*found, *(folder.relative_to(run).as_posix() for folder in lost_folders(run))]


def lost_folders(run: Path) -> list[Path]:
    """Folders that a finished run must have, and that are gone, or their manifests are."""
    state = read_manifest(run).state
    if not state.get("finished"):
        return []
    identity = state["identity"]
    trained = identity["recipe"]["student_epochs"] > 0 and state["rows"].get("labeled", 0) > 0
    needed = ["labels", *([] if identity["teacher"].get("table") else ["teacher"]), *(["student"] if trained else [])]
    folders = [*(run / name for name in needed), *(_arm(run, name) for name in state["arms"])]
    return [folder for folder in folders if not is_begun(folder)]


def _arm(run: Path, name: str) -> Path:
    return run / "arms" / folder_of(name)


def damage_text(run: Path) -> str:
    """The damage of a run in a sentence, or nothing."""
    if not (found := damage_of(run)):
        return ""
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return f"{run}: damaged or missing: {', '.join(found[:5])}{more}; wdistill verify {run} says what to do"


def _no_run(what: str, folder: Path, place: str, remedy: str) -> FileError:
    problem = f"no run {place} this folder" if folder.is_dir() else "no such folder"
    return unreadable(what, folder, problem, "a folder that `wdistill distill` or wdistill.distill(run=…) wrote", remedy)


def state_of(folder: Path) -> str:
    """finished, running (its lock is held), or interrupted."""
    if read_manifest(folder).state.get("finished"):
        return "finished"
    try:
        with (folder / "lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "running"
    except OSError:
        pass
    return "interrupted"


def read_run(folder: str | Path) -> Outcome:
    """The results of a run, so far if it is not finished."""
    folder = as_path(folder, "folder")
    state = read_manifest(folder).state
    if not state.get("run"):
        if _is_unreadable(folder):
            raise damaged(folder, visible_damage(folder) or ["generation-*.json"])
        raise _no_run("not a run", folder, "in", "list the runs there are: wdistill runs FOLDER")
    teacher, student = _training(folder / "teacher", "teacher"), _training(folder / "student", "student")
    arms = {name: _training(_arm(folder, name), name) for name in state["arms"]}
    rules, settings = state.get("rules", {}), state.get("settings", {})  # missing in older runs
    trainings: dict[str, Training | None] = {"teacher": teacher, "student": student, **arms}
    seconds = {name: sum(training.seconds.values()) for name, training in trainings.items() if training}
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
            name: replace(arm or Training(name, ()), rule=rules.get(name, name), settings=settings.get(name, {}))
            for name, arm in arms.items()
        },
        seconds={**seconds, **state.get("seconds", {})},
        warnings=(*state.get("warnings", ()), *([text] if (text := damage_text(folder)) else [])),
        judgement=judgement_of(state.get("judged", {})),
    )


def metrics_of(folder: Path) -> Iterator[dict[str, Any]]:
    """One record for every epoch of every training, in the order of stages; `seconds` is the only field about time."""
    state = read_manifest(folder).state
    folders = {"teacher": folder / "teacher", "student": folder / "student"}
    folders |= {name: folder / "arms" / folder_of(name) for name in state["arms"]}
    for name, path in folders.items():
        training = _training(path, name) or Training(name, ())
        refreshes = {refresh.after: refresh for refresh in training.refreshes}
        for epoch in training.epochs:
            refresh = refreshes.get(epoch.epoch - 1)
            weights = {} if refresh is None else {"weights": summary(refresh.weights)}
            yield {"stage": name, **epoch.record, **weights}


def metrics_bytes(folder: Path) -> bytes:
    return "".join(json.dumps(line, allow_nan=False) + "\n" for line in metrics_of(folder)).encode()


def summary(histogram: Any) -> dict[str, float]:
    """Weights in three numbers."""
    return {
        "mean": histogram.mean,
        "effective_sample_size": histogram.effective_sample_size,
        "share_below_one": histogram.share_below_one,
    }


def _training(folder: Path, name: str) -> Training | None:
    snapshot = read_manifest(folder)
    state: Mapping[str, Any] = snapshot.state
    if "epochs" not in state:
        return None
    refreshes = tuple(map(refresh_of, state["refreshes"]))
    epochs = tuple(Epoch(**epoch) for epoch in state["epochs"])
    metadata = {"why": state.get("why", ""), "gold": state.get("gold", False)}
    return Training(name, epochs, refreshes, _fitted(folder, snapshot), state["seconds"], **metadata)


def _fitted(folder: Path, snapshot: Snapshot) -> tuple[Fitted, ...]:
    """The stored states of the rule, first and last; none that a running training has replaced meanwhile."""
    names = sorted(name for name in snapshot.files if name.startswith("weights/") and name.endswith(".npz"))
    contents = {name: content_of(folder, snapshot, name) for name in names}
    return tuple(saved.from_bytes(content, name) for name, content in contents.items() if content is not None)
