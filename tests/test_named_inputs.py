"""Inputs by name and outputs with logits in them, as Hugging Face's modules have: the same bits as with plain tensors."""

from __future__ import annotations

import errno
import json
import re
import subprocess
import sys
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import wdistill
from tests.distilling import QUICK, failing, seeded, student, students, table, undrawn, unlike
from tests.tables import Items
from tests.test_distillation import Wrong
from tests.test_faults_arrays import refused
from wdistill import (
    ConfigError,
    Data,
    InputError,
    LeakError,
    Report,
    Streamed,
    advise,
    best,
    debiased,
    distill,
    export_student,
    load_student,
    unweighted,
)
from wdistill.runs.checkpoints import CheckpointStore
from wdistill.training.export import export_run
from wdistill.training.inputs import materialise

pytestmark = pytest.mark.slow  # nearly all of them train

WORDS, LENGTH = 20, 7
RECIPE = replace(QUICK, refresh=1)


@pytest.fixture(scope="module", autouse=True)
def no_page() -> Iterator[None]:
    with undrawn():
        yield


@dataclass
class Output:
    """What a Hugging Face module returns: more than logits."""

    logits: Tensor
    hidden: Tensor
    loss: None = None


class Reader(nn.Module):
    """The mean of the words that the mask leaves, with dropout; like a Hugging Face module, it takes its inputs by name."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words, self.pooler = nn.Embedding(WORDS, width), nn.Linear(width, width)
        self.dropout, self.classifier = nn.Dropout(0.2), nn.Linear(width, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None) -> Any:
        mask = (torch.ones_like(input_ids) if attention_mask is None else attention_mask).unsqueeze(2).float()
        mean = (self.words(input_ids) * mask).sum(1) / mask.sum(1).clamp(min=1)
        hidden = self.dropout(torch.relu(self.pooler(mean)))
        return Output(self.classifier(hidden), hidden)


class Joined(Reader):
    """The same from one tensor, words and mask side by side, and the logits alone."""

    def forward(self, inputs: Tensor) -> Tensor:  # type: ignore[override]
        logits: Tensor = super().forward(inputs[:, :LENGTH], inputs[:, LENGTH:]).logits
        return logits


class Answering(Reader):
    """The same, in a mapping."""

    def forward(self, **inputs: Tensor) -> Any:  # type: ignore[override]
        return UserDict(vars(super().forward(**inputs)))


def big() -> Reader:
    return Reader(8)


def small() -> Reader:
    return Reader(4)


Rows = dict[str, Tensor]


def texts() -> dict[str, tuple[Rows, Tensor]]:
    """Rows of words that lean to their class, of different lengths."""
    random = torch.Generator().manual_seed(2)
    labels = torch.randint(0, 3, (140,), generator=random)
    leaning = torch.rand(140, LENGTH, generator=random) < 0.5
    words = torch.randint(0, WORDS, (140, LENGTH), generator=random)
    words = torch.where(leaning, words // 3 * 3 % WORDS + labels[:, None], words).clamp(max=WORDS - 1)
    mask = (torch.arange(LENGTH) < torch.randint(4, LENGTH + 1, (140, 1), generator=random)).long()
    parts = {"labeled": slice(0, 30), "validation": slice(30, 60), "unlabeled": slice(60, 120), "test": slice(120, 140)}
    return {name: ({"input_ids": words[at], "attention_mask": mask[at]}, labels[at]) for name, at in parts.items()}


def go(teacher: Any = big, pupil: Any = small, recipe: Any = RECIPE, **changes: Any) -> Report:
    """A small distillation of texts; `changes` are arguments of distill, splits among them."""
    return distill(teacher, pupil, **{**texts(), **changes}, recipe=recipe)


def turned(change: Callable[[Rows, Tensor], Any]) -> dict[str, Any]:
    """All splits in another form."""
    return {name: change(inputs, labels) for name, (inputs, labels) in texts().items()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report]:
    folder = tmp_path_factory.mktemp("runs") / "run"
    return folder, go(rule=[debiased, unweighted], run=folder)


# what modules return ---------------------------------------------------------------------------------------------------


class Attribute(Wrong):
    wrong = staticmethod(lambda logits: Output(logits, logits))


class Key(Wrong):
    wrong = staticmethod(lambda logits: {"loss": None, "logits": logits})


class NoLogits(Wrong):
    wrong = staticmethod(lambda logits: {"loss": logits.mean()})


class ThreeAxes(Wrong):
    wrong = staticmethod(lambda logits: Output(logits[:, None], logits))


@pytest.mark.parametrize("model", [Attribute, Key])
def test_logits_inside_of_an_output_are_found(model: Any) -> None:
    from tests.distilling import go, teacher

    plain, inside = go(teacher, seeded(student)), go(teacher, seeded(model))
    values = {name.removeprefix("inner."): bits for name, bits in students(inside)["debiased"].items()}
    assert values == students(plain)["debiased"]


@pytest.mark.parametrize(("model", "found"), [(NoLogits, "a dict"), (ThreeAxes, "(2, 1, 3)")])
def test_an_output_without_logits_is_refused_before_training(model: Any, found: str, tmp_path: Path) -> None:
    from tests.distilling import go, teacher

    refused(ConfigError, lambda: go(teacher, model, run=tmp_path / "run"), "does not return logits", found, ".logits")
    assert not list((tmp_path / "run").glob("generation-*"))


# inputs by name --------------------------------------------------------------------------------------------------------


def test_inputs_by_name_give_the_bits_of_one_tensor(finished: tuple[Path, Report]) -> None:
    data = turned(lambda inputs, labels: (torch.cat([*inputs.values()], dim=1), labels))
    joined = go(lambda: Joined(8), lambda: Joined(4), rule=[debiased, unweighted], **data)
    assert students(joined) == students(finished[1])
    assert students(go(big, lambda: Answering(4)))["debiased"] == students(joined)["debiased"]


class Encoded(Items):
    """A map-style Dataset as Hugging Face's: every item a mapping, with its class in it."""

    label = "label"

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> Any:
        return {name: values[row] for name, values in self.inputs.items()} | {self.label: self.labels[row]}


