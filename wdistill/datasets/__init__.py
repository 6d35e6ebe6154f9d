"""The paper's data sets, as arrays that are prepared once and mapped from the disk."""

from wdistill.datasets.catalog import DATASETS, DatasetInfo, load, prepare
from wdistill.datasets.prepared import Dataset, ImageSplit, data_root, load_prepared, save_prepared, splits

__all__ = [
    "DATASETS",
    "Dataset",
    "DatasetInfo",
    "ImageSplit",
    "data_root",
    "load",
    "load_prepared",
    "prepare",
    "save_prepared",
    "splits",
]
