"""`distill`: Algorithm 1 of the paper from beginning to end, in one folder, resumable at any moment."""

from __future__ import annotations

import copy
import json
import re
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import wdistill
from wdistill import checks, store
from wdistill.arms import Arm, arms_of, first_of, folder_of, name_of, opinions_in, rules_in
from wdistill.environment import environment
from wdistill.errors import ConfigError, FileError, InputError, StorageError
from wdistill.job import hear
from wdistill.ledger import Ledger
from wdistill.methods import advising
from wdistill.methods.advising import Advice
from wdistill.methods.choosing import enough
from wdistill.methods.forest import need_learning
from wdistill.methods.guards import doubled, learned_from, repeated
from wdistill.methods.teaching import OPINIONS, best
from wdistill.outcome import Outcome
from wdistill.recipe import Recipe, changes, check_recipe, to_json
from wdistill.runs import metrics_bytes, read_run
from wdistill.signals import Stop, stopping
from wdistill.training import tensors
from wdistill.training.data import Repeats, Split, check_leak, has_ids, repeats_of, split_of, without
from wdistill.training.labels import by_module, by_table, label, read_labels
from wdistill.training.networks import NETWORKS as SHAPES
from wdistill.training.opinions import NETWORKS, available, by_forests, by_networks, gold_folds
from wdistill.training.predicting import accuracy, classes_of, predict
from wdistill.training.randomness import begin, key
from wdistill.training.stage import StoppedError, Watch
from wdistill.training.vid import check_vid
from wdistill.training.work import Work, known_before, rows_that_weigh, threads
from wdistill.training.workers import crew, packed
from wdistill.watching import display

INPUTS = ".inputs"  # of Datasets, and of arrays for other processes, while a run goes on
Model = nn.Module | Callable[[], nn.Module]
Table = Mapping[str, Any] | str | Path | Sequence[str | Path]


@dataclass(frozen=True, eq=False)
class Report:
    """What `distill` returns: the outcome, and the trained students."""

    outcome: Outcome
    students: Mapping[str, nn.Module]  # by arm, with their final parameters, in eval mode

    @property
    def student(self) -> nn.Module:
        """The student of the first arm that is not a control: of the only arm, usually."""
        return self.students[first_of({name: arm.rule for name, arm in self.outcome.arms.items()})]

    def __str__(self) -> str:
        from rich.console import Console

        from wdistill.pages import terminal_table

        console = Console(width=110)
        with console.capture() as capture:
            console.print(terminal_table("", [self.outcome]))
        return capture.get()


def distill(
    teacher: Model | Table,
    student: Model,
    labeled: Any,
    validation: Any,
    unlabeled: Any,
    test: Any = None,
    *,
    rule: Any = None,
    recipe: Recipe | None = None,
    run: str | Path | None = None,
) -> Report:
    """Train teacher and student on the labeled rows, let the teacher label the unlabeled ones, weigh, train the student.

    `teacher`: a module, a function that makes one, or stored predictions: arrays by split, or files joined by row id.
    `student`: a module or a function that makes one. Neither is changed; the trained students are in the report.
    `labeled`, `validation`, `test`: pairs (inputs, labels), or Data. `unlabeled`: inputs; with labels where the truth is
    known, for the oracle and the report.
    `rule`: a rule, several as a list, or by name in a dict, each an arm of its own; None: those that the recipe names.
    An arm may have settings of its own: {"once": debiased, "refreshed": arm(debiased, refresh=1)}.
    `run`: a folder that keeps everything. Started again after any end, the same call goes on; None: nothing is kept.
    """
    with _running(rule, recipe, run) as this:
        return this.distill(teacher, student, labeled, validation, unlabeled, test)


def advise(
    teacher: Model | Table,
    student: Model,
    labeled: Any,
    validation: Any,
    unlabeled: Any,
    test: Any = None,
    *,
    rule: Any = best,
    recipe: Recipe | None = None,
    run: str | Path | None = None,
) -> Advice:
    """The verdict before the second stage: teacher, student and second opinions are trained, and asked.

    The arguments are those of `distill`, among whose arms must be `best`. With the same arguments and the same `run`,
    `distill` goes on from here.
    """
    need_learning("advise")
    with _running(rule, recipe, run) as this:
        return this.advise(teacher, student, labeled, validation, unlabeled, test)


