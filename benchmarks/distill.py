"""What training costs beyond a bare PyTorch loop, and what its parts cost.

    python -m benchmarks.distill [--quick] [--only 5,7]

One thread for each training, as the recipe has it. Contenders take turns in pairs; ratios are medians over the pairs.
"""

from __future__ import annotations

import copy
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from benchmarks.measuring import SEED, console, keep, main, say, table, verdict
from wdistill import CNN, MLP, Recipe, distill, shuffled
from wdistill.core import store
from wdistill.text.plain import BITS
from wdistill.training.augmentation import augment
from wdistill.training.data import Split
from wdistill.training.inputs import InMemory
from wdistill.training.loop import run_stage
from wdistill.training.models.text import TextBag
from wdistill.training.passes import batches_of
from wdistill.training.randomness import key, permutation
from wdistill.training.stage import Callbacks, Examples, Stage
from wdistill.training.weigher import Weigher
from wdistill.weights.debiased import debiased
from wdistill.weights.rules import fidelity, unweighted

PAIRS = 15
BATCH = 128


def pairs(
    ours: Callable[[], Any],
    peer: Callable[[], Any],
    count: int = PAIRS,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, float, float]:
    """Median seconds of both, and the median of their ratio within a pair; who goes first alternates."""
    times: list[tuple[float, float]] = []
    for turn in range(count + 1):
        found = {}
        for run in (ours, peer) if turn % 2 else (peer, ours):
            start = clock()
            run()
            found[run] = clock() - start
        if turn:  # the first pair warms up
            times.append((found[ours], found[peer]))
    mine, theirs = (statistics.median(column) for column in zip(*times, strict=True))
    return mine, theirs, statistics.median(one / other for one, other in times)


