"""The value and offset buffers of an Arrow string array, as NumPy views."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa


class Text(NamedTuple):
    """Strings of a batch: string i is data[offsets[i]:offsets[i + 1]], valid UTF-8."""

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]  # n + 1, absolute positions in `data`


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A view that cannot be written: numba compiles a kernel anew for each kind of array, so there is one kind."""
    view = array.view()
    view.flags.writeable = False
    return view


def text_buffers(array: pa.Array) -> Text:
    """Views of a string or large_string array without nulls; slices keep their offsets. No bytes are copied.

    Raises TypeError for other types, ValueError if there are nulls.
    """
    if pa.types.is_string(array.type):
        dtype: np.dtype[Any] = np.dtype(np.int32)
    elif pa.types.is_large_string(array.type):
        dtype = np.dtype(np.int64)
    else:
        raise TypeError(f"expected a string array, found {array.type}")
    if array.null_count:
        raise ValueError(f"{array.null_count} nulls in a text column; readers set them aside")
    _, offset_buffer, value_buffer = array.buffers()
    n = len(array)
    if offset_buffer is None or offset_buffer.size == 0:
        return Text(read_only(np.empty(0, dtype=np.uint8)), read_only(np.zeros(n + 1, dtype=np.int64)))
    offsets = np.frombuffer(offset_buffer, dtype=dtype, count=n + 1, offset=array.offset * dtype.itemsize)
    data = np.frombuffer(value_buffer, dtype=np.uint8) if value_buffer is not None else np.empty(0, dtype=np.uint8)
    return Text(read_only(data), read_only(offsets.astype(np.int64, copy=False)))


def text_array(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> pa.Array:
    """A large_string array over the given buffers, uncopied; `data` must be valid UTF-8."""
    return pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))


def text_of(strings: list[str]) -> Text:
    """Buffers of a few Python strings (word lists, tests)."""
    return text_buffers(pa.array(strings, type=pa.large_string()))
