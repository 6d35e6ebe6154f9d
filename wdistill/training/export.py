"""A trained student as files: its parameters, how to rebuild its network, and a torch.export program that needs no code.

student.safetensors   the state dict
student.json          network and arguments, shape and type of its inputs, digests of all files; written last
student.pt2           the torch.export program, for any number of rows, if the student can be exported
student.onnx          the same as ONNX, where it was asked for
README.md             the model card
.student.json         while they are written: the digests of all of them. No file is replaced that neither record lists.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_of
from safetensors.torch import save as bytes_of
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from wdistill.core import foreign_json, store
from wdistill.core.checks import warn
from wdistill.core.errors import bad_value, unreadable, wrong_type
from wdistill.core.paths import as_path
from wdistill.core.sealed import digest_of
from wdistill.methods.decision import Decision, read_decision
from wdistill.report.card import CARD, Provenance, arm_of, at_chosen, model_card, provenance_of
from wdistill.report.exported import facts_of
from wdistill.runs.arms import folder_of
from wdistill.runs.checkpoints import CheckpointStore
from wdistill.runs.folder import read_run
from wdistill.text.integers import LENGTH
from wdistill.training import tensors
from wdistill.training.batch import Batch
from wdistill.training.models.networks import NETWORKS, build
from wdistill.training.onnx_program import need_onnx, onnx_program
from wdistill.training.program import for_each, logits_from, torch_program, two_rows

FORMAT = 2  # the description has a digest of its own
PARAMETERS, PROGRAM, ONNX, DESCRIPTION = "student.safetensors", "student.pt2", "student.onnx", "student.json"
FILES = (PARAMETERS, PROGRAM, ONNX, CARD, DESCRIPTION)
UNFINISHED = ".student.json"  # {name: digests}
STORED = {"final": "parameters.safetensors", "chosen": "chosen.safetensors"}  # in the folder of an arm


def export_student(
    student: nn.Module,
    example: Batch,
    folder: str | Path,
    source: str | None,
    made_of: Mapping[str, Any] | None = None,
    *,
    onnx: bool = False,
    provenance: Provenance | None = None,
) -> dict[str, Any]:
    """Write the student's files, check that they predict as it does, and return its description.

    example (1, …) is one input, or a mapping of names to them; `source` is the import path of the user's function that
    builds the student, if there is one; `made_of` is kept in the description, such as names of classes and of the columns
    that its inputs are made of. `onnx`: an ONNX program too, or an error that leaves the folder as it is. `provenance` is
    what the model card tells of the run: `wdistill.report.card.read_provenance(run, arm)`. The student's device and mode do
    not change.
    """
    folder = as_path(folder, "folder")
    if onnx:
        need_onnx()
    live, rows = _copy(student), two_rows(example)
    logits = logits_from(live, rows)
    parameters = _parameters(live)
    earlier = _earlier(folder)
    program = torch_program(live, rows, logits)
    content = None if isinstance(program, str) else program.content
    onnx_content = onnx_program(program, live, rows) if onnx else None
    reference = {network: name for name, network in NETWORKS.items()}.get(type(student))
    description = {
        "format": FORMAT,
        "network": reference or source,
        "arguments": dict(getattr(student, "arguments", {})) if reference else {},
        "input_shape": for_each(lambda values: list(values.shape[1:]), rows),
        "input_dtype": for_each(lambda values: str(values.dtype).removeprefix("torch."), rows),
        "classes": logits.shape[1],
        **(made_of or {}),
        "program": None if content is None else PROGRAM,
        "program_missing": program if isinstance(program, str) else None,
        "onnx": None if onnx_content is None else ONNX,
        "card": CARD,
    }
    card = model_card(facts_of(description, sum(each.numel() for each in live.parameters())), provenance).encode()
    contents = {PARAMETERS: parameters, PROGRAM: content, ONNX: onnx_content, CARD: card}
    description["sha256"] = {name: store.digest(each) for name, each in contents.items() if each is not None}
    description["digest"] = digest_of(description)
    if content is None:
        warn(f"{folder / PROGRAM} is left out: {program}; {PARAMETERS} and {DESCRIPTION} are complete")
    record = json.dumps(description, indent=1, ensure_ascii=False).encode() + b"\n"
    _write(folder, {**contents, DESCRIPTION: record}, earlier)
    loaded = load_student(folder, None if reference else _with_zeros(live))
    if not torch.allclose(logits_from(loaded, rows), logits, rtol=0, atol=0, equal_nan=True):
        what, found = "the stored student does not predict as the trained one", "other predictions on the same rows"
        remedy = "a student must predict without randomness, and keep its state in parameters and buffers"
        raise bad_value(what, str(folder), found, "the same bits", remedy)
    return description


def _write(folder: Path, files: Mapping[str, bytes | None], earlier: Mapping[str, str]) -> None:
    """Replace the files of an earlier export; None: there is no such file any more. A record lists all until the end."""
    digests = {name: [store.digest(content)] for name, content in files.items() if content is not None}
    listed = {name: [*digests.get(name, []), *([earlier[name]] if name in earlier else [])] for name in files}
    store.make_folder(folder, parents=True)
    store.write_bytes(folder / UNFINISHED, json.dumps(listed).encode())
    for path in store.unfinished_writes(folder, *files, UNFINISHED):  # of a killed process
        store.remove(path)
    for name, content in files.items():
        if content is not None:
            store.write_bytes(folder / name, content)
        elif name in earlier:
            store.remove(folder / name)
    store.remove(folder / UNFINISHED)


def _earlier(folder: Path) -> dict[str, str]:
    """The digests of the files of an earlier export, whole or begun; raises where a file of their names is not one."""
    there = [folder / name for name in FILES if os.path.lexists(folder / name)]
    try:
        found = {path.name: store.digest_file(path) for path in there if not path.is_symlink()}
    except OSError as error:
        remedy = "remove it, or choose another folder"
        raise unreadable("an earlier student cannot be read", folder, error, "readable files", remedy) from None
    listed = _listed(folder)
    foreign = [path for path in there if path.name not in found or found[path.name] not in listed.get(path.name, [])]
    foreign += [folder / UNFINISHED] if os.path.lexists(folder / UNFINISHED) and not _is_begun(folder / UNFINISHED) else []
    if foreign:
        what, expected = "the folder holds something else", "a new folder, or the whole files of an earlier export"
        names = ", ".join(path.name for path in foreign)
        raise bad_value(what, str(folder), names, expected, "remove what is not needed, or choose another folder")
    return found


def _is_begun(path: Path) -> bool:
    """Whether it is the record of an export that was interrupted."""
    record = {} if path.is_symlink() else _json_of(path)
    return {PARAMETERS, DESCRIPTION} <= {*record} <= {*FILES} and all(
        isinstance(digests, list) and all(isinstance(digest, str) and len(digest) == 64 for digest in digests)
        for digests in record.values()
    )


def _listed(folder: Path) -> dict[str, list[str]]:
    """Digests by file, as the records in a folder list them."""
    begun = _json_of(folder / UNFINISHED)
    listed = {name: list(digests) for name, digests in begun.items() if isinstance(digests, list)}
    description = _json_of(folder / DESCRIPTION)
    if _is_description(description):
        for name, digest in {**description["sha256"], DESCRIPTION: store.digest_file(folder / DESCRIPTION)}.items():
            listed.setdefault(name, []).append(digest)
    return listed


def _json_of(path: Path) -> dict[str, Any]:
    """The object in a JSON file, or none."""
    try:
        value = foreign_json.parse(_start(path))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _start(path: Path) -> bytes:
    """A file, up to a length that no description has."""
    with path.open("rb") as file:
        return file.read(foreign_json.LENGTH + 1)


def export_run(
    run: Path,
    folder: Path,
    arm: str | None = None,
    *,
    epoch: Literal["final", "chosen"] = "final",
    trust_code: bool = False,
    onnx: bool = False,
) -> dict[str, Any]:
    """Export the student of one arm of a finished run; returns its description with the arm, the epoch and the files.

    epoch: the parameters after the last epoch, or after the one that was best on the validation rows. What the run decides
    by its metric was fitted to the last one, so that the chosen one decides for the most likely class.
    """
    outcome, state = read_run(run), CheckpointStore(run).state
    arm = arm_of(outcome, arm)
    if epoch == "chosen":
        outcome = at_chosen(outcome, arm)
    network, arguments = state["identity"]["student"]["network"], state["identity"]["student"]["arguments"]
    if network is None:
        found = f"a {state['identity']['student']['type']} that was passed as a module"
        expected = "a reference network, or a function named as package.module:function"
        remedy = "export it in Python: export_student(report.student, example, folder, source)"
        raise bad_value("this student cannot be rebuilt from its run", str(run), found, expected, remedy)
    if not arguments and not trust_code:
        what, expected = "the student is built by code that the run names", "your consent to run this code"
        raise bad_value(what, str(run), network, expected, "add --trust-code (trust_code=True in Python)")
    student = NETWORKS[network](**arguments) if arguments else build(network)
    content = CheckpointStore(run / "arms" / folder_of(arm)).read(STORED[epoch])
    tensors.load_parameters(student, tensors.from_bytes(content, arm), arm)
    inputs = state["identity"]["data"]["validation"]
    if "columns" in inputs:
        what, found = "a run with inputs by name is exported in Python", ", ".join(inputs["columns"])
        expected, remedy = "inputs of one tensor", "call export_student(report.student, {…}, folder, source)"
        raise bad_value(what, str(run), found, expected, remedy)
    shape, dtype = inputs["shape"], inputs["dtype"]
    if network == "text":
        shape = [1, LENGTH]  # a run may have had shorter texts
    noise = torch.rand(1, *shape[1:], generator=torch.Generator().manual_seed(0))
    example = torch.zeros(1, *shape[1:], dtype=getattr(torch, dtype)) if dtype.startswith("int") else noise
    made_of = {name: state[name] for name in ("class_names", "columns") if name in state}
    if (judged := outcome.judgement.students.get(arm)) is not None:
        numbers = {"offsets": judged.offsets, "slope": judged.slope, "costs": judged.costs}
        made_of["decision"] = {"metric": judged.metric, **numbers}
    provenance = provenance_of(outcome, state["identity"], arm)
    source = None if arguments else network
    description = export_student(student, example, folder, source, made_of, onnx=onnx, provenance=provenance)
    after = len(outcome.arms[arm].epochs)
    return {**description, "arm": arm, "epoch": after, "files": [DESCRIPTION, *description["sha256"]]}


def load_student(folder: str | Path, module: nn.Module | None = None, *, trust_code: bool = False) -> nn.Module:
    """The student that `export_student` wrote, ready to predict: in `module`, or rebuilt from its description.

    A student that the user's own function builds is rebuilt only with `trust_code`, since that imports and runs code.
    Its `decide` makes classes (n,) of probabilities (n, K): by the decision of a run with a metric, else the most likely.
    """
    folder = as_path(folder, "folder")
    if not isinstance(module, nn.Module | None):
        raise wrong_type("not a module", "module", module, "a torch.nn.Module, or None", "pass the module itself")
    description = _read_description(folder)
    stored = _read_parameters(folder, description)
    decision = _decision(folder, description)
    student = module if module is not None else _rebuild(folder, description, stored, trust_code)
    differences = tensors.compare_states(student.state_dict(), stored)
    if differences:
        what, where = "the stored parameters do not fit the network", str(folder / PARAMETERS)
        raise bad_value(what, where, differences, "the same names and shapes", "build the network that was exported")
    student.load_state_dict(stored)
    if not hasattr(type(student), "decide"):
        student.decide = decision  # type: ignore[assignment] # no module, and not part of its state
    return student.train(False)


def _decision(folder: Path, description: Mapping[str, Any]) -> Decision:
    """The decision that was exported, or that for the most likely class."""
    try:
        return read_decision(description.get("decision"), description.get("classes"))
    except ValueError as error:
        what, expected = "the student's decision cannot be read", "the numbers of every class that were written"
        raise unreadable(what, folder / DESCRIPTION, error, expected, "export the student again") from None


def _copy(student: nn.Module) -> nn.Module:
    """The student on the CPU in eval mode, in the memory format of a new network: with others the bits differ."""
    try:
        live = copy.deepcopy(student).cpu()
        live.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload] # torch's own annotation lacks it
        return live.train(False)
    except Exception as error:
        found, expected = f"{type(error).__name__}: {error}", "a module that copy.deepcopy copies"
        remedy = "keep tensors that are part of a computation out of its attributes"
        raise bad_value("the student cannot be copied", "student", found, expected, remedy) from error


def _with_zeros(student: nn.Module) -> nn.Module:
    """A copy whose parameters and buffers are 0."""
    copied = copy.deepcopy(student)
    for value in copied.state_dict().values():
        value.zero_()
    return copied


def _parameters(student: nn.Module) -> bytes:
    """The state dict as safetensors; tensors that share memory are stored separately."""
    state = student.state_dict()
    others = [name for name, value in state.items() if not isinstance(value, Tensor)]
    if others:
        what, expected = "state that is not a tensor cannot be exported", "a state dict of tensors"
        raise bad_value(what, "student", tensors.listed(others), expected, "register it as a buffer")
    return bytes_of({name: value.detach().clone(memory_format=torch.contiguous_format) for name, value in state.items()})


def _read_description(folder: Path) -> dict[str, Any]:
    path, fault = folder / DESCRIPTION, ""
    try:
        description = foreign_json.parse(_start(path))
        fault = "" if _is_description(description) else "other contents than were written, or another format"
    except OSError as error:
        expected = f"a folder with {DESCRIPTION} and {PARAMETERS}"
        raise unreadable("no student here", path, error, expected, "correct the path, or export it first") from None
    except ValueError as error:
        fault = f"{type(error).__name__}: {error}"
    if fault:
        expected = f"what export_student writes, format {FORMAT}"
        remedy = "export the student again, or update wdistill if a newer one wrote this"
        raise unreadable("not the description of a student", path, fault, expected, remedy)
    return dict(description)


def _is_description(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.get("format") == FORMAT
        and isinstance(value.get("network", 0), str | None)
        and isinstance(value.get("arguments"), dict)
        and isinstance(value.get("sha256"), dict)
        and value.get("digest") == digest_of(value)
    )


def _read_parameters(folder: Path, description: Mapping[str, Any]) -> dict[str, Tensor]:
    path, fault = folder / PARAMETERS, "other bytes than were written"
    try:
        content = path.read_bytes()
        if store.digest(content) == description["sha256"].get(PARAMETERS):
            return tensors_of(content)
    except (OSError, SafetensorError) as error:
        fault = f"{type(error).__name__}: {error}"
    expected, remedy = f"the file that belongs to {DESCRIPTION}", "copy the folder or export the student again"
    raise unreadable("the student's parameters cannot be read", path, fault, expected, remedy)


def _rebuild(folder: Path, description: Mapping[str, Any], stored: Mapping[str, Tensor], trust_code: bool) -> nn.Module:
    """A new network as described; the global random generators are not changed."""
    network, path = description["network"], folder / DESCRIPTION
    if network is None:
        what, expected = "the student's network is not named", "the network itself"
        raise bad_value(what, str(path), "no import path", expected, "build the network and pass it as module=…")
    if network not in NETWORKS and not trust_code:
        found, expected = f"it would import and call {network}", "your consent, or module=…"
        remedy = "build the network and pass it as module, or pass trust_code=True if you trust that code"
        raise bad_value("rebuilding the student runs code", str(path), found, expected, remedy)
    with torch.random.fork_rng(devices=[]):
        if network not in NETWORKS:
            return build(network)
        try:
            with torch.device("meta"), _at_most(len(stored)):  # without memory, until the shapes are those of the file
                shapes = NETWORKS[network](**description["arguments"])
            differs = tensors.compare_states(shapes.state_dict(), stored)  # which the caller will tell
            return shapes if differs else NETWORKS[network](**description["arguments"])
        except Exception as error:
            what, found = "the student's arguments do not build its network", f"{network}: {error}"
            raise unreadable(what, path, found, "the arguments that were written", "export the student again") from None


@contextmanager
def _at_most(parameters: int) -> Iterator[None]:
    """Stop the building of a network that has more parameters than this: a number may ask for endless layers."""
    left = iter(range(parameters))

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and next(left, None) is None:
            raise ValueError(f"more than {parameters} parameters")

    handle = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        handle.remove()