class Unpadded(Encoded):
    def __getitem__(self, row: int) -> Any:
        return {"input_ids": self.inputs["input_ids"][row][: 6 if row == 5 else 7], "label": self.labels[row]}


class Lists(Encoded):
    """Without set_format: lists of whole numbers; and the class under another name."""

    label = "labels"

    def __getitem__(self, row: int) -> Any:
        return {name: value.tolist() for name, value in super().__getitem__(row).items()}


class Pairs(Encoded):
    def __getitem__(self, row: int) -> Any:
        return {name: values[row] for name, values in self.inputs.items()}, self.labels[row]


def as_files(inputs: Rows, labels: Tensor, folder: Path) -> Any:
    mapped = {}
    for name, values in inputs.items():
        path = folder / f"{name}-{len(labels)}-{labels.sum()}.npy"
        np.save(path, values.numpy())
        mapped[name] = np.load(path, mmap_mode="r")
    return mapped, labels


def mixed(inputs: Rows, labels: Tensor, folder: Path) -> Any:
    """Each split in another form; the union of several must be put together batch by batch."""
    forms = {30: (inputs, labels), 60: Streamed(Encoded(inputs, labels)), 20: as_files(inputs, labels, folder)}
    return forms[len(labels)]


WAYS: dict[str, Callable[[Rows, Tensor, Path], Any]] = {
    "arrays": lambda inputs, labels, _: ({name: values.numpy() for name, values in inputs.items()}, labels.numpy()),
    "memory-mapped": as_files,
    "another order": lambda inputs, labels, _: ({name: inputs[name] for name in sorted(inputs)}, labels),
    "Data": lambda inputs, labels, _: Data(inputs, labels),
    "a split as a mapping": lambda inputs, labels, _: {"inputs": inputs, "labels": labels},
    "an encoding": lambda inputs, labels, _: Data(UserDict(inputs), labels),
    "a Dataset": lambda inputs, labels, _: Encoded(inputs, labels),
    "a Dataset of lists": lambda inputs, labels, _: Lists(inputs, labels),
    "a Dataset of pairs": lambda inputs, labels, _: Pairs(inputs, labels),
    "streamed": lambda inputs, labels, _: Streamed(Encoded(inputs, labels)),
    "mixed": mixed,
}


