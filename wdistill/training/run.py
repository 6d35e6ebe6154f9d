"""A run in progress: its folder and lock, its stored state, and the students at its end."""

from __future__ import annotations

import copy
import os
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from wdistill.core import checks, store
from wdistill.core.errors import StorageError, bad_value, wrong_type
from wdistill.core.signals import Stop, stopping
from wdistill.methods.metric_text import written_out
from wdistill.report.seal import is_ours, write_page
from wdistill.runs.arms import Arm, arms_of, first_of, folder_of
from wdistill.runs.checkpoints import CheckpointStore, is_begun
from wdistill.runs.display import display
from wdistill.runs.folder import metrics_bytes, read_run
from wdistill.runs.outcome import Outcome
from wdistill.runs.recipe import Recipe, check_recipe
from wdistill.training import input_files, tensors
from wdistill.training.jobs import TrainingJob, torch_threads
from wdistill.training.labels import FOLDED_STUDENT, read_classes, read_labels
from wdistill.training.placed import placed
from wdistill.training.predict import accuracy, device_for, predict, share_right
from wdistill.training.rank_jobs import run_on_ranks
from wdistill.training.ranks import ranks
from wdistill.training.stage import Callbacks, StoppedError
from wdistill.training.workers import worker_pool

if TYPE_CHECKING:
    from wdistill.training.data import Split
    from wdistill.training.prepare import Prepared

PAGE = "report.html"


@dataclass(frozen=True, eq=False)
class Report:
    """What `distill` returns: the outcome, and the trained students."""

    outcome: Outcome
    students: Mapping[str, nn.Module]  # by arm, with their final parameters, in eval mode
    classes: tuple[str, ...] = ()  # their names in the order of the logits, where they are known

    @property
    def student(self) -> nn.Module:
        """The student of the first arm that is not a control: of the only arm, usually."""
        return self.students[first_of({name: arm.rule for name, arm in self.outcome.arms.items()})]

    def __str__(self) -> str:
        from rich.console import Console

        from wdistill.report.tables import terminal_table

        console = Console(width=110)
        with console.capture() as capture:
            console.print(terminal_table("", [self.outcome]))
        return capture.get()


@contextmanager
def open_run(rule: Any, recipe: Recipe | None, folder: str | Path | None) -> Iterator[Run]:
    """A run in its folder, which is locked until the end; signal handlers, threads and random state are then restored."""
    recipe = Recipe() if recipe is None else recipe
    if not isinstance(recipe, Recipe):
        example = "write recipe=Recipe(epochs=100, rate=0.01), for example"
        raise wrong_type("not a recipe", "recipe", recipe, "a wdistill.Recipe", example)
    if not isinstance(folder, str | Path | None):
        raise wrong_type("not a folder", "run", folder, "a path, or None to keep nothing", 'write run="runs/first"')
    with ExitStack() as stack:
        messages = stack.enter_context(checks.collect_warnings())
        arms = arms_of(rule, recipe)
        _check_recipes(arms, recipe)
        recipe = replace(recipe, rule=tuple(arms), metric=written_out(recipe.metric))
        kept = folder is not None
        place = Path(folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="wdistill-")))
        _refuse_foreign(place)
        stop = stack.enter_context(stopping())
        store.make_folder(place, parents=True)
        stack.enter_context(store.lock(place))
        if store.is_open_to_all(place):
            checks.warn(f"{place}: every user of this machine may change what is in this folder: chmod o-w prevents it")
        stack.enter_context(torch_threads(recipe.threads))
        ranks().tell("begin", recipe.threads)
        stack.enter_context(torch.random.fork_rng(devices=[]))  # the caller's random state is unchanged
        try:
            yield Run(place, recipe, arms, messages, stop, kept=kept)
        except StoppedError:
            if stop():
                stop.leave()
            raise


