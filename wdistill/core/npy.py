"""Arrays as npy files, read with the memory that they hold, not with what their headers declare."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import IO, Any

from numpy.lib import format as npy_format
from numpy.typing import NDArray

HEADERS = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
NUMBERS, AXES = "biuf", 32  # kinds of dtypes, and axes, that an array may have


def read_numbers(opened: Callable[[], IO[bytes]], size: int) -> NDArray[Any]:
    """The real numbers or booleans in an npy file of `size` bytes; ValueError where it holds anything else, or less."""
    with opened() as stream:
        try:
            shape, _, dtype = HEADERS[npy_format.read_magic(stream)](stream)
        except Exception as error:  # NumPy parses the header as Python, and raises whatever Python does
            raise ValueError(f"no npy array: {type(error).__name__}: {error}") from None
        header = stream.tell()
    if dtype.kind not in NUMBERS:
        raise ValueError(f"an array of dtype {dtype}, and not of real numbers")
    declared = header + math.prod(shape) * dtype.itemsize
    if len(shape) > AXES or min(shape, default=0) < 0 or declared != size:
        raise ValueError(f"an array of shape {shape} and dtype {dtype} in {size} bytes")
    with opened() as stream:
        values: NDArray[Any] = npy_format.read_array(stream, allow_pickle=False)
    return values