@pytest.mark.parametrize("way", WAYS)
def test_every_form_of_inputs_by_name_gives_the_same_bits(way: str, tmp_path: Path, finished: tuple[Path, Report]) -> None:
    report = go(rule=[debiased, unweighted], **turned(lambda inputs, labels: WAYS[way](inputs, labels, tmp_path)))
    assert students(report) == students(finished[1])


def test_streams_by_name_give_the_same_rows_with_any_number_of_workers() -> None:
    inputs, labels = texts()["unlabeled"]
    orders = list(torch.randperm(60).split(16))  # type: ignore[no-untyped-call]
    for workers in (0, 1):
        for rows, batch in zip(orders, Streamed(Encoded(inputs, labels), workers).batches(orders), strict=True):
            assert isinstance(batch, Mapping) and {*batch} == {*inputs}
            assert all(torch.equal(batch[name], inputs[name][rows]) for name in inputs)


def test_inputs_by_name_alone_are_unlabeled_rows() -> None:
    inputs, _ = texts()["unlabeled"]
    alone, wrapped = go(unlabeled=inputs), go(unlabeled=Data(inputs))
    assert students(alone) == students(wrapped)
    assert "unlabeled" not in alone.outcome.accuracies.get("teacher", {})


def test_every_input_is_scaled_by_its_own_type() -> None:
    class Seeing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, pixel_values: Tensor, kept: Tensor) -> Any:
            assert pixel_values.dtype == torch.float32 and kept.dtype == torch.bool
            return {"logits": self.layer(pixel_values * kept)}

    def run(change: Callable[[Tensor], Tensor]) -> Report:
        random = torch.Generator().manual_seed(0)
        pixels = {name: torch.randint(0, 256, (30, 4), generator=random).byte() for name in texts()}
        data = {
            name: ({"pixel_values": change(values), "kept": values > 9}, texts()[name][1][:20].repeat(2)[:30])
            for name, values in pixels.items()
        }
        return distill(Seeing, Seeing, **data, recipe=QUICK)

    assert students(run(lambda values: values)) == students(run(lambda values: values.double() / 255))


# a run -----------------------------------------------------------------------------------------------------------------


def test_an_interrupted_run_ends_with_the_same_bits_with_two_workers(tmp_path: Path, finished: tuple[Path, Report]) -> None:
    folder = tmp_path / "run"
    with failing(60, errno.ENOSPC) as seen, pytest.raises(wdistill.StorageError):
        go(rule=[debiased, unweighted], run=folder)
    assert len(seen) == 60 and not (folder / "arms").exists()
    go(rule=[debiased, unweighted], recipe=replace(RECIPE, workers=2), run=folder)
    assert unlike(folder, finished[0]) == [] and not (folder / ".inputs").exists()


@pytest.mark.parametrize("at", [12, 19, 28, 100])
def test_an_interrupted_run_of_datasets_ends_with_the_same_bits(
    at: int, tmp_path: Path, finished: tuple[Path, Report]
) -> None:
    """While the files of two columns are written, which get their names one after the other, and in a training."""
    data = turned(lambda inputs, labels: Encoded(inputs, labels))
    with failing(at, errno.ENOSPC), pytest.raises(wdistill.StorageError):
        go(rule=[debiased, unweighted], run=tmp_path / "run", **data)
    report = go(rule=[debiased, unweighted], run=tmp_path / "run", **data)
    assert students(report) == students(finished[1]) and not (tmp_path / "run" / ".inputs").exists()


