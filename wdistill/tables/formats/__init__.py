"""Tables of predictions and labels, read chunk by chunk from parquet, npz, npy, CSV and JSON lines."""