@contextmanager
def _running(rule: Any, recipe: Recipe | None, run: str | Path | None) -> Iterator[_Distillation]:
    """A run in its folder, which is ours alone until the end; all that it needs from the process is put back then."""
    recipe = Recipe() if recipe is None else recipe
    if not isinstance(recipe, Recipe):
        raise ConfigError(
            "not a recipe",
            where="recipe",
            found=f"a {type(recipe).__name__}",
            expected="a wdistill.Recipe",
            remedy="write recipe=Recipe(epochs=100, rate=0.01), for example",
        )
    heard: list[str] = []
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        hear(heard)
        arms = arms_of(rule, recipe)
        rules: dict[Recipe, list[str]] = {}
        for arm in arms.values():
            rules.setdefault(arm.recipe(recipe), []).append(name_of(arm))
        for each, own in rules.items():
            check_recipe(replace(each, rule=tuple(dict.fromkeys(own))), beside=[name_of(arm) for arm in arms.values()])
        recipe = replace(recipe, rule=tuple(arms))
        folder = Path(run) if run is not None else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wdistill-")))
        _refuse_foreign(folder)
        stop = stack.enter_context(stopping())
        store.make_folder(folder, parents=True)
        stack.enter_context(store.owning(folder))
        stack.enter_context(threads(recipe.threads))
        stack.enter_context(torch.random.fork_rng(devices=[]))  # the caller's random numbers go on as if we had drawn none
        try:
            yield _Distillation(folder, recipe, arms, heard, stop, kept=run is not None)
        except StoppedError:
            if stop():
                stop.leave()
            raise


@dataclass(frozen=True, eq=False)
class _Ready:
    """What a run works on, read and checked."""

    splits: Mapping[str, Split]
    repeats: Repeats  # gold rows that stand elsewhere too
    teacher: nn.Module | None  # None where it is a table
    student: nn.Module
    tables: Mapping[str, NDArray[Any]] | None  # the teacher's predictions by split
    classes: int
    opinions: tuple[str, ...] = ()  # that can be had, of those that arms ask for

    @property
    def learning(self) -> Split:
        """The labeled rows that second opinions learn from: those that are no gold rows too."""
        return without(self.splits["labeled"], self.repeats.again)