class Counted(Encoded):
    reads = 0

    def __getitem__(self, row: int) -> Any:
        type(self).reads += 1
        return super().__getitem__(row)


def test_a_dataset_by_name_is_read_once_for_all_starts(tmp_path: Path) -> None:
    inputs, labels = {"b": torch.randn(2000, 3), "a": torch.arange(2000)}, torch.arange(2000) % 3
    rows: Any = None
    for other, reads in ((0, range(2000, 2010)), (0, range(300)), (1, range(2000, 2300))):
        Counted.reads, changed = 0, {**inputs, "a": inputs["a"] + other}
        rows, classes = materialise(Counted(changed, labels), tmp_path / "rows.npy")
        assert Counted.reads in reads and classes is not None and (classes == labels.numpy()).all()
        assert all((rows.columns[name].array == values.numpy()).all() for name, values in changed.items())


def other_word(inputs: Rows, labels: Tensor) -> Any:
    words = inputs["input_ids"].clone()
    words[-1, -1] = (words[-1, -1] + 1) % WORDS
    return {**inputs, "input_ids": words}, labels


def test_other_inputs_of_one_name_are_another_run(finished: tuple[Path, Report]) -> None:
    changed = {"unlabeled": other_word(*texts()["unlabeled"])}
    error = refused(ConfigError, lambda: go(rule=[debiased, unweighted], run=finished[0], **changed))
    assert "data unlabeled columns input_ids sha256" in error.found and "attention_mask" not in error.found


def test_gold_rows_that_were_trained_on_are_found_by_all_their_inputs() -> None:
    (inputs, labels), (gold, gold_labels) = texts()["labeled"], texts()["validation"]
    leaked = {name: torch.cat([values[:3], gold[name][3:]]) for name, values in reversed(inputs.items())}
    with pytest.raises(LeakError, match="3 of 30 rows"):
        go(validation=(leaked, gold_labels))
    with pytest.raises(LeakError, match="3 of 30 rows"):
        go(labeled=Encoded(inputs, labels), validation=Encoded(leaked, gold_labels), recipe=replace(RECIPE, workers=2))
    other_masks = {**leaked, "attention_mask": leaked["attention_mask"].flip(1)}
    masked = {name: {**rows, "attention_mask": rows["attention_mask"]} for name, (rows, _) in texts().items()}
    assert not torch.equal(other_masks["attention_mask"][:3], masked["labeled"]["attention_mask"][:3])
    go(validation=(other_masks, gold_labels), rule=unweighted)


def test_best_has_no_forest_of_inputs_by_name_and_advice_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    advice = advise(big, small, **texts(), recipe=QUICK, run=folder)
    report = go(recipe=QUICK, rule=best, run=folder)
    assert report.outcome.arms["best"].why == advice.correction.why
    assert {path.name.partition("-")[0] for path in (folder / "auxiliary").iterdir()} == {"second", "retrained"}


def test_without_labeled_rows_inputs_by_name_give_the_bits_of_one_tensor() -> None:
    given = {name: predictions for name, predictions in table().items() if name in ("validation", "unlabeled")}
    data = turned(lambda inputs, labels: (torch.cat([*inputs.values()], dim=1), labels))
    for rule in (best, debiased):
        named, joined = (
            go(given, rule=rule, labeled=None),
            go(given, lambda: Joined(4), rule=rule, **{**data, "labeled": None}),
        )
        assert students(named) == students(joined)


