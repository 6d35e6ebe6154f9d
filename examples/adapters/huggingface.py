"""A tiny BERT in the Trainer, on a teacher's corrected targets:  python examples/adapters/huggingface.py [TWEETS]

TWEETS is tweets.jsonl of TweetEval-Annotated: 3,000 tweets, which of four emoji they had, and what an LLM answered.
Without it, reviews are made up whose words tell the truth, and a teacher that is right on some 75 %. The network is made
from a configuration and knows no word before; nothing is downloaded.
"""

from __future__ import annotations

import json
import logging
import sys
from collections import Counter
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import transformers
from paired import paired
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    PrinterCallback,
    TrainingArguments,
)

import wdistill
from wdistill.adapters.table import read_targets
from wdistill.adapters.transformers import WeightedTrainer, to_dataset

TRAPS = (
    "the Trainer drops the column `weight`",
    "float `labels` silently become a multi-label loss",
    "soft targets named `labels` make accumulated gradients too large",
    "a short last batch counts as a whole one where gradients accumulate",
    "processes with batches of different sizes count alike",
    "with label_names set, rows that have labels alone are not evaluated",
    "weights of a refresh are lost when a run is resumed",
)
TRIALS = range(5)
BASE = "teacher's targets + gold"


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts, their truth, and the class that the teacher answered, by row."""

    texts: list[str]
    labels: np.ndarray
    answers: np.ndarray
    classes: int
    name: str


def tweets(path: Path) -> Texts:
    with path.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    truth, answers = (np.array([row[name] for row in rows]) for name in ("ground_truth_label", "annotation_llm"))
    return Texts([row["text"] for row in rows], truth, answers, 4, "tweets")


def made_up(rows: int = 900) -> Texts:
    """Reviews whose words tell the truth, mostly; the teacher errs more often on negative ones."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, rows)
    words = (("dull", "tedious", "flat", "noisy"), ("superb", "moving", "clever", "warm"))
    filler = ("film", "story", "people", "music", "rain", "city", "home", "way")
    texts = [
        " ".join(
            random.permutation([*random.choice(filler, 8), *random.choice(words[k], 3), *random.choice(words[1 - k], 1)])
        )
        for k in labels
    ]
    wrong = random.random(rows) < np.where(labels == 1, 0.1, 0.4)
    return Texts(texts, labels, np.where(wrong, 1 - labels, labels), 2, "made-up reviews")


def tokenizer_of(texts: list[str]) -> PreTrainedTokenizerFast:
    """Words that occur twice, split at spaces."""
    counts = Counter(word for text in texts for word in text.lower().split())
    words = ["[PAD]", "[UNK]", *sorted(word for word, count in counts.items() if count > 1)]
    split = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    split.normalizer, split.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=split, pad_token="[PAD]", unk_token="[UNK]", model_max_length=64)


def train(targets: Any, ids: np.ndarray, given: Texts, seed: int) -> WeightedTrainer:
    """A student of the rows `ids`; targets as `wdistill correct` writes them, a file or what it returns."""
    tokenizer = tokenizer_of([given.texts[row] for row in ids])
    encoded = tokenizer([given.texts[row] for row in ids], truncation=True)
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer), num_labels=given.classes, **sizes))
    quiet = {"report_to": [], "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    pace = {"per_device_train_batch_size": 32, "num_train_epochs": 5, "learning_rate": 3e-3, "seed": seed}
    with TemporaryDirectory() as folder:
        args = TrainingArguments(folder, **quiet, **pace)
        # --- wdistill
        data = to_dataset(read_targets(targets), encoded, ids)
        trainer = WeightedTrainer(model, args, train_dataset=data, processing_class=tokenizer)
        # ---
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return trainer


def right(trainer: WeightedTrainer, given: Texts, rows: np.ndarray) -> float:
    """The share of rows that a student gets right."""
    encoded = trainer.processing_class([given.texts[row] for row in rows], truncation=True)
    items = [dict(zip(encoded, values, strict=True)) for values in zip(*encoded.values(), strict=True)]
    return float(np.mean(trainer.predict(items).predictions.argmax(1) == given.labels[rows]))


def trials(given: Texts) -> str:
    """Students on four kinds of targets; a third of the rows is the test."""
    arms: dict[str, list[float]] = {}
    one_hot, names = np.eye(given.classes), [str(number) for number in range(given.classes)]
    for seed in TRIALS:
        order = np.random.default_rng(seed).permutation(len(given.labels))
        gold, test, pool = np.split(order, np.cumsum([100, len(order) // 3]))
        ids = np.concatenate([gold, pool])
        answers = {"id": ids, "text": [given.texts[row] for row in ids], "label": given.answers[ids].astype(str)}
        with redirect_stderr(StringIO()):  # what was read, line by line
            known = {"id": gold, "label": given.labels[gold].astype(str)}
            best = wdistill.correct(answers, known, text="text", classes=names)
        by_id = dict(zip(best.table["id"].to_pylist(), best.table["targets"].to_pylist(), strict=True))
        mixed = np.concatenate([gold, np.random.default_rng(seed).permutation(pool)])  # ids of other rows
        said = np.concatenate([one_hot[given.labels[gold]], one_hot[given.answers[pool]]])
        students = {
            BASE: train({"id": ids, "targets": said}, ids, given, seed),
            "best targets": train(best, ids, given, seed),
            "best targets, of other rows": train(
                {"id": mixed, "targets": [by_id[str(key)] for key in ids]}, ids, given, seed
            ),
            "labels of gold": train({"id": gold, "targets": one_hot[given.labels[gold]]}, gold, given, seed),
        }
        for arm, student in students.items():
            arms.setdefault(arm, []).append(right(student, given, test))
        arms.setdefault("the teacher itself", []).append(float(np.mean(given.answers[test] == given.labels[test])))
    rows = f"{len(pool):,} rows of the teacher, 100 of gold, {len(test):,} of the test, {len(TRIALS)} trials"
    return f"{given.classes} classes, {rows}\n\n{paired(arms, BASE, given.name)}\n"


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    print(trials(tweets(Path(sys.argv[1])) if len(sys.argv) > 1 else made_up()))
