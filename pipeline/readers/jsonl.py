"""JSONL: one JSON object a line, plain or compressed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.readers import batches
from pipeline.readers.bytes_kernel import REASONS
from pipeline.readers.contract import HEAD_BYTES, Batch, InputSource, QuarantineRows, ReadOptions, Slice
from pipeline.readers.jsonl_kernel import scan_lines
from pipeline.readers.lines import Block, line_blocks

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Scanned:
    """What the scanner found in a stretch of lines. Indices are those of the block.

    `text`, `meta`, `origin` are large_string arrays of the delivered lines (`origin` "" where a line has none), which
    begin at `good` (int64). `bad` is int64[k, 3] (begin, end, offending byte) with reason codes `codes` (int8).
    """

    stop: int
    text: pa.LargeStringArray
    meta: pa.LargeStringArray
    origin: pa.LargeStringArray
    good: I64
    bad: I64
    codes: npt.NDArray[np.int8]


class Scanner:
    """The kernel with the settings of one source and the memory that it uses again from block to block."""

    def __init__(self, source: InputSource, options: ReadOptions) -> None:
        names = (source.text_field, source.origin_field or "")
        self._names = tuple(np.array(list(name.encode("utf-8")), np.uint8) for name in names)
        self._scratch = tuple(np.empty(6 * len(name), np.uint8) for name in self._names)
        self._stack = np.empty(options.max_depth, np.uint8)
        self._rows = options.batch_rows
        self._limit = options.max_document_bytes

    def scan(self, data: U8, start: int, stop: int) -> Scanned:
        """Scan whole lines data[start:stop] (writable uint8, 8-byte aligned), at most `batch_rows` records of them."""
        rows = min(self._rows, stop - start)
        # Never touched beyond what the values need, so only that becomes real memory.
        capacity = stop - start + 2
        outs = (_bytes(capacity), _bytes(capacity), _bytes(capacity if len(self._names[1]) else 0))
        offsets = tuple(np.empty(rows + 1, np.int64) for _ in range(3))
        good, bad, codes = np.empty(rows, np.int64), np.empty((rows, 3), np.int64), np.empty(rows, np.int8)
        words = data[: len(data) // 8 * 8].view(np.uint64)
        end, n, b = scan_lines(
            data, words, start, stop, self._names, self._scratch, self._stack, outs, offsets, good, bad, codes,
            self._limit,
        )  # fmt: skip
        text, meta, origin = (_strings(offset, out, n) for offset, out in zip(offsets, outs, strict=True))
        return Scanned(end, text, meta, origin, good[:n], bad[:b], codes[:b])


def _bytes(capacity: int) -> U8:
    return np.empty(capacity, np.uint8)


def _strings(offsets: I64, values: U8, count: int) -> pa.LargeStringArray:
    """Wrap kernel output as an Arrow array; nothing is copied."""
    return pa.LargeStringArray.from_buffers(
        count, pa.py_buffer(offsets[: count + 1]), pa.py_buffer(values[: offsets[count]])
    )


def read(piece: Slice, source: InputSource, options: ReadOptions) -> Iterator[Batch]:
    """Documents of the lines that start inside the slice. Raises FileProblem (after what could be read), OSError."""
    scanner = Scanner(source, options)
    for block in line_blocks(piece, options):
        if block.too_large:
            yield _too_large(block, piece.file.name, source, options)
            continue
        at = block.start
        while at < block.stop:
            scanned = scanner.scan(block.data, at, block.stop)
            yield _batch(block, scanned, piece.file.name, source)
            at = scanned.stop


def _too_large(block: Block, name: str, source: InputSource, options: ReadOptions) -> Batch:
    head = block.data[block.start : block.start + HEAD_BYTES].tobytes()
    detail = f"the line is longer than max_document_bytes = {options.max_document_bytes}"
    return batches.set_aside(source, name, block.base + block.start, "record_too_large", detail, head)


def _batch(block: Block, scanned: Scanned, name: str, source: InputSource) -> Batch:
    ordinals = scanned.good + block.base
    origin = scanned.origin if source.origin_field else None
    documents = batches.documents(source, name, ordinals, scanned.text, scanned.meta, origin)
    rows = QuarantineRows(source.name, name)
    for (begin, end, offending), code in zip(scanned.bad.tolist(), scanned.codes.tolist(), strict=True):
        head = block.data[begin : min(end, begin + HEAD_BYTES)].tobytes()
        rows.add(block.base + begin, REASONS[code], f"at byte {offending - begin} of the line", head)
    return Batch(documents, batches.quarantine(rows))
