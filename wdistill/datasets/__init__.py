"""The paper's data sets, as arrays that are prepared once and mapped from the disk."""

from wdistill.datasets.catalog import DATASETS, Kind, load, prepare
from wdistill.datasets.locating import root_of
from wdistill.datasets.prepared import Dataset, Rows, load_prepared, save_prepared
from wdistill.datasets.splitting import splits

__all__ = ["DATASETS", "Dataset", "Kind", "Rows", "load", "load_prepared", "prepare", "root_of", "save_prepared", "splits"]
