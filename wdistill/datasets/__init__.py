"""The paper's data sets, as arrays that are prepared once and mapped from the disk."""

from pathlib import Path

from wdistill.datasets.locating import folder_of, root_of
from wdistill.datasets.prepared import Dataset, Rows, load_prepared, save_prepared
from wdistill.datasets.splitting import splits

__all__ = ["Dataset", "Rows", "load", "load_prepared", "save_prepared", "splits"]


def load(name: str, root: Path | None = None, size: int | None = None) -> Dataset:
    """A data set by its name."""
    return load_prepared(folder_of(name, root_of(root), size))
