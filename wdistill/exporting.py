"""A trained student as files that anyone can use: its parameters, how to rebuild it, and a program that needs no code.

student.safetensors   the state dict
student.json          network and arguments, shape and type of its inputs, digests of the other files; written last
student.pt2           the exported program, for any number of rows, where the student can be exported
"""

from __future__ import annotations

import copy
import io
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_of
from safetensors.torch import save as bytes_of
from torch import Tensor, nn
from torch.export import save as write_program

from wdistill import store
from wdistill.arms import first_of, folder_of
from wdistill.checks import warn
from wdistill.errors import ConfigError, FileError, InputError
from wdistill.ledger import Ledger
from wdistill.runs import read_run
from wdistill.training import tensors
from wdistill.training.networks import NETWORKS, build

FORMAT = 1
PARAMETERS, PROGRAM, DESCRIPTION = "student.safetensors", "student.pt2", "student.json"


def export_student(student: nn.Module, example: Tensor, folder: Path, source: str | None) -> dict[str, Any]:
    """Write the student's files, check that they predict as it does, and return its description.

    example (1, …) is one input; `source` is the import path of the user's function that builds the student, if there is
    one. The student itself stays as it is: where it is, and in the mode it is in.
    """
    live, example = _copy(student), example[:1].detach().cpu().contiguous()
    rows = torch.cat([example, example])  # torch.export would take a single row for a fixed size
    logits = _logits(live, rows)
    parameters = _parameters(live)
    store.make_folder(folder, parents=True)
    store.write_bytes(folder / PARAMETERS, parameters)
    program, missing = _program(live, rows, logits)
    if program is None:
        store.remove(folder / PROGRAM)  # of an earlier export
        warn(f"{folder / PROGRAM} is left out: {missing}; {PARAMETERS} and {DESCRIPTION} are complete")
    else:
        store.write_bytes(folder / PROGRAM, program)
    reference = {network: name for name, network in NETWORKS.items()}.get(type(student))
    description = {
        "format": FORMAT,
        "network": reference or source,
        "arguments": dict(getattr(student, "arguments", {})) if reference else {},
        "input_shape": list(example.shape[1:]),
        "input_dtype": str(example.dtype).removeprefix("torch."),
        "classes": logits.shape[1],
        "program": PROGRAM if program is not None else None,
        "program_missing": missing,
        "sha256": {PARAMETERS: store.digest(parameters)} | ({PROGRAM: store.digest(program)} if program else {}),
    }
    store.write_bytes(folder / DESCRIPTION, json.dumps(description, indent=1, ensure_ascii=False).encode() + b"\n")
    again = load_student(folder, None if reference else _blank(live))
    if not torch.allclose(_logits(again, rows), logits, rtol=0, atol=0, equal_nan=True):
        raise ConfigError(
            "the stored student does not predict as the live one",
            where=str(folder),
            found="other predictions on the same rows",
            expected="the same bits",
            remedy="a student must predict without randomness, and hold all it has learned in parameters and buffers",
        )
    return description


def export_run(run: Path, folder: Path, arm: str | None = None, *, trust_code: bool = False) -> dict[str, Any]:
    """Export the student of one arm of a finished run; returns its description with the arm and the files."""
    outcome, state = read_run(run), Ledger(run).state
    arm = arm or first_of({name: each.rule for name, each in outcome.arms.items()})
    if outcome.state != "finished" or arm not in outcome.arms:
        raise ConfigError(
            "no such student",
            where=str(run),
            found=f"{arm}, of a run that is {outcome.state}",
            expected=f"an arm of a finished run: {', '.join(outcome.arms)}",
            remedy="name one of them, or let the run finish first",
        )
    known, shape = state["identity"]["student"], state["identity"]["data"]["labeled"]["shape"]
    if known["network"] is None:
        raise ConfigError(
            "this student cannot be rebuilt from its run",
            where=str(run),
            found=f"a {known['type']} that was passed as a module",
            expected="a reference network, or a function named as package.module:function",
            remedy="export it in Python: export_student(report.student, example, folder, source)",
        )
    if not known["arguments"] and not trust_code:
        raise ConfigError(
            "the student is built by code that the run names",
            where=str(run),
            found=known["network"],
            expected="your word that this code may run",
            remedy="add --trust-code (trust_code=True in Python)",
        )
    student = NETWORKS[known["network"]](**known["arguments"]) if known["arguments"] else build(known["network"])
    content = Ledger(run / "arms" / folder_of(arm)).read("parameters.safetensors")
    tensors.load_parameters(student, tensors.from_bytes(content, arm), arm)
    dtype = state["identity"]["data"]["labeled"]["dtype"]
    whole = dtype.startswith("int")
    noise = torch.rand(1, *shape[1:], generator=torch.Generator().manual_seed(0))
    example = torch.zeros(1, *shape[1:], dtype=torch.int64) if whole else noise
    description = export_student(student, example, folder, None if known["arguments"] else known["network"])
    return {**description, "arm": arm, "files": [PARAMETERS, DESCRIPTION, *([PROGRAM] if description["program"] else [])]}


def load_student(folder: Path, module: nn.Module | None = None, *, trust_code: bool = False) -> nn.Module:
    """The student that `export_student` wrote, ready to predict: in `module`, or rebuilt from its description.

    A student that the user's own function builds is rebuilt only with `trust_code`, since that imports and runs code.
    """
    description = _read_description(folder)
    stored = _read_parameters(folder, description)
    student = module if module is not None else _rebuilt(folder, description, trust_code)
    found = tensors.misfits(student.state_dict(), stored)
    if found:
        raise ConfigError(
            "the stored parameters do not fit the network",
            where=str(folder / PARAMETERS),
            found=found,
            expected="the same names and shapes",
            remedy="build the network that was exported",
        )
    student.load_state_dict(stored)
    return student.train(False)