class _Distillation:
    """A run while it lives."""

    def __init__(
        self, folder: Path, recipe: Recipe, arms: Mapping[str, Arm], heard: list[str], stop: Stop, *, kept: bool
    ) -> None:
        self.folder, self.recipe, self.arms, self.heard, self.stop, self.kept = folder, recipe, arms, heard, stop, kept
        self.ledger, self.writing = Ledger(folder), threading.Lock()
        self.device = device_for(recipe.device)

    def distill(self, *given: Any) -> Report:
        """All of it, or what is left."""
        ready = self._ready(*given)
        if not self._is_finished():
            self._remember_what_is_heard()
            with display() as say, crew(self.recipe.workers, self.stop, say) as do_all:
                ready = self._prepare(ready, do_all, Watch(self.stop, say))
                do_all([self._work(ready, name, ready.student, arm) for name, arm in self.arms.items()])
                self._remember()
            self._finish()
        if self.kept:
            self._tidy()
        return self._report(ready.student)

    def advise(self, *given: Any) -> Advice:
        """All but the arms, and the verdict."""
        chosen = next(((name, arm) for name, arm in self.arms.items() if opinions_in(arm.rule)), None)
        if chosen is None:
            raise ConfigError(
                "advice is about the arm best",
                where="rule",
                found=", ".join(self.arms),
                expected="best, alone or among others",
                remedy="write rule=best (--method best)",
            )
        ready = self._ready(*given)
        self._remember_what_is_heard()
        with display() as say, crew(self.recipe.workers, self.stop, say) as do_all:
            watch = Watch(self.stop, say)
            ready = self._prepare(ready, do_all, watch)
            case = known_before(self._work(ready, chosen[0], ready.student, chosen[1]), watch)
        found, rows = ready.repeats, len(ready.splits["validation"])
        findings = *learned_from(int(found.labeled.sum()), rows), *repeated(found.unlabeled, rows, "inputs")
        return advising.advise(case, (*findings, *doubled(found.same)))

    def _ready(self, teacher: Any, student: Model, labeled: Any, validation: Any, unlabeled: Any, test: Any) -> _Ready:
        """Everything read and checked, and the run begun."""
        given = {"labeled": labeled, "validation": validation, "unlabeled": unlabeled, "test": test}
        given = {name: each for name, each in given.items() if each is not None}
        splits, repeats = self._splits(given)
        named = {name: split for name, split in splits.items() if has_ids(given[name])}
        pupil = self._made(student, "student")
        master = None if _is_table(teacher) else self._made(teacher, "teacher")
        classes = self._classes(splits, master, pupil)
        tables = _read_tables(teacher, splits, named, classes, self.recipe.kind) if master is None else None
        self._check_rules(splits)
        for recipe in dict.fromkeys(arm.recipe(self.recipe) for arm in self.arms.values()):
            check_vid(recipe, pupil, master, splits["labeled"].inputs)
        self._begin(splits, master, pupil, tables, classes, (teacher, student))
        return _Ready(splits, repeats, master, pupil, tables, classes)

    # before training ------------------------------------------------------------------------------------------------

    def _splits(self, given: Mapping[str, Any]) -> tuple[dict[str, Split], Repeats]:
        needed, folder = ("labeled", "validation", "test"), self.folder / INPUTS
        spilled = self.recipe.workers > 1
        splits = {
            name: split_of(name, each, labels=name in needed, folder=folder, spilled=spilled) for name, each in given.items()
        }
        _check_kinds(splits)
        by_id = has_ids(given["labeled"]) and has_ids(given["validation"])
        found = repeats_of(splits)
        check_leak(splits["labeled"], splits["validation"], found, by_id=by_id)
        if found.unlabeled:
            checks.warn(f"{found.unlabeled} validation rows are also among the unlabeled rows: allowed, and worth knowing")
        if found.same is not None:
            checks.warn(f"{len(found.same) - len(np.unique(found.same))} validation rows repeat the inputs of another one")
        if found.tested:
            checks.warn(f"{found.tested} test rows are also among the labeled rows: test accuracies are too good")
        return {**splits, "validation": replace(splits["validation"], same=found.same)}, found

    def _made(self, given: Model, name: str) -> nn.Module:
        """A module of our own: made from the seed, or a copy of the caller's."""
        begin(key(self.recipe.seed, "initial", name), torch.device("cpu"))
        try:
            made = copy.deepcopy(given) if isinstance(given, nn.Module) else given() if callable(given) else given
        except TypeError as error:
            raise ConfigError(
                f"the {name} cannot be made",
                where=name,
                found=f"{type(error).__name__}: {error}",
                expected="a module, or a function without arguments that returns one",
                remedy=f"pass {name}=lambda: MyModule(…)",
            ) from error
        if not isinstance(made, nn.Module):
            raise ConfigError(
                f"not a {name}",
                where=name,
                found=f"a {type(made).__name__}",
                expected="a torch.nn.Module, or a function that makes one",
                remedy="pass the module itself",
            )
        others = [each for each, value in made.state_dict().items() if not isinstance(value, Tensor)]
        if others:
            raise ConfigError(
                f"the {name} has state that is no tensor, and cannot be saved",
                where=type(made).__name__,
                found=", ".join(others[:5]),
                expected="a state dict of tensors",
                remedy="register it as a buffer",
            )
        return made

    def _classes(self, splits: Mapping[str, Split], teacher: nn.Module | None, student: nn.Module) -> int:
        """The number of classes K, the same for both models, the labels and the recipe."""
        models = {"student": student} if teacher is None else {"teacher": teacher, "student": student}
        for name, model in models.items():
            if (name == "student" or self.recipe.teacher_epochs) and not any(p.requires_grad for p in model.parameters()):
                raise ConfigError(
                    f"the {name} has nothing to train",
                    where=type(model).__name__,
                    found="no parameter that requires a gradient",
                    expected="parameters to be trained",
                    remedy="call requires_grad_() on it"
                    + (", or set teacher_epochs=0 if it comes trained" if name == "teacher" else ""),
                )
        inputs = splits["labeled"].inputs
        widths = {name: classes_of(model, name, inputs, self.recipe.precision) for name, model in models.items()}
        if self.recipe.classes is not None:
            widths["recipe"] = self.recipe.classes
        k = checks.same_classes(widths)
        for name, split in splits.items():
            if split.labels is not None:
                checks.labels(split.labels.numpy(), k, f"{name} labels")
        return k

    def _check_rules(self, splits: Mapping[str, Split]) -> None:
        """Refuse before any training what a rule would refuse after it."""
        used = {name for arm in self.arms.values() for name in rules_in(arm.rule)}
        if "oracle" in used and splits["unlabeled"].labels is None:
            raise InputError(
                "the oracle needs the truth",
                where="unlabeled",
                found="inputs alone",
                expected="a pair (inputs, labels), of which only the oracle and the report look at the labels",
                remedy="pass the labels too, or leave the arm oracle out",
            )
        if self.recipe.workers > 1:
            for name, arm in self.arms.items():
                packed(arm.rule, name)
        if any(opinions_in(arm.rule) for arm in self.arms.values()):
            enough(len(splits["validation"]), "validation", "leave the arm best out")
        for name, arm in self.arms.items():
            recipe = arm.recipe(self.recipe)
            m = len(rows_that_weigh(len(splits["validation"]), recipe))
            if "debiased" in rules_in(arm.rule) and recipe.neighbors is not None and recipe.neighbors > m:
                raise ConfigError(
                    "more neighbours than there are rows",
                    where=f"{f'arm {name}' if 'neighbors' in arm.settings else 'recipe'}: neighbors",
                    found=str(recipe.neighbors),
                    expected=f"at most {m}, the number of validation rows that weigh",
                    remedy="leave it out for the paper's k = ceil(√m / 2)",
                )

    def _begin(
        self,
        splits: Mapping[str, Split],
        teacher: nn.Module | None,
        student: nn.Module,
        tables: Mapping[str, NDArray[Any]] | None,
        classes: int,
        given: tuple[Any, Any],
    ) -> None:
        """Begin a run, or see that the one in the folder is this one."""
        self.ledger.clean()
        models = {"student": student} if teacher is None else {"teacher": teacher, "student": student}
        identity = {
            "recipe": to_json(self.recipe),
            "data": {name: split.fingerprint() for name, split in splits.items()},
            "student": _model_identity(student, given[1], self.recipe.student_epochs),
            "teacher": _table_identity(tables)
            if teacher is None
            else _model_identity(teacher, given[0], self.recipe.teacher_epochs),
            "rules": {name: str(arm) for name, arm in self.arms.items()},
            "version": wdistill.__version__.rpartition(".")[0],
        }
        here = environment(str(self.device), self.recipe.threads)
        if self.ledger.state:
            self._compare(self.ledger.state, json.loads(json.dumps(identity)), here)
        else:
            store.check_space(self.folder, self._needed(splits, models, classes), "the run")
            state = {
                "run": 1,
                "identity": identity,
                "environment": here,
                "arms": list(self.arms),
                "rules": {name: name_of(arm) for name, arm in self.arms.items()},
                "settings": {name: arm.differing(self.recipe) for name, arm in self.arms.items()},
                "rows": {name: len(split) for name, split in splits.items()},
                "classes": classes,
                "warnings": list(self.heard),
            }
            initial = {
                f"initial/{name}.safetensors": tensors.to_bytes(tensors.parameters(model)) for name, model in models.items()
            }
            self.ledger.commit(state, initial)
        for name, model in models.items():
            file = f"initial/{name}.safetensors"
            tensors.load_parameters(model, tensors.from_bytes(self.ledger.read(file), file), name)

    def _needed(self, splits: Mapping[str, Split], models: Mapping[str, nn.Module], classes: int) -> int:
        """Bytes that the run will take at most: labels, and for every training two checkpoints and the results."""
        sizes = {name: sum(each.nbytes for each in model.state_dict().values()) for name, model in models.items()}
        trainings = sum(sizes.values()) + len(self.arms) * sizes["student"]
        labels = 4 * classes * sum(len(split) for split in splits.values())
        weights = 3 * 24 * len(splits["unlabeled"]) * len(self.arms)
        return int(labels + weights + 10 * trainings)  # two checkpoints of four copies each, and two results

    def _compare(self, state: Mapping[str, Any], identity: Mapping[str, Any], here: Mapping[str, Any]) -> None:
        """Refuse to go on with something else; warn where bits may differ."""
        then = state["identity"]
        found = changes(then["recipe"], identity["recipe"])
        for part in ("data", "student", "teacher", "version"):
            found += _differences(part, then[part], identity[part])
        if not found:  # the recipe's settings are part of its rules
            found = _differences("rule", then.get("rules", {}), identity["rules"])
        if found:
            raise ConfigError(
                "this folder holds a run of something else",
                where=str(self.folder),
                found="; ".join(found[:10]) + (f"; and {len(found) - 10} more" if len(found) > 10 else ""),
                expected="the recipe, data and models that the run was begun with",
                remedy="undo these changes to go on, or name another folder for a new run",
            )
        other = [name for name in here if name != "commit" and here[name] != state["environment"].get(name)]
        if other and not state.get("finished"):
            listed = ", ".join(f"{name} {state['environment'].get(name)} → {here[name]}" for name in other)
            checks.warn(f"the run goes on in another environment ({listed}): the same bits are not promised")

    # training -------------------------------------------------------------------------------------------------------

    def _work(self, ready: _Ready, name: str, model: nn.Module, arm: Arm | None = None, fold: int | None = None) -> Work:
        device, recipe = str(self.device), self.recipe if arm is None else arm.recipe(self.recipe)
        rule, read = (None, None) if arm is None else (arm.rule, ready.teacher if recipe.vid else None)
        own, splits = copy.deepcopy(model), ready.splits
        if fold is not None:
            splits = {**splits, "labeled": ready.learning}
        return Work(self.folder, name, rule, own, splits, ready.classes, recipe, device, read, fold, ready.opinions)

    def _prepare(self, ready: _Ready, do_all: Callable[[Sequence[Work]], None], watch: Watch) -> _Ready:
        """All that comes before the arms: teacher and student, labels, second opinions."""
        splits, teacher, student = ready.splits, ready.teacher, ready.student
        asked = [name for name in OPINIONS if any(name in opinions_in(arm.rule) for arm in self.arms.values())]
        heard = available(asked, self.recipe, splits["labeled"].inputs, table=teacher is None) if asked else []
        ready = replace(ready, opinions=tuple(heard))
        pretrained = {"teacher": teacher, "student": student}
        do_all([self._work(ready, name, model) for name, model in pretrained.items() if model is not None])
        self._remember()
        started = time.perf_counter()
        self._label(splits, teacher, ready.tables, watch)
        if "accuracies" not in self.ledger.state:
            spent = {"labels": time.perf_counter() - started}
            self._remember(seconds=spent, accuracies=self._accuracies(splits, student))
        models = {"second": student, "retrained": teacher}
        initial = {name: self._initial(model, NETWORKS[name]) for name in ready.opinions if (model := models.get(name))}
        folds = np.unique(gold_folds(splits["validation"], self.recipe)).tolist()
        do_all([self._work(ready, name, model, fold=fold) for name, model in initial.items() for fold in folds])
        self._ask(ready.opinions, {**splits, "labeled": ready.learning}, initial, ready.classes, watch)
        return ready

    def _initial(self, model: nn.Module, name: str) -> nn.Module:
        """A copy as the run began with it."""
        copied, file = copy.deepcopy(model), f"initial/{name}.safetensors"
        tensors.load_parameters(copied, tensors.from_bytes(self.ledger.read(file), file), name)
        return copied

    def _ask(
        self,
        opinions: Sequence[str],
        splits: Mapping[str, Split],
        networks: Mapping[str, nn.Module],
        classes: int,
        watch: Watch,
    ) -> None:
        """Let every second opinion read gold and unlabeled rows once."""
        folds, started = gold_folds(splits["validation"], self.recipe), time.perf_counter()
        gold, rest = splits["validation"], splits["unlabeled"]
        read = {"validation": gold, "unlabeled": rest}
        for name in opinions:
            if name not in networks:
                own = by_forests(splits["labeled"], gold, rest, folds, classes, self.recipe.seed)
                label(self.folder / "opinions" / name, read, own, watch, name)
                continue
            models = []
            for fold in np.unique(folds):
                models.append(copy.deepcopy(networks[name]).to(self.device))
                found = Ledger(self.folder / "opinions" / f"{name}-{fold}").read("parameters.safetensors")
                tensors.load_parameters(models[-1], tensors.from_bytes(found, name), name)
            label(
                self.folder / "opinions" / name, read, by_networks(models, folds, self.recipe.precision, watch), watch, name
            )
        if opinions and "opinions" not in self.ledger.state.get("seconds", {}):
            seconds = {**self.ledger.state.get("seconds", {}), "opinions": time.perf_counter() - started}
            self._remember(seconds=seconds)

    def _label(
        self,
        splits: Mapping[str, Split],
        teacher: nn.Module | None,
        tables: Mapping[str, NDArray[Any]] | None,
        watch: Watch,
    ) -> None:
        """Line 2 of Algorithm 1: the teacher reads every split once."""
        if tables is not None:
            known = {name: split for name, split in splits.items() if name in tables}
            label(self.folder / "labels", known, by_table(tables, self.recipe.kind), watch)
        elif teacher is not None:
            parameters = Ledger(self.folder / "teacher").read("parameters.safetensors")
            tensors.load_parameters(teacher, tensors.from_bytes(parameters, "teacher"), "teacher")
            label(self.folder / "labels", splits, by_module(teacher.to(self.device), self.recipe.precision, watch), watch)

    def _accuracies(self, splits: Mapping[str, Split], student: nn.Module) -> dict[str, dict[str, float]]:
        """Of the teacher on all splits with known truth, and of the student before the arms."""
        teacher: dict[str, float] = {}
        for name, split in splits.items():
            logits = read_labels(self.folder / "labels", name)
            if logits is not None and split.labels is not None:
                teacher[name] = accuracy(logits, split.labels)
        epochs = read_run(self.folder).student.epochs
        if epochs:
            last = {"validation": epochs[-1].validation, "test": epochs[-1].test}
            return {"teacher": teacher, "student": {name: value for name, value in last.items() if value is not None}}
        model, measured = copy.deepcopy(student).to(self.device), {}  # it came trained: nobody has measured it yet
        for name in ("validation", "test"):
            if name in splits and (labels := splits[name].labels) is not None:
                measured[name] = accuracy(predict(model, splits[name].inputs, self.recipe.precision), labels)
        return {"teacher": teacher, "student": measured}

    def _remember(self, **more: Any) -> None:
        """Commit what has become known to the run's own ledger, if anything has."""
        with self.writing:
            known = self.ledger.state.get("warnings", [])
            state = {**self.ledger.state, **more, "warnings": [*known, *(text for text in self.heard if text not in known)]}
            if state != self.ledger.state:
                self.ledger.commit(state)

    def _remember_what_is_heard(self) -> None:
        """From now on a warning is committed at once: after a kill, what gave rise to it may not be done again."""
        show = warnings.showwarning

        def remembered(*warning: Any, **more: Any) -> None:
            show(*warning, **more)
            with suppress(StorageError):  # the next commit will say it louder
                self._remember()

        warnings.showwarning = remembered

    def _is_finished(self) -> bool:
        """Whether nothing is left to do; an arm whose files were damaged goes on from the generation before."""
        return bool(self.ledger.state.get("finished")) and all(self._arm(name).state.get("finished") for name in self.arms)

    def _arm(self, name: str) -> Ledger:
        return Ledger(self.folder / "arms" / folder_of(name))

    def _finish(self) -> None:
        if (self.folder / "report.html").exists():
            store.remove(self.folder / "report.html")  # drawn before the end
        self.ledger.commit({**self.ledger.state, "finished": True}, {"metrics.jsonl": metrics_bytes(self.folder)})

    def _tidy(self) -> None:
        """Of a finished run: draw the page where there is none, and remove the inputs."""
        from wdistill.pages import page

        if not (self.folder / "report.html").exists():
            title = f"wdistill: {self.folder.name}"
            store.write_bytes(self.folder / "report.html", page({"": [read_run(self.folder)]}, title).encode())
        if (self.folder / INPUTS).is_dir():
            store.remove(self.folder / INPUTS)

    def _report(self, student: nn.Module) -> Report:
        students: dict[str, nn.Module] = {}
        for name in self.arms:
            found = tensors.from_bytes(self._arm(name).read("parameters.safetensors"), name)
            students[name] = copy.deepcopy(student).eval()
            tensors.load_parameters(students[name], found, name)
        return Report(read_run(self.folder), students)


