"""Document parts: the scored output of pass 1, one Arrow IPC file an input task, read by column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import ipc

from pipeline.storage import Storage

ROW_BITS = 32


def part_name(part: int) -> str:
    return f"parts/{part:06d}.arrow"


def decision_name(part: int) -> str:
    return f"decisions/{part:06d}.arrow"


def keys_of(part: int, count: int) -> npt.NDArray[np.int64]:
    """Document keys of a part: part << 32 | row, int64[count]."""
    return (np.int64(part) << ROW_BITS) + np.arange(count, dtype=np.int64)


def part_of(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return keys >> ROW_BITS


def row_of(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return keys & ((1 << ROW_BITS) - 1)


def open_columns(storage: Storage, path: str, columns: Sequence[str] | None = None) -> ipc.RecordBatchFileReader:
    """A reader of an Arrow IPC file that touches only the named columns; they come in the file's order."""
    source = storage.open(path)
    if columns is None:
        return ipc.open_file(source)
    schema = ipc.open_file(source).schema
    fields = sorted(schema.get_field_index(name) for name in columns)
    return ipc.open_file(source, options=ipc.IpcReadOptions(included_fields=fields))


def read_columns(storage: Storage, path: str, columns: Sequence[str]) -> pa.RecordBatch:
    """The named columns of a whole file as one batch (keys and numbers; text goes batch by batch)."""
    table = open_columns(storage, path, columns).read_all().combine_chunks()
    batches = table.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def iterate(storage: Storage, path: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Batches of a file in order."""
    reader = open_columns(storage, path, columns)
    for index in range(reader.num_record_batches):
        yield reader.get_batch(index)


def rebatch(batches: Iterator[pa.RecordBatch], max_rows: int, max_bytes: int, column: str) -> Iterator[pa.RecordBatch]:
    """Cut a stream of batches anew, at places that depend on the rows only, not on how they arrived.

    A batch is closed before the row that would take it over `max_rows`, or over `max_bytes` of the large_string or
    large_binary `column`; a single larger row is a batch of its own.
    """
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        start = 0
        lengths = _lengths(batch.column(column))
        while start < batch.num_rows:
            taken = _rows_that_fit(lengths[start:], max_rows - rows, max_bytes - size, rows == 0)
            if taken:
                held.append(batch.slice(start, taken))
                size += int(lengths[start : start + taken].sum())
                rows += taken
                start += taken
            if start < batch.num_rows:
                yield _concatenate(held)
                held, rows, size = [], 0, 0
    if held:
        yield _concatenate(held)


def _lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int64, count=len(array) + 1, offset=array.offset * 8)
    return np.diff(offsets)


def _rows_that_fit(lengths: npt.NDArray[np.int64], max_rows: int, max_bytes: int, first: bool) -> int:
    fit = int(np.searchsorted(np.cumsum(lengths), max_bytes, side="right"))
    return min(max(fit, 1 if first else 0), max_rows)


def _concatenate(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.concat_batches(batches)
