"""The Trainer of Hugging Face: the gradient is the weighted mean over a step's rows, however they are dealt out."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray

import wdistill

transformers = pytest.importorskip("transformers")
import datasets  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402
from transformers import Trainer, TrainerCallback  # noqa: E402

from tests.adapters.trainer_steps import CLASSES, RATE, arguments, bert, padded, parameters, rows_of, step, table_of  # noqa: E402
from tests.adapters.trainer_steps import Naive as MeanOfBatches  # noqa: E402
from tests.texts import reviews  # noqa: E402
from wdistill import debiased  # noqa: E402
from wdistill.adapters.refresh import Gold, Pool, Refresh, weights_of  # noqa: E402
from wdistill.adapters.table import TargetTable, read_targets  # noqa: E402
from wdistill.adapters.torch import WithTargets  # noqa: E402
from wdistill.adapters.transformers import RefreshWeights, WeightedTrainer, to_dataset  # noqa: E402
from wdistill.adapters.weights_file import save_weights  # noqa: E402
from wdistill.core.errors import CheckpointError, ConfigError, FileError, InputError  # noqa: E402

torch.set_num_threads(1)
transformers.utils.logging.set_verbosity_error()


def mean_loss(model: Any, rows: int) -> torch.Tensor:
    """By the definition: the mean over rows of weight × soft cross-entropy."""
    table, batch = table_of(rows), padded(rows_of(rows))
    log = torch.log_softmax(model(batch["input_ids"], batch["attention_mask"]).logits.double(), 1)
    return -(torch.tensor(table.targets) * log).sum(1) @ torch.tensor(table.weight) / rows


def plain_step(rows: int) -> NDArray[np.float32]:
    """The parameters after one step of plain gradient descent on the mean over all rows."""
    model = bert()
    mean_loss(model, rows).backward()
    torch.optim.SGD(model.parameters(), RATE).step()
    return parameters(model)


# the gradient ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("across", [True, False])
@pytest.mark.parametrize(("batch", "accumulation"), [(16, 1), (4, 4), (5, 4)])
def test_a_step_is_that_of_a_plain_loop(batch: int, accumulation: int, across: bool, tmp_path: Path) -> None:
    """5, 5, 5 and 1 rows too: the last batch counts by its row."""
    found = step(tmp_path, 16, batch, accumulation, average_tokens_across_devices=across)
    np.testing.assert_allclose(found, plain_step(16), rtol=0, atol=1e-6)
    assert np.abs(found - parameters(bert())).max() > 0.01, "a step that can be seen"


def test_two_processes_take_the_step_of_one(tmp_path: Path) -> None:
    """14:4:2 are 4 + 4 rows in one process, 4 + 2 in the other: the mean of every batch would be another step."""
    sizes = ["16:8:1", "16:2:4", "14:4:2"]
    cases = [*(f"{each}:{how}" for each in sizes for how in ("across", "each")), "14:4:2:naive"]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run = [*command, "-m", "tests.adapters.trainer_steps", str(tmp_path), *cases]
    done = subprocess.run(run, cwd=Path(__file__).parents[2], capture_output=True, encoding="utf-8", timeout=400)
    assert done.returncode == 0, done.stderr
    *found, naive = (np.load(tmp_path / f"{case}.npy") - plain_step(int(case.split(":")[0])) for case in cases)
    assert np.abs(found).max() < 1e-6 < 1e-3 < np.abs(naive).max()


@pytest.mark.parametrize(("batch", "right"), [(4, True), (5, False)])
def test_the_mean_of_each_batch_would_be_another_step_where_the_last_is_short(
    batch: int, right: bool, tmp_path: Path
) -> None:
    naive = step(tmp_path, 16, batch, 4, MeanOfBatches)
    assert (np.abs(naive - plain_step(16)).max() < 1e-6) == right
    assert right or np.abs(naive - plain_step(16)).max() > 1e-3


class Naive(Trainer):
    """As it is written by hand: soft targets in a column `labels`, and their mean loss."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **others: Any) -> Any:
        targets = inputs.pop("labels")
        outputs = model(**inputs)
        loss = torch.nn.functional.cross_entropy(outputs.logits, targets)
        return (loss, outputs) if return_outputs else loss