def test_features_are_matched_by_name_too() -> None:
    plain, matched = go(rule=unweighted), go(recipe=replace(RECIPE, vid=("pooler=pooler",)), rule=unweighted)
    assert students(plain) != students(matched)
    recipe = replace(RECIPE, vid=("nowhere=pooler",))
    refused(ConfigError, lambda: go(recipe=recipe), "no such layer", "pooler")


# errors before any training --------------------------------------------------------------------------------------------


def with_labeled(change: Callable[[Rows, Tensor], Any]) -> dict[str, Any]:
    return {"labeled": change(*texts()["labeled"])}


BAD: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "labels among the inputs": (
        with_labeled(lambda inputs, labels: {**inputs, "labels": labels}),
        ("not a split", "input_ids, attention_mask, labels", "({…}, labels)"),
    ),
    "labels inside of the inputs": (
        with_labeled(lambda inputs, labels: ({**inputs, "labels": labels}, labels)),
        ("labeled inputs", "'labels'", "beside the inputs"),
    ),
    "no labels": (with_labeled(lambda inputs, labels: inputs), ("labeled", "no labels", "(inputs, labels)")),
    "no names": (with_labeled(lambda inputs, labels: ({}, labels)), ("labeled inputs", "no names")),
    "no name of an argument": (with_labeled(lambda inputs, labels: ({"input ids": 1}, labels)), ("'input ids'", "rename")),
    "a number as a name": (with_labeled(lambda inputs, labels: ({3: labels}, labels)), ("found: 3", "rename")),
    "fewer rows of one": (
        with_labeled(lambda inputs, labels: ({**inputs, "attention_mask": inputs["attention_mask"][1:]}, labels)),
        ("labeled input_ids", "labeled attention_mask", "29"),
    ),
    "fewer labels": (with_labeled(lambda inputs, labels: (inputs, labels[1:])), ("labeled labels", "29")),
    "lists": (
        with_labeled(lambda inputs, labels: ({**inputs, "input_ids": inputs["input_ids"].tolist()}, labels)),
        ("labeled input_ids", "a list", "torch.as_tensor"),
    ),
    "a Dataset as a column": (
        with_labeled(lambda inputs, labels: ({"train": Encoded(inputs, labels)}, labels)),
        ("labeled train", "a Encoded", "tensor or array"),
    ),
    "not finite": (
        with_labeled(lambda inputs, labels: ({**inputs, "extra": torch.full((30, 1), torch.nan)}, labels)),
        ("labeled extra", "NaN"),
    ),
    "one split without a name": (
        with_labeled(lambda inputs, labels: ({"input_ids": inputs["input_ids"]}, labels)),
        ("different kinds", "labeled: input_ids (7,) of int64 numbers; validation: attention_mask (7,) of int64 numbers"),
    ),
    "one split as a tensor": (
        with_labeled(lambda inputs, labels: (inputs["input_ids"], labels)),
        ("different kinds", "labeled: (7,) of int64"),
    ),
    "a Dataset of texts": (
        with_labeled(lambda inputs, labels: Items([{"text": "words", "label": 1}] * 30)),
        ("item 0", "text: a str", "set_format"),
    ),
    "a Dataset of two classes an item": (
        with_labeled(lambda inputs, labels: Items([{"input_ids": [1], "label": 1, "labels": 1}] * 30)),
        ("item 0", "label, labels"),
    ),
    "a Dataset of several labels an item": (
        with_labeled(lambda inputs, labels: Items([{"input_ids": [1], "label": torch.zeros(3)}] * 30)),
        ("item 0", "one element"),
    ),
    "a Dataset of labels alone": (
        with_labeled(lambda inputs, labels: Items([{"label": 1}] * 30)),
        ("item 0", "no names"),
    ),
    "items that are not padded": (
        with_labeled(lambda inputs, labels: Unpadded(inputs, labels)),
        ("item 5", "input_ids (6,) of int64", "input_ids (7,) of int64", "pad"),
    ),
    "streamed items that are not padded": (
        with_labeled(lambda inputs, labels: Streamed(Unpadded(inputs, labels))),
        ("item 5", "input_ids (6,) of int64", "pad"),
    ),
    "augmentation": (
        {"recipe": replace(RECIPE, augmentation=("flip",))},
        ("only images can be augmented", "input_ids (1, 7) int64", "leave augmentation out"),
    ),
    "an argument that the module has not": (
        turned(lambda inputs, labels: ({**inputs, "pixels": labels[:, None]}, labels)),
        ("teacher cannot read its input", "pixels (2, 1) int64", "'pixels'", "arguments of the module's forward"),
    ),
    "an argument that the data have not": (
        turned(lambda inputs, labels: ({"attention_mask": inputs["input_ids"]}, labels)),
        ("teacher cannot read its input", "'input_ids'", "arguments of the module's forward"),
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_inputs_that_do_not_fit_are_refused_before_training(what: str, tmp_path: Path) -> None:
    changes, words = BAD[what]
    refused((ConfigError, InputError), lambda: go(run=tmp_path / "run", **changes), *words)
    assert not list((tmp_path / "run").glob("generation-*"))


def test_a_mask_that_would_be_scaled_is_said() -> None:
    data = turned(lambda inputs, labels: ({**inputs, "attention_mask": inputs["attention_mask"].byte()}, labels))
    report = go(rule=unweighted, **data)
    assert any("attention_mask: 0 and 1 of type uint8 become 0 and 1/255" in text for text in report.outcome.warnings)


# the student alone -----------------------------------------------------------------------------------------------------


def test_an_exported_student_takes_its_inputs_by_name(tmp_path: Path, finished: tuple[Path, Report]) -> None:
    trained, (inputs, _) = finished[1].student, texts()["test"]
    description = export_student(trained, inputs, tmp_path / "student", None)
    assert description["input_shape"] == {"input_ids": [7], "attention_mask": [7]} and description["program"]
    assert description["input_dtype"] == {"input_ids": "int64", "attention_mask": "int64"}
    assert json.loads((tmp_path / "student" / "student.json").read_text()) == description
    with torch.no_grad():
        wanted = trained(**inputs).logits
        assert torch.equal(load_student(tmp_path / "student", small())(**inputs).logits, wanted)
        program = torch.export.load(tmp_path / "student" / "student.pt2").module()
        for count in (1, 2, 20):
            found = program(**{name: values[:count] for name, values in inputs.items()})
            torch.testing.assert_close(found, wanted[:count], rtol=1e-5, atol=1e-6)


def test_a_student_with_logits_in_its_output_is_exported_for_one_tensor_too(tmp_path: Path) -> None:
    model, inputs = seeded(Attribute).eval(), torch.rand(5, 6)
    export_student(model, inputs[:1], tmp_path, None)
    program = torch.export.load(tmp_path / "student.pt2").module()
    torch.testing.assert_close(program(inputs), model(inputs).logits, rtol=1e-5, atol=1e-6)


def test_a_run_with_inputs_by_name_says_how_its_student_is_exported(tmp_path: Path) -> None:
    class Named:
        source = "tests.test_named_inputs:small"

        def __call__(self) -> Reader:
            return small()

    go(big, Named(), rule=unweighted, run=tmp_path / "run")
    assert CheckpointStore(tmp_path / "run").state["identity"]["student"]["network"] == Named.source
    call = lambda: export_run(tmp_path / "run", tmp_path / "student", trust_code=True)  # noqa: E731
    refused(ConfigError, call, "input_ids, attention_mask", "export_student(report.student, {…}, folder, source)")
    assert not (tmp_path / "student").exists()


def test_the_example_in_the_documents_runs(tmp_path: Path) -> None:
    page = (Path(__file__).parent.parent / "docs" / "distill.md").read_text()
    section = page.partition("\n## Inputs by name")[2].partition("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.S)
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "debiased" in done.stdout, done.stderr