def _copy(student: nn.Module) -> nn.Module:
    """The student on the processor, ready to predict; in the memory format of a new network, since others differ in bits."""
    try:
        live = copy.deepcopy(student).cpu()
        live.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload] # torch's own annotation lacks it
        return live.train(False)
    except Exception as error:
        raise ConfigError(
            "the student cannot be copied",
            where="student",
            found=f"{type(error).__name__}: {error}",
            expected="a module that copy.deepcopy copies",
            remedy="keep tensors that are part of a computation out of its attributes",
        ) from error


def _blank(student: nn.Module) -> nn.Module:
    """A copy that has forgotten its state."""
    blank = copy.deepcopy(student)
    for value in blank.state_dict().values():
        value.zero_()
    return blank


def _logits(student: nn.Module, rows: Tensor) -> Tensor:
    """(b, …) → (b, K)."""
    with torch.no_grad():
        logits = student(rows)
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != len(rows):
        raise InputError(
            "the student does not return logits",
            where="student",
            found=f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__,
            expected=f"a tensor ({len(rows)}, classes) for {len(rows)} rows",
            remedy="wrap it in a module that returns only the logits",
        )
    return logits


def _parameters(student: nn.Module) -> bytes:
    """The state dict as safetensors; tensors that share memory are stored each by itself."""
    state = student.state_dict()
    others = [name for name, value in state.items() if not isinstance(value, Tensor)]
    if others:
        raise ConfigError(
            "state that is not a tensor cannot be exported",
            where="student",
            found=tensors.listed(others),
            expected="a state dict of tensors",
            remedy="register it as a buffer",
        )
    return bytes_of({name: value.detach().clone(memory_format=torch.contiguous_format) for name, value in state.items()})


def _program(student: nn.Module, rows: Tensor, logits: Tensor) -> tuple[bytes | None, str | None]:
    """The exported program, checked, or else why there is none. Whatever stops an export, the parameters are kept."""
    try:
        with _quiet():
            exported = torch.export.export(student, (rows,), dynamic_shapes=({0: torch.export.Dim("batch", min=1)},))
            buffer = io.BytesIO()
            write_program(exported, buffer)
            again = torch.export.load(io.BytesIO(buffer.getvalue())).module()
        for count in (1, 2):
            found = _logits(again, rows[:count])
            if not torch.allclose(found, logits[:count], rtol=1e-5, atol=1e-6, equal_nan=True):
                worst = float((found - logits[:count]).abs().max())
                return None, f"the exported program predicts otherwise, by up to {worst:.2g}"
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return None, f"the student cannot be exported ({type(error).__name__}: {lines[0]})"
    return buffer.getvalue(), None


@contextmanager
def _quiet() -> Iterator[None]:
    """torch.export writes warnings, logs and whole graphs; what matters of them is in the error it raises."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _read_description(folder: Path) -> dict[str, Any]:
    path = folder / DESCRIPTION
    try:
        description = json.loads(path.read_bytes())
        found = "" if _is_description(description) else "other keys or another format"
    except OSError as error:
        raise FileError(
            "no student here",
            where=str(path),
            found=error.strerror or str(error),
            expected=f"a folder with {DESCRIPTION} and {PARAMETERS}",
            remedy="correct the path, or export the student first",
        ) from None
    except (ValueError, RecursionError) as error:
        found = f"{type(error).__name__}: {error}"
    if found:
        raise FileError(
            "not the description of a student",
            where=str(path),
            found=found,
            expected=f"what export_student writes, format {FORMAT}",
            remedy="export the student again, or update wdistill if a newer one wrote this",
        )
    return dict(description)


def _is_description(found: Any) -> bool:
    return (
        isinstance(found, dict)
        and found.get("format") == FORMAT
        and isinstance(found.get("network", 0), str | None)
        and isinstance(found.get("arguments"), dict)
        and isinstance(found.get("sha256"), dict)
    )


def _read_parameters(folder: Path, description: Mapping[str, Any]) -> dict[str, Tensor]:
    path = folder / PARAMETERS
    try:
        content = path.read_bytes()
        found = "other bytes than were written" if store.digest(content) != description["sha256"].get(PARAMETERS) else ""
        stored = {} if found else tensors_of(content)
    except (OSError, SafetensorError) as error:
        found = f"{type(error).__name__}: {error}"
    if found:
        raise FileError(
            "the student's parameters cannot be read",
            where=str(path),
            found=found,
            expected=f"the file that belongs to {DESCRIPTION}",
            remedy="copy the folder again, or export the student again",
        )
    return stored


def _rebuilt(folder: Path, description: Mapping[str, Any], trust_code: bool) -> nn.Module:
    """A new network as the description says; the global random numbers are left as they were."""
    network = description["network"]
    if network is None or (network not in NETWORKS and not trust_code):
        raise ConfigError(
            "the student was built by code that is not known" if network is None else "rebuilding the student runs code",
            where=str(folder / DESCRIPTION),
            found="no import path" if network is None else f"it would import and call {network}",
            expected="module=…" if network is None else "your consent, or module=…",
            remedy="build the network and pass it as module"
            + ("" if network is None else ", or pass trust_code=True if you trust that code"),
        )
    with torch.random.fork_rng(devices=[]):
        if network not in NETWORKS:
            return build(network)
        try:
            return NETWORKS[network](**description["arguments"])
        except (TypeError, ValueError, RuntimeError) as error:
            raise FileError(
                "the student's arguments do not build its network",
                where=str(folder / DESCRIPTION),
                found=f"{network} with {description['arguments']}: {error}",
                expected="the arguments that were written",
                remedy="export the student again",
            ) from None
