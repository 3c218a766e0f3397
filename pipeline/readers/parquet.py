"""Parquet: one row, one document; row groups are the unit of work and of damage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.readers import batches
from pipeline.readers.bytes_kernel import INVALID_UTF8, OK, REASONS
from pipeline.readers.columns import classify, invalid_rows, is_textual, json_objects, large_binary
from pipeline.readers.contract import HEAD_BYTES, Batch, FileProblem, InputSource, QuarantineRows, ReadOptions, Slice
from pipeline.readers.streams import open_random
from schemas.arrow import QUARANTINE_REASONS

MAGIC = b"PAR1"


@dataclass(frozen=True)
class Layout:
    """Where a file keeps what a document needs: the text's path of column and struct fields, the origin's column."""

    text: tuple[str, ...]
    origin: str | None


def read(piece: Slice, source: InputSource, options: ReadOptions) -> Iterator[Batch]:
    """Documents of the row groups of the slice; ordinal: the row in the file.

    A row group that cannot be decoded becomes one quarantine row at position -1 after its rows that could be read.
    Raises FileProblem, OSError.
    """
    name = piece.file.name
    with open_random(piece.file) as stream:
        file = _open(stream, remote=bool(piece.file.filesystem))
        layout = find_layout(file.schema_arrow, source)
        counts = [file.metadata.row_group(k).num_rows for k in range(file.num_row_groups)]
        firsts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]) if counts else np.zeros(1, np.int64)
        end = len(counts) if piece.end is None else min(piece.end, len(counts))
        for group in range(piece.start, end):
            row = int(firsts[group])
            try:
                for batch in _group_batches(file, group, options):
                    yield from _split(batch, row, layout, name, source, options)
                    row += batch.num_rows
            except (pa.ArrowException, OSError) as error:
                detail = f"row group {group}, rows {row} to {int(firsts[group + 1]) - 1}: {error}"
                yield batches.set_aside(source, name, -1, "corrupt_row_group", detail)


def _open(stream: pa.NativeFile, remote: bool) -> pq.ParquetFile:
    size = stream.size()
    if size == 0:
        raise FileProblem("empty_file", "the file has no bytes")
    head = bytes(stream.read_at(HEAD_BYTES, 0))
    if not head.startswith(MAGIC):
        raise FileProblem("corrupt_file", "not Parquet: the file does not begin with PAR1", head)
    try:
        # Checksums of pages are verified where the writer left some.
        return pq.ParquetFile(stream, pre_buffer=remote, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise FileProblem("corrupt_file", f"no readable Parquet footer: {error}", head) from None


def find_layout(schema: pa.Schema, source: InputSource) -> Layout:
    """Locate text and origin. Raises FileProblem: no_text_column (absent, or there twice), text_column_not_string."""
    names = list(schema.names)
    wanted = source.text_field
    path = (wanted,) if wanted in names else tuple(wanted.split("."))
    if names.count(path[0]) > 1:
        raise FileProblem("no_text_column", f"the column {path[0]!r} is there twice")
    present = ", ".join(names)
    if path[0] not in names:
        raise FileProblem("no_text_column", f"no column {wanted!r}; the columns are: {present}")
    kind = schema.field(path[0]).type
    for part in path[1:]:
        if not pa.types.is_struct(kind) or kind.get_field_index(part) < 0:
            raise FileProblem(
                "no_text_column", f"no column {wanted!r}; {path[0]!r} is {kind}; the columns are: {present}"
            )
        kind = kind.field(part).type
    if not is_textual(kind):
        raise FileProblem("text_column_not_string", f"the column {wanted!r} is {kind}")
    origin = source.origin_field
    has_origin = origin is not None and names.count(origin) == 1 and origin != path[0]
    return Layout(path, origin if has_origin and is_textual(schema.field(origin).type) else None)


def _group_batches(file: pq.ParquetFile, group: int, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    meta = file.metadata.row_group(group)
    if meta.num_rows == 0:
        return
    row_bytes = max(meta.total_byte_size // meta.num_rows, 1)
    rows = max(1, min(options.batch_rows, options.batch_bytes // row_bytes))
    yield from file.iter_batches(batch_size=rows, row_groups=[group], use_threads=False)


def _split(
    batch: pa.RecordBatch, row: int, layout: Layout, name: str, source: InputSource, options: ReadOptions
) -> Iterator[Batch]:
    """Batches of at most `options.batch_bytes` of text, the estimate by the mean size of a row being only that."""
    lengths = np.diff(_offsets(_text_column(batch, layout)))
    at = 0
    while at < batch.num_rows:
        fits = int(np.searchsorted(np.cumsum(lengths[at:]), options.batch_bytes, side="right"))
        count = max(1, min(fits, options.batch_rows, batch.num_rows - at))
        yield _batch(batch.slice(at, count), row + at, layout, name, source, options)
        at += count


def _offsets(text: pa.LargeBinaryArray) -> npt.NDArray[np.int64]:
    offsets = np.frombuffer(text.buffers()[1], np.int64) if len(text) else np.zeros(1, np.int64)
    return offsets[text.offset : text.offset + len(text) + 1]


def _text_column(batch: pa.RecordBatch, layout: Layout) -> pa.LargeBinaryArray:
    column = batch.column(layout.text[0])
    for part in layout.text[1:]:
        column = pa.compute.struct_field(column, part)
    return large_binary(column)


def _batch(
    batch: pa.RecordBatch, row: int, layout: Layout, name: str, source: InputSource, options: ReadOptions
) -> Batch:
    text = _text_column(batch, layout)
    codes = classify(text, options.max_document_bytes)
    rest = _leftover(batch, layout)
    details: dict[int, str] = {}
    for column_name, column in rest if layout.origin is None else [*rest, (layout.origin, batch.column(layout.origin))]:
        for k in np.flatnonzero(invalid_rows(column)).tolist():
            if codes[k] == OK:
                codes[k] = INVALID_UTF8
                details[k] = f"in the column {column_name!r}"
    keep = codes == OK
    ordinals = np.arange(row, row + batch.num_rows, dtype=np.int64)[keep]
    mask = pa.array(keep)
    kept = text.filter(mask).cast(pa.large_string())
    meta = json_objects([(n, c.filter(mask)) for n, c in rest], len(ordinals))
    origin = None if layout.origin is None else large_binary(batch.column(layout.origin)).filter(mask)
    given = None if origin is None else origin.cast(pa.large_string())
    rows = QuarantineRows(source.name, name)
    for k in np.flatnonzero(~keep).tolist():
        reason = REASONS[codes[k]]
        rows.add(row + k, reason, details.get(k, QUARANTINE_REASONS[reason]), _head(text, k))
    return Batch(batches.documents(source, name, ordinals, kept, meta, given), batches.quarantine(rows))


def _head(text: pa.LargeBinaryArray, k: int) -> bytes:
    value = text[k]
    return bytes(value.as_buffer()[:HEAD_BYTES]) if value.is_valid else b""


def _leftover(batch: pa.RecordBatch, layout: Layout) -> list[tuple[str, pa.Array]]:
    """The columns that are neither text nor origin; of the text's struct, its other fields."""
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name == layout.origin:
            continue
        if name == layout.text[0]:
            remaining = _without(column, layout.text[1:])
            if remaining is None:
                continue
            column = remaining
        columns.append((name, column))
    return columns


def _without(column: pa.Array, path: tuple[str, ...]) -> pa.Array | None:
    """A struct column without the field at `path`; None if nothing is left."""
    if not path:
        return None
    fields = []
    for k in range(column.type.num_fields):
        field = column.type.field(k)
        child: pa.Array | None = pa.compute.struct_field(column, field.name)
        if field.name == path[0]:
            child = _without(child, path[1:])
        if child is not None:
            fields.append((child, field.name))
    if not fields:
        return None
    children, names = zip(*fields, strict=True)
    return pa.StructArray.from_arrays(list(children), list(names), mask=column.is_null())
