"""What the tests of commands share: a small distillation as users type it, and the processes that a command has started."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from tests.killing import splits


def distilling(folder: Path) -> list[object]:
    """`distill` by networks of a module in this folder, from which it has to be started."""
    network = "torch.nn.Sequential(torch.nn.Linear(6, {}), torch.nn.ReLU(), torch.nn.Linear({}, 3))"
    lines = [f"def {name}():\n    return {network.format(n, n)}" for name, n in (("teacher", 8), ("student", 4))]
    (folder / "my_networks.py").write_text("\n".join(["import torch", *lines]))
    for name, (inputs, labels) in splits().items():
        np.savez(folder / f"{name}.npz", inputs=inputs.numpy(), label=labels.numpy())
    words: list[object] = ["distill", "--teacher", "my_networks:teacher", "--student", "my_networks:student"]
    words += [word for name in splits() for word in (f"--{name}", folder / f"{name}.npz")]
    return [*words, "--device", "cpu", "--teacher-epochs", 2, "--student-epochs", 2]


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, those that they have started, and so on."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found[1:]


def said_by(pid: int, file: str) -> bytes:
    """The command line or the environment of a process; nothing where it has ended."""
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return b""


def started(pid: int, word: bytes, file: str = "cmdline") -> list[int]:
    """Those among the descendants of a process whose command line, or environment, has a word."""
    return [each for each in descendants(pid) if word in said_by(each, file)]


def mine(word: bytes) -> list[int]:
    """The same among those that this test has started."""
    return started(os.getpid(), word)