def made(n: int, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Inputs (n, …) and soft targets (n, 10)."""
    generator = torch.Generator().manual_seed(SEED)
    return torch.randn(n, *shape, generator=generator), torch.softmax(torch.randn(n, 10, generator=generator), 1)


# ---------------------------------------------------------------- 5: the loop


def bare_loop(model: nn.Module, inputs: Tensor, targets: Tensor, epochs: int) -> None:
    """What anybody writes: unweighted, unseeded, unsaved."""
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    model.train()
    for _ in range(epochs):
        order = torch.randperm(len(inputs))
        for first in range(0, len(inputs), BATCH):
            rows = order[first : first + BATCH]
            loss = nn.functional.cross_entropy(model(inputs[rows]), targets[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def our_loop(model: nn.Module, inputs: Tensor, targets: Tensor, epochs: int) -> None:
    examples = Examples(InMemory(inputs), targets, torch.ones(len(inputs)), np.arange(len(inputs)))
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage("student", Path(folder) / "student", examples, epochs, order="bench")
        run_stage(stage, model, Recipe(batch_size=BATCH, schedule="constant", device="cpu"), {})


def the_loop(shrink: int) -> None:
    rows = []
    cases = {
        "MLP 64–256–256–10": (MLP(64, 10, (256, 256)), made(25_600 // shrink, (64,)), 4),
        "CNN 28×28, 0.1 M parameters": (CNN(1, 10, 32), made(3_840 // shrink, (1, 28, 28)), 1),
    }
    for name, (model, (inputs, targets), epochs) in cases.items():
        say(f"5: {name}")
        mine, theirs, ratio = pairs(
            lambda m=model, x=inputs, t=targets, e=epochs: our_loop(copy.deepcopy(m), x, t, e),
            lambda m=model, x=inputs, t=targets, e=epochs: bare_loop(copy.deepcopy(m), x, t, e),
        )
        keep(5, case=name, seconds=mine, peer_seconds=theirs, ratio=ratio)
        rate = epochs * len(inputs) / mine
        rows.append((name, f"{rate:,.0f}", f"{100 * (ratio - 1):+.1f} %", "≤ +3 %", verdict(ratio <= 1.03)))
    table(
        "5  The training loop against a bare PyTorch loop, one thread", ("model", "rows/s", "slower by", "wanted", ""), rows
    )


# ---------------------------------------------------------------- 6: the input pipeline


class PerSample(Dataset):  # type: ignore[type-arg]
    """Flip and translation of one image at a time, as a transform in a Dataset does it."""

    def __init__(self, inputs: Tensor) -> None:
        self.inputs = inputs

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, row: int) -> Tensor:
        image = self.inputs[row]
        if torch.rand(()) < 0.5:
            image = image.flip(-1)
        height, width = image.shape[-2:]
        up, left = (int(torch.randint(-size // 10, size // 10 + 1, ())) for size in (height, width))
        padded = nn.functional.pad(image[None], (4, 4, 4, 4), mode="replicate")[0]
        return padded[:, 4 + up : 4 + up + height, 4 + left : 4 + left + width]


def the_inputs(shrink: int) -> None:
    inputs, _ = made(20_480 // shrink, (3, 32, 32))

    def ours() -> None:
        orders = list(batches_of(permutation(len(inputs), key(SEED, "order")), BATCH))
        for step, batch in enumerate(InMemory(inputs).batches(orders)):
            augment(batch, ("flip", "translate"), key(SEED, step))

    loader = DataLoader(PerSample(inputs), BATCH, shuffle=True)

    def theirs() -> None:
        for _ in loader:
            pass

    say("6: batches of 128 images 32×32×3, flipped and translated")
    mine, other, ratio = pairs(ours, theirs, 5)
    keep(6, seconds=mine, peer_seconds=other, ratio=1 / ratio)
    rates = (f"{len(inputs) / mine:,.0f}", f"{len(inputs) / other:,.0f}", f"{1 / ratio:.1f}×")
    head = ("wdistill images/s", "DataLoader images/s", "ratio", "wanted", "")
    rows = [(*rates, "≥ 5", verdict(1 / ratio >= 5))]
    table("6  Batches of 128 images 32×32×3, flip and translation, one process", head, rows)


# ---------------------------------------------------------------- 7: estimation


def the_estimation(shrink: int) -> None:
    n, m = 50_000 // shrink, 2_000
    inputs, targets = made(n + m, (1, 28, 28))
    model, labels = CNN(1, 10, 32), torch.randint(0, 10, (n + m,), generator=torch.Generator().manual_seed(SEED))
    teacher = torch.log(targets).numpy()
    splits = [
        Split(name, InMemory(inputs[part]), labels[part], np.arange(len(labels[part])))
        for name, part in (("validation", slice(n, None)), ("unlabeled", slice(0, n)))
    ]
    weigher = Weigher(debiased, *splits, teacher[n:], teacher[:n], None, 1.0, "float32", 0, n, Callbacks())
    say("7: one estimation and one epoch of a small CNN")
    weigher.estimate(model, 0)
    found = [weigher.estimate(model, 0).refresh for _ in range(3)]
    estimate, forward = (
        statistics.median(getattr(each, f"{what}_seconds") for each in found) for what in ("estimate", "forward")
    )
    start = time.perf_counter()
    our_loop(copy.deepcopy(model), inputs[:n], targets[:n], 1)
    epoch = time.perf_counter() - start
    keep(7, n=n, m=m, epoch_seconds=epoch, forward_seconds=forward, estimate_seconds=estimate)
    shown = (f"{epoch:.1f}", f"{forward:.1f} ({forward / epoch:.0%})", f"{estimate * 1e3:.0f} ({estimate / epoch:.2%})")
    head = ("epoch s", "forward pass s", "estimation ms", "wanted", "")
    rows = [(*shown, "estimation < 1 %", verdict(estimate / epoch < 0.01))]
    table(f"7  One estimation of {n:,} weights from {m:,} validation rows, against an epoch of the CNN", head, rows)


# ---------------------------------------------------------------- 8: arms side by side


def data_of(n: int) -> dict[str, tuple[Tensor, Tensor]]:
    """A made-up task of 10 classes in 64 dimensions, for whole runs."""
    generator = torch.Generator().manual_seed(SEED)
    labels = torch.randint(0, 10, (n + 3_000,), generator=generator)
    centers = torch.randn(10, 64, generator=generator)
    inputs = centers[labels] + 1.5 * torch.randn(n + 3_000, 64, generator=generator)
    sizes = {"labeled": 1_000, "validation": 1_000, "test": 1_000, "unlabeled": n}
    parts = torch.arange(n + 3_000).split(list(sizes.values()))
    return {name: (inputs[rows], labels[rows]) for name, rows in zip(sizes, parts, strict=True)}


RULES = (debiased, unweighted, shuffled(), fidelity)


def a_run(folder: str, n: int, epochs: int, workers: int) -> tuple[float, float]:
    """Seconds of a whole run, and of its arms alone."""
    recipe = Recipe(teacher_epochs=1, student_epochs=1, epochs=epochs, device="cpu", workers=workers)
    start = time.perf_counter()
    distill(MLP(64, 10, (256, 256)), MLP(64, 10, (256, 256)), **data_of(n), rule=list(RULES), recipe=recipe, run=folder)
    return time.perf_counter() - start, seconds_of_arms(folder)


def seconds_of_arms(folder: str) -> float:
    """From the last label to the last arm, by the times of their files."""
    labels, arms = (
        max(path.stat().st_mtime for path in Path(folder).glob(names))
        for names in ("labels/generation-*.json", "arms/*/generation-*.json")
    )
    return arms - labels


def side_by_side(shrink: int) -> None:
    n, epochs = 20_000, 24 // min(shrink, 8)
    say("8: a run of four arms, one after the other and two at a time")
    with tempfile.TemporaryDirectory() as folder:
        turns = [[a_run(f"{folder}/{workers}-{turn}", n, epochs, workers) for workers in (1, 2)] for turn in range(2)]
    rows = []
    for part, what in enumerate(("the whole run, with the start of the processes and the page", "its arms")):
        one, two = (statistics.median(turn[column][part] for turn in turns) for column in (0, 1))
        keep(8, case=what, arms=4, seconds=two, peer_seconds=one, ratio=one / two)
        wanted = ("≥ 1.7", verdict(one / two >= 1.7)) if part else ("", "")
        rows.append((what, f"{one:.1f}", f"{two:.1f}", f"{one / two:.2f}×", *wanted))
    head = ("what", "one after the other s", "two at a time s", "ratio", "wanted", "")
    table("8  Four arms of an MLP, one after the other and two at a time", head, rows)


# ---------------------------------------------------------------- 9: safety


def safety(shrink: int) -> None:
    """Time inside the store's writes, digests and syncs, as a share of a run at the default interval."""
    spent = 0.0

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal spent
            start = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                spent += time.perf_counter() - start

        return call

    say("9: what digests and syncs cost")
    plain = store.write_bytes, store.digest
    store.write_bytes, store.digest = timed(plain[0]), timed(plain[1])
    try:
        with tempfile.TemporaryDirectory() as folder:
            whole, _ = a_run(f"{folder}/run", 20_000, 24 // min(shrink, 8), 1)
    finally:
        store.write_bytes, store.digest = plain
    keep(9, seconds=spent, run_seconds=whole, share=spent / whole)
    rows = [(f"{whole:.1f}", f"{spent * 1e3:.0f}", f"{spent / whole:.2%}", "≤ 2 %", verdict(spent / whole <= 0.02))]
    table(
        "9  Digests, writes and syncs of a run at the default interval", ("run s", "safety ms", "share", "wanted", ""), rows
    )


# ---------------------------------------------------------------- 12: arms in a stack


def texts_of(n: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Rows of a bag of words: 32 to 128 of 20,000 columns each, which tell nothing about their two classes."""
    generator = torch.Generator().manual_seed(SEED)
    sizes = {"labeled": 500, "validation": 500, "test": 500, "unlabeled": n}
    total = sum(sizes.values())
    columns = torch.randint(1, 20_000, (total, 128), generator=generator)
    lengths = torch.randint(32, 129, (total, 1), generator=generator)
    rows = torch.where(torch.arange(128) < lengths, (1 << (BITS + 2)) + columns, 0).int()
    labels = torch.randint(0, 2, (total,), generator=generator)
    parts = torch.arange(total).split(list(sizes.values()))
    return {name: (rows[part], labels[part]) for name, part in zip(sizes, parts, strict=True)}


def stacked_arms(shrink: int) -> None:
    recipe = Recipe(teacher_epochs=0, student_epochs=0, device="cpu")
    points, texts = data_of(20_000 // shrink), texts_of(10_000 // shrink)
    cases: dict[str, tuple[nn.Module, Any, Recipe]] = {
        "MLP 64–32–32–10": (MLP(64, 10, (32, 32)), points, replace(recipe, epochs=10)),
        "MLP 64–128–10": (MLP(64, 10, (128,)), points, replace(recipe, epochs=10)),
        "bag of 20,000 words": (TextBag(2, 20_000), texts, replace(recipe, epochs=10, batch_size=256)),
    }
    rows = []
    for name, (student, data, own) in cases.items():
        say(f"12: {name}, one arm and four")
        four, one, ratio = pairs(
            lambda s=student, d=data, r=own: a_comparison(s, d, r, 4),
            lambda s=student, d=data, r=own: a_comparison(s, d, r, 1),
            5,
            time.process_time,
        )
        keep(12, case=name, arms=4, seconds=four, peer_seconds=one, ratio=ratio)
        rows.append((name, f"{one:.2f}", f"{four:.2f}", f"{ratio:.2f}×", "≤ 2", verdict(ratio <= 2)))
    head = ("student", "one arm s", "four arms s", "four / one", "wanted", "")
    table("12  A call of distill with four arms of a small student, against one; seconds of the processor", head, rows)


def a_comparison(student: nn.Module, data: Any, recipe: Recipe, arms: int) -> None:
    """So many arms of a student that comes trained, with a teacher that is a table."""
    classes, random = int(data["labeled"][1].max()) + 1, np.random.default_rng(SEED)
    teacher = {name: random.dirichlet(np.ones(classes), len(labels)) for name, (_, labels) in data.items()}
    distill(teacher, student, **data, rule=list(RULES[:arms]), recipe=recipe)


TABLES = {5: the_loop, 6: the_inputs, 7: the_estimation, 8: side_by_side, 9: safety, 12: stacked_arms}

if __name__ == "__main__":
    torch.set_num_threads(1)
    console.print("one thread for each training", highlight=False)
    main("benchmarks.distill", "Measure training against a bare loop, and its parts.", TABLES)
