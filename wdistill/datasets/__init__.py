"""The paper's data sets, as arrays that are prepared once and mapped from the disk."""

from wdistill.datasets.prepared import Dataset, Rows, load_prepared, save_prepared

__all__ = ["Dataset", "Rows", "load_prepared", "save_prepared"]
