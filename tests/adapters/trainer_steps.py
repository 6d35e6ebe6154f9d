"""One optimizer step of a tiny BERT in the Trainer, in as many processes as it is started in; a program for the tests.

    python -m torch.distributed.run --nproc-per-node 2 … -m tests.adapters.trainer_steps FOLDER CASE …

A case is ROWS:BATCH:ACCUMULATION, and how: `across` and `each` with average_tokens_across_devices on and off, `naive` with
the mean of every batch. It writes FOLDER/CASE.npy, the parameters after the step.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments

from wdistill.adapters.table import TargetTable
from wdistill.adapters.transformers import WeightedTrainer, to_dataset

WORDS, CLASSES, RATE = 20, 3, 1.0


def table_of(rows: int) -> TargetTable:
    random = np.random.default_rng(0)
    return TargetTable(np.arange(rows), random.dirichlet(np.ones(CLASSES), rows), random.uniform(0, 1, rows))


def rows_of(rows: int) -> list[dict[str, Any]]:
    """Texts of different lengths, as numbers of words."""
    random = np.random.default_rng(1)
    lengths = random.integers(2, 9, rows)
    return [{"id": i, "input_ids": random.integers(2, WORDS, lengths[i]).tolist()} for i in range(rows)]


def padded(items: list[Any]) -> dict[str, torch.Tensor]:
    """A batch of rows of different lengths; the other columns as they are."""
    longest = max(len(item["input_ids"]) for item in items)
    ids = torch.tensor([[*item["input_ids"], *[0] * (longest - len(item["input_ids"]))] for item in items])
    others = {name: torch.tensor(np.array([item[name] for item in items])) for name in items[0] if name != "input_ids"}
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), **others}


def bert() -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return BertForSequenceClassification(BertConfig(vocab_size=WORDS, num_labels=CLASSES, **sizes, **off))


def arguments(folder: Any, batch: int = 4, accumulation: int = 1, **others: Any) -> TrainingArguments:
    """Plain gradient descent, and nothing else."""
    plain = {"optim": "sgd", "learning_rate": RATE, "lr_scheduler_type": "constant", "max_grad_norm": 0.0}
    quiet = {"report_to": [], "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    sizes = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulation}
    settings = {"num_train_epochs": 1, **plain, **quiet, **sizes, **others}
    return TrainingArguments(str(folder), **settings)


def parameters(model: Any) -> NDArray[np.float32]:
    return np.concatenate([value.detach().numpy().ravel() for value in model.parameters()])


class Naive(WeightedTrainer):
    """The mean of every batch, which Trainer and the processes take the mean of."""

    loss_is_scaled_for_ga = False

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
        return super().compute_loss(model, inputs, return_outputs, None)

    def get_batch_samples(self, *args: Any) -> Any:
        return super().get_batch_samples(*args)[0], None


def step(
    folder: Any, rows: int, batch: int, accumulation: int, trainer: type[WeightedTrainer] = WeightedTrainer, **others: Any
) -> NDArray[np.float32]:
    """The parameters after an epoch, which is one step."""
    model, data = bert(), to_dataset(table_of(rows), rows_of(rows))
    args = arguments(folder, batch, accumulation, accelerator_config={"even_batches": False}, **others)
    made = trainer(model, args, data_collator=padded, train_dataset=data)
    made.train()
    assert made.state.global_step == 1
    return parameters(model)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for case in sys.argv[2:]:
        *sizes, how = case.split(":")
        trainer = Naive if how == "naive" else WeightedTrainer
        after = step(sys.argv[1], *map(int, sizes), trainer, average_tokens_across_devices=how == "across")
        if torch.distributed.get_rank() == 0:
            assert torch.distributed.get_world_size() == 2
            np.save(Path(sys.argv[1]) / f"{case}.npy", after)
    torch.distributed.destroy_process_group()