def device_for(wanted: str) -> torch.device:
    """auto: CUDA or Apple's MPS where there is one, else the CPU."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if wanted == "auto":
        return torch.device(next(name for name, found in there.items() if found))
    if not there[wanted]:
        raise ConfigError(
            "no such device here",
            where="recipe: device",
            found=wanted,
            expected=" or ".join(name for name, found in there.items() if found),
            remedy="leave it out to take the fastest there is",
        )
    return torch.device(wanted)


def _refuse_foreign(folder: Path) -> None:
    """A folder that holds something else is not ours to write into."""
    ours = ("lock", INPUTS, "initial", ".*.tmp", "generation-*.json")
    foreign = (
        [each.name for each in folder.iterdir() if not any(each.match(name) for name in ours)] if folder.is_dir() else []
    )
    begun = folder.is_dir() and any(folder.glob("generation-*.json"))
    if (foreign and not begun) or (folder.exists() and not folder.is_dir()):
        raise ConfigError(
            "the folder of the run holds something else",
            where=str(folder),
            found=", ".join(sorted(foreign)[:5]) or "a file",
            expected="a new or empty folder, or a run to go on with",
            remedy="name another folder; nothing was touched",
        )


def _check_kinds(splits: Mapping[str, Split]) -> None:
    """Refuse splits whose rows have other shapes, or other types than floating numbers of any size."""
    kinds: dict[str, tuple[tuple[int, ...], str]] = {}
    for name, split in splits.items():
        (row,) = split.inputs.batches([torch.zeros(1, dtype=torch.int64)])
        kinds[name] = tuple(row.shape[1:]), "floating" if row.is_floating_point() else str(row.dtype).removeprefix("torch.")
    if len(set(kinds.values())) > 1:
        raise InputError(
            "the splits have rows of different kinds",
            where="inputs",
            found="; ".join(f"{name}: {shape} of {dtype} numbers" for name, (shape, dtype) in kinds.items()),
            expected="rows of one shape and type in all splits",
            remedy="prepare all inputs in the same way",
        )


def _is_table(teacher: Any) -> bool:
    several = isinstance(teacher, Sequence) and bool(teacher) and all(isinstance(each, str | Path) for each in teacher)
    return isinstance(teacher, Mapping | str | Path) or several


def _read_tables(
    teacher: Any, splits: Mapping[str, Split], named: Mapping[str, Split], classes: int, kind: str
) -> dict[str, NDArray[Any]]:
    """Stored predictions (n, K) by split, in the order of its rows; files know the rows of `named` splits, by their ids."""
    tables = dict(teacher) if isinstance(teacher, Mapping) else _joined(teacher, named)
    for name in ("validation", "unlabeled"):
        if name not in tables:
            raise InputError(
                "the teacher's predictions are missing",
                where=f"teacher: {name}",
                found=", ".join(tables) or "nothing",
                expected="predictions on validation and unlabeled rows",
                remedy="add them",
            )
    found: dict[str, NDArray[Any]] = {}
    for name, values in tables.items():
        if name not in splits:
            raise InputError("no such split", where=f"teacher: {name}", found=name, expected=", ".join(splits))
        array = values.detach().cpu().numpy() if isinstance(values, Tensor) else values
        where = f"teacher: {name}"
        found[name] = checks.matrix(array, where)
        checks.same_length({where: len(found[name]), f"{name} rows": len(splits[name])})
        checks.same_classes({where: found[name].shape[1], "student": classes})
        from wdistill.confidence import scan

        scan(found[name], kind, name=where)  # type: ignore[arg-type]
    return found


def _joined(teacher: Any, splits: Mapping[str, Split]) -> dict[str, NDArray[Any]]:
    """Predictions of every row, found by its id in one or more files."""
    from wdistill.readers import open_tables

    paths = [str(teacher)] if isinstance(teacher, str | Path) else [str(each) for each in teacher]
    for name in ("validation", "unlabeled"):
        if name not in splits:
            raise InputError(
                "predictions in a file are joined by id, and these rows have none",
                where=name,
                found="inputs and labels alone",
                expected="ids, the same as in the file",
                remedy=f"pass {name}=Data(inputs, labels, ids), or the predictions as arrays in the order of the rows",
            )
    rows: dict[Any, NDArray[Any]] = {}
    for table in open_tables(paths, option="teacher"):
        for chunk in table.chunks(matrices=["teacher"]):
            for name, values in zip(chunk.ids.to_pylist(), chunk.columns["teacher"], strict=True):
                if name in rows:
                    raise InputError("an id stands twice", where="teacher", found=repr(name), expected="every id once")
                rows[name] = values
    found: dict[str, NDArray[Any]] = {}
    for name, split in splits.items():
        missing = [each for each in split.ids.tolist() if each not in rows]
        if missing and name in ("validation", "unlabeled"):
            raise FileError(
                "the teacher's predictions lack some rows",
                where=f"teacher: {', '.join(paths)}",
                found=f"{len(missing)} of {len(split)} {name} ids are not in it, first {', '.join(map(repr, missing[:5]))}",
                expected="a prediction for every row, by id",
                remedy="add them, or leave those rows out of the split; ids must have the same type on both sides",
            )
        if not missing:
            found[name] = np.stack([rows[each] for each in split.ids.tolist()])
    return found


def _model_identity(model: nn.Module, given: Any, epochs: int) -> dict[str, Any]:
    """What tells a module from another: its layers, its parameters' shapes, and their values where it comes trained."""
    state = model.state_dict()
    shapes = json.dumps([[name, list(each.shape), str(each.dtype)] for name, each in state.items()])
    reference = {kind: name for name, kind in SHAPES.items()}.get(type(model))
    found: dict[str, Any] = {"type": type(model).__name__, "shapes": store.digest(shapes.encode())}
    found |= {"layers": store.digest(re.sub(r"0x[0-9a-f]+", "", repr(model)).encode())}  # addresses change by themselves
    found |= {"parameters": sum(each.numel() for each in model.parameters())}
    found |= {"network": reference or getattr(given, "source", None)}
    found |= {"arguments": dict(getattr(model, "arguments", {})) if reference else {}}
    return found | ({"values": store.digest(tensors.to_bytes(state))} if epochs == 0 else {})


def _table_identity(tables: Mapping[str, NDArray[Any]] | None) -> dict[str, Any]:
    digests = {name: store.digest(np.ascontiguousarray(values).tobytes()) for name, values in (tables or {}).items()}
    return {"table": digests}


def _differences(part: str, then: Any, now: Any) -> list[str]:
    """Leaves that differ, as lines."""
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        names = [*then, *(name for name in now if name not in then)]
        return [line for name in names for line in _differences(f"{part} {name}", then.get(name), now.get(name))]
    return [] if then == now else [f"{part}: {_shown(then)} → {_shown(now)}"]


def _shown(value: Any) -> str:
    """In a message; of a digest, enough to tell it from another."""
    return value[:12] if isinstance(value, str) and len(value) == 64 and " " not in value else str(value)
