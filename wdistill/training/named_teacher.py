"""The teacher of `wdistill label`, as a user names it: a function of a batch, a module of PyTorch, or what makes either.

PyTorch is imported only where the name leads to a module.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from wdistill.core import store
from wdistill.core.errors import bad_value, wrong_type
from wdistill.core.named import named_object
from wdistill.core.settings import from_json
from wdistill.tables.label_options import LabelOptions, check_label_options
from wdistill.tables.labeler import Labeler, Predict, Teacher, Values

if TYPE_CHECKING:
    from torch import nn

EXPECTED = (
    "package.module:name of a torch.nn.Module, of a function of one argument (a batch of inputs), or of a function without "
    "arguments that returns one of these"
)


def labeler(teacher: str | nn.Module | Predict, **options: Any) -> Labeler:
    """A function from arrow batches of ids and inputs to ids and a teacher's predictions.

    `teacher`: a name, as `wdistill label` takes it, a module, or a function of a batch. `options`: those of `wdistill
    label`, such as inputs=["text"], kind="logits", top_k=10.
    """
    given = dict(options)
    if isinstance(given.get("inputs"), str):
        given["inputs"] = [given["inputs"]]
    chosen = from_json(LabelOptions, given, "options")
    check_label_options(chosen)
    if isinstance(teacher, str):
        return Labeler(load_teacher(teacher), chosen)
    if _is_module(teacher):
        return Labeler(Teacher(type(teacher).__name__, _by_module(teacher.eval()), _digest(teacher)), chosen)
    if not callable(teacher):
        raise wrong_type("not a teacher", "teacher", teacher, EXPECTED, "give a name, a module or a function of a batch")
    return Labeler(Teacher(getattr(teacher, "__name__", type(teacher).__name__), teacher, ""), chosen)


def load_teacher(spec: str) -> Teacher:
    """The teacher of that name, ready to predict."""
    module_name, _, name = spec.partition(":")
    if not name or "=" in name:
        remedy = "name a function that builds the teacher and loads its parameters; it is called once"
        raise bad_value("not the name of a teacher", "--teacher", repr(spec), EXPECTED, remedy)
    named = named_object(spec, module_name, name, EXPECTED)
    made = _made(spec, named) if _is_factory(named) else named
    if _is_module(made):
        return Teacher(spec, _by_module(made.eval()), _digest(made))
    if not callable(made):
        raise bad_value("not a teacher", spec, f"a {type(made).__name__}", EXPECTED, "return a module, or a function")
    return Teacher(spec, made, _digest_of_code(named))


def _is_module(value: object) -> TypeGuard[nn.Module]:
    """Whether something is a module; if it is, torch has been imported."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def _is_factory(named: Any) -> bool:
    """Whether it is to be called without arguments first."""
    if _is_module(named) or not callable(named):
        return False
    try:
        parameters = inspect.signature(named).parameters.values()
    except (ValueError, TypeError):  # of compiled code
        return False
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return not any(each.default is each.empty and each.kind not in kinds for each in parameters)


def _made(spec: str, factory: Any) -> Any:
    try:
        return factory()
    except Exception as error:
        found, remedy = f"{type(error).__name__}: {error}", "fix the function; calling it alone shows where it fails"
        raise bad_value("the function that makes the teacher fails", spec, found, EXPECTED, remedy) from error


def _by_module(module: nn.Module) -> Predict:
    """A module in eval mode as a function of arrays."""
    import torch

    from wdistill.training.batch import by_name, from_names
    from wdistill.training.predict import device_of, forward

    def predict(inputs: Values | Mapping[str, Values]) -> Any:
        tensors: dict[str, torch.Tensor] = {}
        for name, values in by_name(inputs).items():
            if isinstance(values, list):
                raise TypeError("a module reads numbers, and these are texts: name a function that makes numbers of them")
            tensors[name] = torch.from_numpy(values)
        with torch.no_grad():
            return forward(module, from_names(tensors), device_of(module), "float32")

    return predict


def _digest(module: nn.Module) -> str:
    """Of all parameters and buffers."""
    import torch

    whole = hashlib.sha256()
    for name, values in module.state_dict().items():
        whole.update(f"{name} {values.dtype} {tuple(values.shape)}\n".encode())
        whole.update(values.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return whole.hexdigest()


def _digest_of_code(function: Any) -> str:
    """Of the file that defines a function; nothing where there is none."""
    try:
        path = inspect.getsourcefile(inspect.unwrap(function))
    except TypeError:  # an object that can be called
        path = inspect.getsourcefile(type(function))
    return store.digest_file(Path(path)) if path and Path(path).is_file() else ""