class Run:
    """The state of a run: what is stored in its folder, and the arms to train."""

    def __init__(
        self, folder: Path, recipe: Recipe, arms: Mapping[str, Arm], messages: list[str], stop: Stop, *, kept: bool
    ) -> None:
        self.folder, self.recipe, self.arms, self.messages, self.stop, self.kept = folder, recipe, arms, messages, stop, kept
        self.store, self._writing = CheckpointStore(folder), threading.Lock()
        self.device = device_for(recipe.device)

    @contextmanager
    def working(self) -> Iterator[tuple[Callable[[Sequence[TrainingJob]], None], Callbacks]]:
        """A function that runs jobs, here or in worker processes, and the callbacks of the work."""
        self._remember_warnings_at_once()
        team, workers = ranks(), self.recipe.workers
        with display() as on_event:
            callbacks = Callbacks(self.stop, on_event)
            if team.size > 1:
                yield partial(run_on_ranks, callbacks=callbacks, team=team, together=workers == 1), callbacks
                return
            with worker_pool(workers, self.stop, on_event) as run_jobs:
                yield run_jobs, callbacks

    def remember(self, **more: Any) -> None:
        """Commit new state and warnings, if there are any."""
        with self._writing:
            before = self.store.state.get("warnings", [])
            messages = [*before, *(text for text in self.messages if text not in before)]
            state = {**self.store.state, **more, "warnings": messages}
            if state != self.store.state:
                self.store.commit(state)

    def _remember_warnings_at_once(self) -> None:
        """Commit every warning as soon as it is raised: after a kill, its cause may not occur again."""
        show = warnings.showwarning

        def show_and_remember(*warning: Any, **more: Any) -> None:
            show(*warning, **more)
            with suppress(StorageError):  # the next commit raises it
                self.remember()

        warnings.showwarning = show_and_remember

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Store the seconds that a block took, the first time."""
        started = time.perf_counter()
        yield
        seconds = self.store.state.get("seconds", {})
        if name not in seconds:
            self.remember(seconds={**seconds, name: time.perf_counter() - started})

    def remember_accuracies(self, prepared: Prepared) -> None:
        """Measure the teacher on all splits with known truth, and the student before the arms; once."""
        if "accuracies" in self.store.state:
            return
        teacher, classes = dict[str, float](), read_classes(self.folder, prepared.splits, prepared.classes)
        for name, split in prepared.passed_splits.items():
            if name in classes and split.labels is not None:
                teacher[name] = share_right(classes[name], split.labels, split.design.weights)
        self.remember(accuracies={"teacher": teacher, "student": self._student_accuracies(prepared)})

    def _student_accuracies(self, prepared: Prepared) -> dict[str, float]:
        epochs = read_run(self.folder).student.epochs
        if epochs:
            last = {"validation": epochs[-1].validation, "test": epochs[-1].test}
            if prepared.gold_as_labeled:
                last["validation"] = self._out_of_fold_accuracy(prepared.splits["validation"])
            return {name: value for name, value in last.items() if value is not None}
        measured = {}  # it came trained: measure it now
        with placed(copy.deepcopy(prepared.student), self.device, self.recipe.sharded) as student:
            for name in ("validation", "test"):
                split = prepared.splits.get(name)
                if split is not None and split.labels is not None:
                    logits = predict(student, split.inputs, self.recipe.precision)
                    measured[name] = accuracy(logits, split.labels, split.design.weights)
        return measured

    def _out_of_fold_accuracy(self, gold: Split) -> float:
        """Of the students that were trained on all gold rows but those of one fold."""
        logits = read_labels(self.folder / "auxiliary" / FOLDED_STUDENT, "validation")
        assert logits is not None and gold.labels is not None
        return accuracy(logits, gold.labels, gold.design.weights)

    @property
    def parts(self) -> int:
        """Of every batch of an arm: as many as there were processes, unless the recipe says how many."""
        return int(self.store.state.get("parts", 1))

    def arm_with_auxiliary(self) -> str:
        """The name of the first arm whose method uses auxiliary models."""
        for name, arm in self.arms.items():
            if arm.auxiliary:
                return name
        found, expected = ", ".join(self.arms), "best, alone or among others"
        raise bad_value("advice is about the arm best", "rule", found, expected, "write rule=best (--method best)")

    def is_finished(self) -> bool:
        """Whether nothing is left to do; an arm whose files were damaged resumes from the snapshot before."""
        return bool(self.store.state.get("finished")) and all(self._arm(name).state.get("finished") for name in self.arms)

    def _arm(self, name: str) -> CheckpointStore:
        return CheckpointStore(self.folder / "arms" / folder_of(name))

    def finish(self) -> None:
        path = self.folder / PAGE
        if is_ours(path):
            store.remove(path)  # drawn before the end
        elif path.exists():
            checks.warn(f"{path} is not a page of wdistill, and stays as it is; for one, name it: wdistill report --output")
        self.store.commit({**self.store.state, "finished": True}, {"metrics.jsonl": metrics_bytes(self.folder)})

    def report(self, student: nn.Module) -> Report:
        """The outcome and the students of a finished run; draws the page where there is none, and removes the inputs."""
        if self.kept:
            self._tidy()
        students: dict[str, nn.Module] = {}
        for name in self.arms:
            parameters = tensors.from_bytes(self._arm(name).read("parameters.safetensors"), name)
            students[name] = copy.deepcopy(student).eval()
            tensors.load_parameters(students[name], parameters, name)
        return Report(read_run(self.folder), students, tuple(self.store.state.get("class_names", ())))

    def _tidy(self) -> None:
        from wdistill.report.page import page

        if not os.path.lexists(self.folder / PAGE):
            title = f"wdistill: {self.folder.name}"
            write_page(self.folder / PAGE, page({"": [read_run(self.folder)]}, title))
        input_files.remove_all(self.folder / input_files.FOLDER)


def _check_recipes(arms: Mapping[str, Arm], recipe: Recipe) -> None:
    """Check the recipe of every arm, with the names of the rules that have it."""
    rules: dict[Recipe, list[str]] = {}
    for arm in arms.values():
        rules.setdefault(arm.recipe(recipe), []).append(arm.rule.name)
    for arm_recipe, names in rules.items():
        check_recipe(replace(arm_recipe, rule=tuple(dict.fromkeys(names))), beside=[arm.rule.name for arm in arms.values()])


def _refuse_foreign(folder: Path) -> None:
    """Raise where the folder holds something other than a run."""
    foreign = (
        [] if is_begun(folder) or not folder.is_dir() else [path.name for path in folder.iterdir() if not _is_ours(path)]
    )
    foreign += [] if store.is_lock(folder / "lock") or not os.path.lexists(folder / "lock") else ["lock"]
    if foreign or (folder.exists() and not folder.is_dir()):
        raise bad_value(
            "the folder of the run holds something else",
            str(folder),
            ", ".join(sorted(foreign)[:5]) or "a file",
            "a new or empty folder, or a run to resume",
            "name another folder; nothing was touched",
        )


def _is_ours(path: Path) -> bool:
    """Whether a file or folder may be in the folder of a run that was killed before its first manifest."""
    if path.name == input_files.FOLDER:
        return input_files.is_ours(path)
    is_begun = path.name == "lock" or (path.name == "initial" and path.is_dir())
    return is_begun or path in store.unfinished_writes(path.parent)