def moved(trainer: type[Trainer], folder: Path, accumulation: int) -> NDArray[np.float32]:
    """The step that a trainer takes with unweighted targets."""
    table, model = table_of(16), bert()
    rows = [{**row, "labels": target.astype(np.float32)} for row, target in zip(rows_of(16), table.targets, strict=True)]
    data: Any = rows
    if trainer is WeightedTrainer:
        data = to_dataset(TargetTable(table.ids, table.targets, np.ones(16)), rows_of(16))
    args = arguments(folder, 16 // accumulation, accumulation)
    trainer(model, args, data_collator=padded, train_dataset=data).train()
    return parameters(model) - parameters(bert())


def test_soft_targets_named_labels_would_make_the_gradient_four_times_too_large(tmp_path: Path) -> None:
    wanted = moved(Naive, tmp_path, 1)
    naive = moved(Naive, tmp_path, 4)
    assert (naive @ wanted) / (wanted @ wanted) == pytest.approx(4.0, abs=1e-3)
    np.testing.assert_allclose(moved(WeightedTrainer, tmp_path, 4), wanted, rtol=0, atol=1e-6)


# the columns -----------------------------------------------------------------------------------------------------------


def test_the_default_trainer_would_drop_the_weights(tmp_path: Path) -> None:
    table = table_of(6)
    columns = {name: [row[name] for row in rows_of(6)] for name in ("id", "input_ids")}
    data = datasets.Dataset.from_dict({**columns, "targets": table.targets.tolist(), "weight": table.weight.tolist()})
    naive = Trainer(bert(), arguments(tmp_path), data_collator=padded, train_dataset=data)
    assert set(next(iter(naive.get_train_dataloader()))) == {"input_ids", "attention_mask"}
    ours = WeightedTrainer(
        bert(),
        arguments(tmp_path),
        data_collator=padded,
        train_dataset=to_dataset(table, data.select_columns(["id", "input_ids"])),
    )
    assert set(next(iter(ours.get_train_dataloader()))) == {"input_ids", "attention_mask", "targets", "weight"}


def test_float_labels_would_silently_become_multi_label(tmp_path: Path) -> None:
    model, table, batch = bert(), table_of(4), padded(rows_of(4))
    targets = torch.tensor(table.targets).float()
    found = model(batch["input_ids"], batch["attention_mask"], labels=targets)
    assert model.config.problem_type == "multi_label_classification"
    bce = torch.nn.functional.binary_cross_entropy_with_logits(found.logits, targets)
    assert torch.equal(found.loss, bce) and abs((found.loss - mean_loss(model, 4)).item()) > 0.1
    clean = bert()
    trainer = WeightedTrainer(clean, arguments(tmp_path), data_collator=padded, train_dataset=to_dataset(table, rows_of(4)))
    trainer.train()
    assert clean.config.problem_type is None


@pytest.mark.parametrize("kind", ["a datasets.Dataset", "a dict", "a dict and ids", "a list"])
def test_every_row_has_the_targets_and_the_weight_of_its_id(kind: str) -> None:
    table, order = table_of(9), np.random.default_rng(0).permutation(9)
    rows = [rows_of(9)[i] for i in order]
    columns = {name: [row[name] for row in rows] for name in ("id", "input_ids")}
    ids = None
    given: Any = {"a datasets.Dataset": datasets.Dataset.from_dict(columns), "a dict": columns, "a list": rows}.get(kind)
    if kind == "a dict and ids":
        given, ids = {"input_ids": columns["input_ids"]}, order
    data = to_dataset(table, given, ids)
    batch = padded(data.__getitems__(list(range(9))))
    assert set(batch) == {"input_ids", "attention_mask", "targets", "weight"}
    assert np.array_equal(batch["targets"].numpy(), table.targets[order].astype(np.float32))
    assert np.array_equal(batch["weight"].numpy(), table.weight[order].astype(np.float32))
    assert torch.equal(batch["input_ids"], padded(rows)["input_ids"])


def test_without_ids_nothing_is_joined() -> None:
    with pytest.raises(ConfigError, match="rows without ids"):
        to_dataset(table_of(2), {"input_ids": [[1], [2]]})


# evaluation ------------------------------------------------------------------------------------------------------------


def test_gold_is_evaluated_by_its_labels_and_targets_by_the_weighted_loss(tmp_path: Path) -> None:
    model, table, rows = bert(), table_of(8), rows_of(8)
    gold = [{**row, "labels": i % CLASSES} for i, row in enumerate(rows)]
    seen: list[Any] = []

    def metrics(found: Any) -> dict[str, float]:
        seen.append(found.label_ids)
        return {"rows": float(len(found.predictions))}

    args = arguments(tmp_path, per_device_eval_batch_size=4)
    trainer = WeightedTrainer(model, args, data_collator=padded, compute_metrics=metrics)
    batch = padded(rows)
    with torch.no_grad():
        logits = model.eval()(batch["input_ids"], batch["attention_mask"]).logits
        truth = torch.nn.functional.cross_entropy(logits, torch.arange(8) % CLASSES).item()
        weighted = mean_loss(model, 8).item()
    of_gold, of_targets = trainer.evaluate(gold), trainer.evaluate(to_dataset(table, rows))
    assert of_gold["eval_rows"] == of_targets["eval_rows"] == 8
    assert of_gold["eval_loss"] == pytest.approx(truth, abs=1e-6)
    assert of_targets["eval_loss"] == pytest.approx(weighted, abs=1e-6)
    assert seen[0].tolist() == [i % CLASSES for i in range(8)]
    assert np.array_equal(seen[1], table.targets.astype(np.float32))
    both = trainer.evaluate(to_dataset(table, gold))
    assert both["eval_loss"] == pytest.approx(weighted, abs=1e-6) and seen[2].tolist() == seen[0].tolist()
    found = trainer.predict(rows)
    np.testing.assert_allclose(found.predictions, logits.numpy(), rtol=0, atol=1e-6)
    assert found.label_ids is None


def test_with_names_of_labels_set_rows_that_have_labels_alone_would_not_be_evaluated(tmp_path: Path) -> None:
    gold = [{**row, "labels": i % CLASSES} for i, row in enumerate(rows_of(8))]
    names = {"label_names": ["labels", "targets", "weight"]}
    naive = Trainer(bert(), arguments(tmp_path, **names), data_collator=padded).evaluate(gold)
    ours = WeightedTrainer(bert(), arguments(tmp_path, **names), data_collator=padded).evaluate(gold)
    assert "eval_loss" not in naive and ours["eval_loss"] > 0


class Unlabeled(torch.nn.Module):
    """A network of one's own, whose forward has no labels."""

    def __init__(self) -> None:
        super().__init__()
        self.bert = bert()

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        return self.bert(input_ids=input_ids, attention_mask=attention_mask)


def test_a_module_whose_forward_has_no_labels_is_evaluated_by_the_weighted_loss(tmp_path: Path) -> None:
    model, table, rows = Unlabeled(), table_of(8), rows_of(8)
    data, batch = to_dataset(table, rows), padded(rows)
    trainer = WeightedTrainer(model, arguments(tmp_path), data_collator=padded, train_dataset=data)
    with torch.no_grad():
        wanted, logits = mean_loss(model.eval(), 8).item(), model(batch["input_ids"], batch["attention_mask"]).logits.numpy()
    assert trainer.evaluate(data)["eval_loss"] == pytest.approx(wanted, abs=1e-6)
    found = trainer.predict(data)
    np.testing.assert_allclose(found.predictions, logits, rtol=0, atol=1e-6)
    assert np.array_equal(found.label_ids, table.targets.astype(np.float32))
    without = trainer.predict(rows)
    np.testing.assert_allclose(without.predictions, logits, rtol=0, atol=1e-6)
    assert without.label_ids is None


def test_texts_of_different_lengths_weigh_as_the_documentation_has_it(tmp_path: Path) -> None:
    """What a tokenizer returns is columns, which a DataLoader cannot read row by row."""
    columns = {"input_ids": [row["input_ids"] for row in rows_of(16)]}
    with pytest.raises(KeyError):
        next(iter(DataLoader(columns, 4, collate_fn=padded)))
    gold, pool = gold_and_pool(16)
    rows = DataLoader(datasets.Dataset.from_dict(columns), 4, collate_fn=padded)
    table = table_of(16)
    both = TargetTable(np.arange(20), np.concatenate([table.targets, table.targets[:4]]), np.ones(20))
    data = to_dataset(both, [*rows_of(16), *({**row, "id": 16 + row["id"]} for row in rows_of(4))])
    with pytest.raises(InputError, match="pass ids="):
        Refresh(data, debiased, gold, Pool(rows, pool.teacher))
    Refresh(data, debiased, gold, Pool(rows, pool.teacher), np.arange(16))(bert())
    wanted = weights_of(debiased, bert(), gold, pool)
    np.testing.assert_allclose(data.weight[:16].numpy(), wanted, atol=1e-4)
    assert (data.weight[16:] == 1).all()


def test_what_would_be_silently_another_loss_is_refused(tmp_path: Path) -> None:
    args, data = arguments(tmp_path), to_dataset(table_of(4), rows_of(4))
    with pytest.raises(ConfigError, match="label_smoothing_factor: a loss beside"):
        WeightedTrainer(bert(), arguments(tmp_path, label_smoothing_factor=0.1), train_dataset=data)
    with pytest.raises(ConfigError, match="compute_loss_func: a loss beside"):
        WeightedTrainer(bert(), args, train_dataset=data, compute_loss_func=lambda *a, **b: 0)
    with pytest.raises(InputError, match="a batch without targets and weights"):
        WeightedTrainer(bert(), args, data_collator=padded, train_dataset=rows_of(4)).train()
    four = TargetTable(np.arange(4), np.full((4, 4), 0.25), np.ones(4))
    with pytest.raises(InputError, match="num_labels=4"):
        WeightedTrainer(bert(), args, data_collator=padded, train_dataset=to_dataset(four, rows_of(4))).train()


# weights that follow the student ---------------------------------------------------------------------------------------


def gold_and_pool(rows: int) -> tuple[Gold, Pool]:
    random = np.random.default_rng(5)
    batch, teacher = padded(rows_of(40)), random.dirichlet(np.ones(CLASSES), 40)
    return Gold(batch, random.integers(0, CLASSES, 40), teacher), Pool(padded(rows_of(rows)), table_of(rows).targets)


class Look(TrainerCallback):
    """What the weights are at each epoch's beginning, and what the core makes of the student then."""

    def __init__(self, refresh: Refresh) -> None:
        self.refresh = refresh
        self.weights: list[NDArray[np.float32]] = []
        self.wanted: list[NDArray[np.float32]] = []

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.weights.append(self.refresh.data.weight.numpy().copy())
        new = weights_of(self.refresh.rule, kwargs["model"], self.refresh.gold, self.refresh.pool)
        self.wanted.append(new.astype(np.float32))


def test_weights_are_those_of_the_core_after_every_second_epoch(tmp_path: Path) -> None:
    data = to_dataset(table_of(16), rows_of(16))
    refresh = Refresh(data, debiased, *gold_and_pool(16))
    look = Look(refresh)
    args = arguments(tmp_path, num_train_epochs=4)
    callbacks = [RefreshWeights(refresh, every=2), look]
    WeightedTrainer(bert(), args, data_collator=padded, train_dataset=data, callbacks=callbacks).train()
    first = table_of(16).weight.astype(np.float32)
    assert np.array_equal(look.weights[0], first) and np.array_equal(look.weights[1], first)
    assert np.array_equal(look.weights[2], look.wanted[2]) and not np.array_equal(look.weights[2], first)
    assert np.array_equal(look.weights[3], look.weights[2]) and np.array_equal(refresh.data.weight.numpy(), look.weights[3])
    with pytest.raises(ConfigError, match="no schedule"):
        RefreshWeights(refresh, every=0)


EPOCH = 4  # steps: 16 rows in batches of 4
RESUMED = [  # every so many epochs; when checkpoints are made; that from which training is resumed
    (1, {"save_strategy": "epoch"}, EPOCH),
    (2, {"save_strategy": "epoch"}, 3 * EPOCH),  # the weights are those of epoch 2
    (2, {"save_strategy": "steps", "save_steps": 2}, 2 * EPOCH),  # saved before the epoch's end was told
    (2, {"save_strategy": "steps", "save_steps": 3}, 9),  # in the middle of epoch 3
    (1, {"save_strategy": "steps", "save_steps": 3}, 3),
]


def trained(folder: Path, saving: dict[str, Any], callback: Any, **resumed: Any) -> NDArray[np.float32]:
    """The parameters after four epochs."""
    model, data = bert(), to_dataset(table_of(16), rows_of(16))
    args = arguments(folder, num_train_epochs=4, **saving)
    callbacks = [callback(Refresh(data, debiased, *gold_and_pool(16)))]
    trainer = WeightedTrainer(model, args, data_collator=padded, train_dataset=data, callbacks=callbacks)
    trainer.train(**resumed)
    return parameters(model)


@pytest.mark.parametrize(("every", "saving", "step"), RESUMED)
def test_a_resumed_run_has_the_weights_it_had(every: int, saving: dict[str, Any], step: int, tmp_path: Path) -> None:
    callback = partial(RefreshWeights, every=every)
    whole = trained(tmp_path, saving, callback)
    again = trained(tmp_path, saving, callback, resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
    assert np.array_equal(whole, again)
    assert np.array_equal(whole, trained(tmp_path, saving, callback, resume_from_checkpoint=True))


class Estimated(RefreshWeights):
    """The naive resumption: weights of the student as it is, in place of those it was trained with."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.checkpoint:
            self.refresh(kwargs["model"])


@pytest.mark.parametrize(("every", "saving", "step"), [RESUMED[1], RESUMED[3]])
def test_weights_of_the_resumed_student_would_be_others(
    every: int, saving: dict[str, Any], step: int, tmp_path: Path
) -> None:
    whole = trained(tmp_path, saving, partial(RefreshWeights, every=every))
    folder = str(tmp_path / f"checkpoint-{step}")
    naive = trained(tmp_path, saving, partial(Estimated, every=every), resume_from_checkpoint=folder)
    assert np.abs(naive - whole).max() > 1e-5


def test_a_checkpoint_without_weights_or_with_those_of_other_rows_is_refused(tmp_path: Path) -> None:
    saving = {"save_strategy": "epoch"}
    trained(tmp_path, saving, RefreshWeights)
    checkpoint = tmp_path / "checkpoint-8"
    file = checkpoint / "wdistill_weights.safetensors"
    other = TargetTable(np.arange(16) + 1, table_of(16).targets, table_of(16).weight)
    save_weights(WithTargets(rows_of(16), other, other.ids), 2, checkpoint)
    with pytest.raises(CheckpointError, match="weights of other rows"):
        trained(tmp_path, saving, RefreshWeights, resume_from_checkpoint=str(checkpoint))
    for content in (b"", file.read_bytes()[:60]):
        file.write_bytes(content)
        with pytest.raises(CheckpointError, match="not a safetensors file"):
            trained(tmp_path, saving, RefreshWeights, resume_from_checkpoint=str(checkpoint))
    file.unlink()
    with pytest.raises(FileError, match="this checkpoint has no weights"):
        trained(tmp_path, saving, RefreshWeights, resume_from_checkpoint=str(checkpoint))


# from a file to a student ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_student_trains_from_a_file_with_a_tokenizer_and_padding(tmp_path: Path) -> None:
    texts, labels = reviews(900, tilt=4.0)
    random = np.random.default_rng(0)
    answers = np.where(random.random(900) < 0.75, labels, 1 - labels)
    ids = [f"text {i}" for i in random.permutation(900)]
    gold = {"id": ids[:100], "label": [str(label) for label in labels[:100]]}
    found = wdistill.correct(
        {"id": ids[:700], "label": [str(a) for a in answers[:700]], "text": texts[:700]}, gold, text="text"
    )
    pq.write_table(found.table, tmp_path / "targets.parquet")

    words = {word: i for i, word in enumerate(["[PAD]", "[UNK]", *(f"w{number}" for number in range(800))])}
    split = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    split.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=split, pad_token="[PAD]", unk_token="[UNK]")
    data = to_dataset(read_targets(tmp_path / "targets.parquet"), tokenizer(texts[:700]), ids[:700])
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    model = transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=802, num_labels=2, **sizes))
    args = arguments(
        tmp_path, 16, 2, optim="adamw_torch", learning_rate=3e-3, num_train_epochs=6, per_device_eval_batch_size=64
    )
    trainer = WeightedTrainer(model, args, train_dataset=data, processing_class=tokenizer)
    trainer.train()
    encoded = tokenizer(texts[700:])
    rows = [dict(zip(encoded, row, strict=True)) for row in zip(*encoded.values(), strict=True)]
    right = float(np.mean(trainer.predict(rows).predictions.argmax(1) == labels[700:]))
    assert right > 0.8 > np.mean(answers == labels), f"{right:.1%}: more than the teacher"
