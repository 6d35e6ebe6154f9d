"""Tables of predictions and labels, read chunk by chunk from parquet, npz, npy, CSV and JSON lines."""

from wdistill.readers.sources import open_tables
from wdistill.readers.table import Chunk, Table

__all__ = ["Chunk", "Table", "open_tables"]
