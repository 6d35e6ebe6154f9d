"""A student as an ONNX program, for runtimes without PyTorch; kept only where onnxruntime predicts as the student does."""

from __future__ import annotations

import io
from collections.abc import Iterable
from contextlib import redirect_stdout
from importlib.util import find_spec
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from wdistill.core.errors import ConfigError, bad_value
from wdistill.training.batch import Batch, by_name
from wdistill.training.program import Program, first_line, for_each, logits_from, quiet

LIBRARIES = ("onnx", "onnxscript", "onnxruntime")
LARGEST = 1e-5  # difference of two logits, as a part of the largest logit, or of 1
INSTEAD = "leave --onnx out (onnx=False), and use load_student, or student.pt2, which runs in PyTorch without code of ours"


def need_onnx() -> None:
    """Refuse what these libraries are needed for, where one is missing."""
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if missing:
        found, expected = f"no module {' and '.join(missing)}", f"{', '.join(LIBRARIES)}, which write and check the program"
        raise bad_value("ONNX is not installed", "onnx", found, expected, "pip install 'wdistill[onnx]'")


def onnx_program(program: Program | str, student: nn.Module, rows: Batch) -> bytes:
    """The ONNX program of a student, from its torch.export program: any number of rows in, `logits` out.

    An error where there is none, or where it predicts otherwise on `rows`, on one of them, or on others made from them.
    """
    if isinstance(program, str):
        raise _none(program)
    try:
        with quiet():
            content = _converted(program.exported, list(by_name(rows)))
            session = _session(content)
    except Exception as error:
        raise _none(first_line(error)) from None
    for sample in (rows, for_each(itemgetter(slice(1)), rows), for_each(_others, rows)):
        wanted = logits_from(student, sample)
        try:
            found = torch.from_numpy(session.run(["logits"], _fed(session, sample))[0])
        except Exception as error:
            raise _none(f"onnxruntime cannot run it: {first_line(error)}") from None
        worst = float((found - wanted).abs().max()) if found.shape == wanted.shape else float("inf")
        if not worst <= LARGEST * max(1.0, float(wanted.abs().max())):
            raise _none(f"onnxruntime predicts otherwise, by up to {worst:.2g}")
    return content


def _converted(exported: ExportedProgram, names: list[str]) -> bytes:
    """The bytes of the ONNX program, without the paths and code that torch notes beside every operation."""
    inputs = None if names == [""] else names
    with redirect_stdout(io.StringIO()):
        converted: Any = torch.onnx.export(exported, input_names=inputs, output_names=["logits"], dynamo=True, verbose=False)
    model = converted.model_proto
    for each in _noted(model):
        del each.metadata_props[:]
        each.doc_string = ""
    values = (*model.graph.input, *model.graph.output, *model.graph.value_info)
    symbol = values[0].type.tensor_type.shape.dim[0].dim_param
    for dimension in (dimension for value in values for dimension in value.type.tensor_type.shape.dim):
        if dimension.dim_param:
            dimension.dim_param = dimension.dim_param.replace(symbol, "batch")
    return bytes(model.SerializeToString(deterministic=True))


def _noted(model: Any) -> Iterable[Any]:
    """All parts of a model that carry notes."""
    graph = model.graph
    yield from (model, graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer)
    for function in model.functions:
        yield from (function, *function.node, *function.value_info)


def _session(content: bytes) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])


def _fed(session: Any, rows: Batch) -> dict[str, Any]:
    """The inputs of a program: by name, or the only one."""
    if isinstance(rows, Tensor):
        return {session.get_inputs()[0].name: rows.numpy()}
    return {each.name: rows[each.name].numpy() for each in session.get_inputs()}


def _others(values: Tensor) -> Tensor:
    """Five rows like these: with noise, or of whole numbers that occur in them, in another order."""
    random = torch.Generator().manual_seed(0)
    repeated = torch.cat([values[:1]] * 5)
    if values.is_floating_point():
        return repeated + torch.randn(repeated.shape, generator=random).to(values.dtype)
    return repeated.flatten()[torch.randperm(repeated.numel(), generator=random)].view(repeated.shape)


def _none(found: str) -> ConfigError:
    return bad_value(
        "no ONNX program of this student", "onnx", found, f"one that predicts as the student, to {LARGEST:g}", INSTEAD
    )
