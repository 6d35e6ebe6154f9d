"""What the manifests of a run say: the shape of every state, looked at once, where a manifest is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

from wdistill.core.errors import ConfigError
from wdistill.core.settings import from_json, settings_of
from wdistill.core.shapes import fault_of
from wdistill.runs.judgement import JudgedStudent, PoolGain
from wdistill.runs.outcome import Epoch, Refresh
from wdistill.runs.recipe import Recipe
from wdistill.weights.diagnostics import BINS

Words = str | int | float | bool | None


class ManifestShape(TypedDict):
    """A manifest: its number, the state of its owner, and its files as (size, SHA-256)."""

    number: int
    state: dict[str, Any]
    files: dict[str, tuple[int, str]]


class RecipeShape(TypedDict):
    """Settings that every run has had; the others have defaults."""

    teacher_epochs: int
    student_epochs: int
    epochs: int


class InputsShape(TypedDict):
    """The fingerprint of the rows of a split."""

    shape: NotRequired[list[int]]
    dtype: NotRequired[str]
    columns: NotRequired[dict[str, Any]]


class TeacherShape(TypedDict):
    """A module, or stored predictions by split."""

    table: NotRequired[dict[str, Any]]
    network: NotRequired[str | None]
    arguments: NotRequired[dict[str, Any]]
    type: NotRequired[str]


class StudentShape(TypedDict):
    """A module."""

    network: str | None
    arguments: dict[str, Any]
    type: str


class IdentityShape(TypedDict):
    """What a run was begun with."""

    recipe: RecipeShape
    data: dict[str, InputsShape]
    teacher: TeacherShape
    student: StudentShape
    version: str
    rules: NotRequired[dict[str, str]]


class JudgementShape(TypedDict):
    """The final students, judged."""

    students: NotRequired[dict[str, JudgedStudent]]
    pool: NotRequired[list[PoolGain]]


class RunShape(TypedDict):
    """The state of a run."""

    run: int
    identity: IdentityShape
    environment: dict[str, Words]
    arms: list[str]
    rows: dict[str, int]
    classes: int
    rules: NotRequired[dict[str, str]]  # missing in older runs, as are those below
    settings: NotRequired[dict[str, dict[str, Any]]]
    parts: NotRequired[int]
    warnings: NotRequired[list[str]]
    seconds: NotRequired[dict[str, float]]
    accuracies: NotRequired[dict[str, dict[str, float]]]
    judged: NotRequired[JudgementShape]
    class_names: NotRequired[list[str]]
    columns: NotRequired[dict[str, Any]]
    finished: NotRequired[bool]


@dataclass(frozen=True)
class TrainingShape:
    """The state of a training."""

    epoch: int
    step: int
    loss: float
    spent: float
    skipped: int
    scale: dict[str, Any] | None
    epochs: list[Epoch]
    refreshes: list[Refresh]
    seconds: dict[str, float]
    why: str = ""  # missing in older runs
    gold: bool = False
    checkpoint: str = ""
    finished: bool = False


class OtherShape(TypedDict):
    """The state of stored predictions."""

    finished: NotRequired[bool]


def fault_of_manifest(manifest: Any) -> str:
    """What is wrong with a manifest, in words; "" where everything can be read from it."""
    if fault := fault_of(manifest, ManifestShape):
        return fault
    state = manifest["state"]
    if {"run", "identity", "arms"} & {*state}:
        return fault_of(state, RunShape, "state") or _fault_of_run(state)
    if {"epoch", "epochs", "refreshes"} & {*state}:
        return fault_of(state, TrainingShape, "state") or _fault_of_training(state)
    return fault_of(state, OtherShape, "state")


def _fault_of_run(state: Mapping[str, Any]) -> str:
    arms, recipe = state["arms"], state["identity"]["recipe"]
    if not arms or len({*arms}) < len(arms):
        return "state.arms: none, or some twice"
    if fault := fault_of(recipe.get("rule", []), list[str], "state.identity.recipe.rule"):
        return fault  # in Python arms may have names that a recipe in a file may not
    known = {name: value for name, value in recipe.items() if name in settings_of(Recipe) and name != "rule"}
    try:
        from_json(Recipe, known, "state.identity.recipe")
    except ConfigError as error:
        return str(error).partition("\n")[0]
    return "" if state["classes"] > 1 and min(state["rows"].values(), default=1) >= 0 else "state: too few rows or classes"


def _fault_of_training(state: Mapping[str, Any]) -> str:
    histograms = [
        each[name] for each in state["refreshes"] for name in ("weights", "right", "wrong") if each[name] is not None
    ]
    return "" if all(map(_counts_weights, histograms)) else "state.refreshes: no histogram of weights"


def _counts_weights(histogram: Mapping[str, Any]) -> bool:
    """Whether the numbers of a histogram can be counts of weights."""
    counts = histogram.get("counts", ())
    least = min([*counts, *(histogram.get(name, 0) for name in ("ones", "total", "squares"))])
    return len(counts) == BINS and least >= 0
