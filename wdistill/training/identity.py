"""The identity of a run: recipe, data, models and rules. A folder that holds another run is an error."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

import wdistill
from wdistill.core import checks, store
from wdistill.core.environment import environment
from wdistill.core.errors import bad_value
from wdistill.core.settings import to_json
from wdistill.runs.recipe import changes
from wdistill.training import tensors
from wdistill.training.data import Split
from wdistill.training.labels import FILED
from wdistill.training.logits import is_held
from wdistill.training.models.networks import NETWORKS
from wdistill.training.ranks import ranks
from wdistill.training.run import Run


def begin_or_resume(
    run: Run,
    splits: Mapping[str, Split],
    models: Mapping[str, nn.Module],
    passed: Mapping[str, Any],
    tables: Mapping[str, NDArray[Any]] | None,
    classes: int,
) -> None:
    """Begin a run, or check that the folder holds the same one; then load its initial parameters into the models.

    `models` are teacher (unless it is a table) and student, `passed` what the caller passed for each.
    """
    run.store.clean()
    recipe = run.recipe
    epochs = {"teacher": recipe.teacher_epochs, "student": recipe.student_epochs}
    identity = {
        "recipe": to_json(recipe),
        "data": {name: split.fingerprint() for name, split in splits.items()},
        "teacher": {"table": {name: _digest(values) for name, values in (tables or {}).items()}},
        **{name: _model_identity(model, passed[name], epochs[name]) for name, model in models.items()},
        "rules": {name: str(arm) for name, arm in run.arms.items()},
        "version": wdistill.__version__.rpartition(".")[0],
    }
    here = environment(str(run.device), recipe.threads)
    if run.store.state:
        _compare(run, json.loads(json.dumps(identity)), here)
    else:
        store.check_space(run.folder, _bytes_needed(run, splits, models, classes), "the run")
        state = {
            "run": 1,
            "identity": identity,
            "environment": here,
            "arms": list(run.arms),
            "rules": {name: arm.rule.name for name, arm in run.arms.items()},
            "settings": {name: arm.differing(recipe) for name, arm in run.arms.items()},
            "rows": {name: len(split) for name, split in splits.items()},
            "classes": classes,
            "parts": recipe.micro_batches or (ranks().size if recipe.workers == 1 else 1),
            "warnings": list(run.messages),
        }
        parameters = {name: tensors.to_bytes(tensors.parameters(model)) for name, model in models.items()}
        run.store.commit(state, {f"initial/{name}.safetensors": content for name, content in parameters.items()})
    for name, model in models.items():
        file = f"initial/{name}.safetensors"
        tensors.load_parameters(model, tensors.from_bytes(run.store.read(file), file), name)


def _bytes_needed(run: Run, splits: Mapping[str, Split], models: Mapping[str, nn.Module], classes: int) -> int:
    """An upper bound on the bytes that the run writes: labels, and for every training two checkpoints and the results."""
    sizes = {name: sum(tensor.nbytes for tensor in model.state_dict().values()) for name, model in models.items()}
    trainings = sum(sizes.values()) + len(run.arms) * sizes["student"]
    twice = (split for name, split in splits.items() if name in FILED and not is_held(len(split), classes))
    labels = 4 * classes * sum(map(len, (*splits.values(), *twice)))
    weights = 3 * 24 * len(splits["unlabeled"]) * len(run.arms)
    return int(labels + weights + 10 * trainings)  # two checkpoints of four copies each, and two results


def _compare(run: Run, identity: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Raise where the folder holds another run; warn where results may differ in their bits."""
    state = run.store.state
    then = state["identity"]
    differences = changes(then["recipe"], identity["recipe"])
    for part in ("data", "student", "teacher", "version"):
        differences += _differences(part, then[part], identity[part])
    if not differences:  # the recipe's settings are part of its rules
        differences = _differences("rule", then.get("rules", {}), identity["rules"])
    if differences:
        raise bad_value(
            "this folder holds a run of something else",
            str(run.folder),
            "; ".join(differences[:10]) + (f"; and {len(differences) - 10} more" if len(differences) > 10 else ""),
            "the recipe, data and models that the run was begun with",
            "undo these changes to resume it, or name another folder for a new run",
        )
    other = [name for name in here if name != "commit" and here[name] != state["environment"].get(name)]
    if other and not state.get("finished"):
        listed = ", ".join(f"{name} {state['environment'].get(name)} → {here[name]}" for name in other)
        checks.warn(f"the run resumes in another environment ({listed}): the same bits are not promised")


def _model_identity(model: nn.Module, passed: Any, epochs: int) -> dict[str, Any]:
    """The identity of a module: its layers, its parameters' shapes, and their values where it comes trained."""
    state = model.state_dict()
    shapes = json.dumps([[name, list(tensor.shape), str(tensor.dtype)] for name, tensor in state.items()])
    reference = {kind: name for name, kind in NETWORKS.items()}.get(type(model))
    return {
        "type": type(model).__name__,
        "shapes": store.digest(shapes.encode()),
        "layers": store.digest(re.sub(r"0x[0-9a-f]+", "", repr(model)).encode()),  # without memory addresses
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "network": reference or getattr(passed, "source", None),
        "arguments": dict(getattr(model, "arguments", {})) if reference else {},
        **({"values": store.digest(tensors.to_bytes(state))} if epochs == 0 else {}),
    }


def _digest(values: NDArray[Any]) -> str:
    return store.digest(np.ascontiguousarray(values).data)


def _differences(part: str, then: Any, now: Any) -> list[str]:
    """Leaves that differ, as lines."""
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        names = [*then, *(name for name in now if name not in then)]
        return [line for name in names for line in _differences(f"{part} {name}", then.get(name), now.get(name))]
    return [] if then == now else [f"{part}: {_shown(then)} → {_shown(now)}"]


def _shown(value: Any) -> str:
    """A value in a message; digests are shortened."""
    return value[:12] if isinstance(value, str) and len(value) == 64 and " " not in value else str(value)
