"""A student as a torch.export program, which needs no code of its own; checked to predict as the student does."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from functools import wraps
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.export import save as write_program

from wdistill.core.errors import wrong_shape
from wdistill.training.batch import Batch, by_name, from_names, logits_of, rows_in


class _LogitsAlone(nn.Module):
    """A student that returns only its logits; it takes what the student takes, under the same names."""

    def __init__(self, student: nn.Module) -> None:
        super().__init__()
        self.student = student

        @wraps(student.forward)  # torch.export looks at the signature
        def forward(*inputs: Tensor, **named: Tensor) -> Any:
            return logits_of(student(*inputs, **named))

        self.forward = forward


def _output(student: nn.Module, rows: Batch) -> Any:
    with torch.no_grad():
        return student(rows) if isinstance(rows, Tensor) else student(**rows)


def two_rows(example: Batch) -> Batch:
    """An example twice: torch.export would treat a single row as a fixed size."""
    rows: Batch = for_each(lambda values: torch.cat([values[:1].detach().cpu().contiguous()] * 2), example)
    return rows


def for_each(function: Callable[[Tensor], Any], rows: Batch) -> Any:
    """A function of the inputs, or of those of each name."""
    return from_names({name: function(values) for name, values in by_name(rows).items()})


def logits_from(student: nn.Module, rows: Batch) -> Tensor:
    """(b, …) → (b, K)."""
    logits = logits_of(_output(student, rows))
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != rows_in(rows):
        found = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        expected, remedy = f"a tensor ({rows_in(rows)}, classes)", "wrap it in a module that returns only the logits"
        raise wrong_shape("the student does not return logits", "student", found, expected, remedy)
    return logits


@dataclass(frozen=True, eq=False)
class Program:
    """The exported program and the bytes that it is stored as."""

    exported: ExportedProgram
    content: bytes


def torch_program(student: nn.Module, rows: Batch, logits: Tensor) -> Program | str:
    """The program, checked, or else the reason why there is none: an export without it is still complete."""
    module = student if isinstance(_output(student, rows), Tensor) else _LogitsAlone(student)
    any_number = {0: torch.export.Dim("batch", min=1)}
    try:
        with quiet():
            if isinstance(rows, Tensor):
                exported = torch.export.export(module, (rows,), dynamic_shapes=(any_number,))
            else:
                exported = torch.export.export(module, (), rows, dynamic_shapes=dict.fromkeys(rows, any_number))
            buffer = io.BytesIO()
            write_program(exported, buffer)
            loaded = torch.export.load(io.BytesIO(buffer.getvalue())).module()
        for count in (1, 2):
            predicted = logits_from(loaded, for_each(itemgetter(slice(count)), rows))
            if not torch.allclose(predicted, logits[:count], rtol=1e-5, atol=1e-6, equal_nan=True):
                worst = float((predicted - logits[:count]).abs().max())
                return f"the exported program predicts otherwise, by up to {worst:.2g}"
    except Exception as error:
        return f"the student cannot be exported ({first_line(error)})"
    return Program(exported, buffer.getvalue())


def first_line(error: Exception) -> str:
    """Of its message, after its type: torch's go on with whole graphs."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


@contextmanager
def quiet() -> Iterator[None]:
    """Silence torch.export, which writes warnings, logs and whole graphs: what matters is in the error it raises."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
