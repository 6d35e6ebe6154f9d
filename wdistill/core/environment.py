"""The environment of a run: versions, hardware, commit. Environment variables are never recorded."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("wdistill", "torch", "numpy", "scipy", "numba", "scikit-learn", "safetensors", "pyarrow")


def environment(device: str, threads: int) -> dict[str, Any]:
    """Plain text and numbers, in the order they are shown."""
    versions: dict[str, Any] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions | {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "device": _named(device),
        "threads": threads,
        "commit": commit_of(Path.cwd()),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _named(device: str) -> str:
    """A graphics card with its name."""
    if not device.startswith("cuda"):
        return device
    import torch

    return f"{device} ({torch.cuda.get_device_name(device)})"


def commit_of(folder: Path, *paths: str) -> str:
    """The commit of the repository that a folder is in, with a + where it has changes; "none" outside of git.

    `paths`: git's patterns of the files whose changes count, where not all do.
    """
    try:
        options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 10, "cwd": folder}
        git = ["git", "-c", "core.fsmonitor=false"]  # else git runs a program that the repository names
        head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], **options)
        dirty = subprocess.run([*git, "status", "--porcelain", "--untracked-files=no", "--", *paths], **options)
    except (OSError, subprocess.SubprocessError):
        return "none"
    if head.returncode != 0:
        return "none"
    return str(head.stdout).strip() + ("+" if dirty.stdout.strip() else "")


def code_of(*folders: Path) -> str:
    """A digest of all code in some folders, independent of the commit."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            digest.update(f"{folder.name}/{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]
