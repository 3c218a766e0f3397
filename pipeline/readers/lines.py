"""Blocks of whole lines from a file, in bounded memory and linear time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.readers.contract import FileProblem, ReadOptions, Slice
from pipeline.readers.streams import READ_BYTES, UTF8_BOM, check_plain, check_wide, chunks, open_random

NEWLINE = b"\n"
U8 = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Block:
    """Whole lines: data[start:stop] of a uint8 array whose first byte is byte `base` of the uncompressed file.

    The last line may lack its newline. Where `too_large`, the block holds the beginning of one line above the limit.
    The array is used again for the next block.
    """

    data: U8
    start: int
    stop: int
    base: int
    too_large: bool = False


def line_blocks(piece: Slice, options: ReadOptions) -> Iterator[Block]:
    """Blocks of about `options.batch_bytes` with the lines that start inside the slice.

    A longer line makes a block alone, up to `options.max_document_bytes`; of one above that only the beginning is
    kept. Raises FileProblem after the last block where the file is damaged, and OSError.
    """
    assembler = _Assembler(options)
    try:
        for position, chunk in _positioned_chunks(piece):
            yield from assembler.push(position, chunk)
    except FileProblem as problem:
        yield from assembler.finish(whole=problem.clean_end)
        raise
    yield from assembler.finish(whole=True)


def _positioned_chunks(piece: Slice) -> Iterator[tuple[int, bytes]]:
    if piece.file.compression is None:
        yield from _plain_chunks(piece)
        return
    position = 0
    for chunk in chunks(piece.file):
        if position == 0:
            check_wide(chunk[:16])
        yield position, chunk
        position += len(chunk)


def _plain_chunks(piece: Slice) -> Iterator[tuple[int, bytes]]:
    """(position, bytes) from the first line that starts in the slice to the end of the last one that does."""
    end = piece.file.size if piece.end is None else piece.end
    with open_random(piece.file) as stream:
        try:
            head = bytes(stream.read(512))
            if not head:
                raise FileProblem("empty_file", "the file has no bytes")
            check_plain(head)
        except FileProblem:
            if piece.start:
                return  # the slice with the file's beginning reports it
            raise
        # The byte before the slice tells whether a line starts with it.
        position = max(piece.start - 1, 0)
        stream.seek(position)
        skipping = piece.start > 0
        while chunk := bytes(stream.read(READ_BYTES)):
            if skipping:
                found = chunk.find(NEWLINE)
                skipped = found + 1 or len(chunk)
                position += skipped
                skipping = found < 0
                if position >= end:
                    return
                chunk = chunk[skipped:]
            if position + len(chunk) >= end:
                found = chunk.find(NEWLINE, max(end - 1 - position, 0))
                if found >= 0:
                    yield position, chunk[: found + 1]
                    return
            if chunk:
                yield position, chunk
            position += len(chunk)


class _Assembler:
    """Gathers chunks in one growing array and cuts them at line ends; each byte is searched and moved a bounded
    number of times, however long a line is."""

    def __init__(self, options: ReadOptions) -> None:
        self._limit = options.max_document_bytes
        self._target = options.batch_bytes
        self._data: U8 = np.empty(_aligned(min(self._target, self._limit) + READ_BYTES), np.uint8)
        self._size = 0  # bytes held
        self._base = 0  # of data[0] in the file
        self._cut = 0  # end of the last whole line held
        self._dropping = False  # inside a line that is too large

    def push(self, position: int, chunk: bytes) -> Iterator[Block]:
        """Take a chunk that continues the last one; yield the blocks that are full."""
        if self._dropping:
            found = chunk.find(NEWLINE)
            if found < 0:
                return
            self._dropping = False
            position, chunk = position + found + 1, chunk[found + 1 :]
        if self._size == 0:
            self._base = position
        self._append(chunk)
        last = chunk.rfind(NEWLINE)
        if last >= 0:
            self._cut = self._size - len(chunk) + last + 1
        if self._cut and self._size >= self._target:
            yield self._block(self._cut)
            self._drop(self._cut)
        if not self._cut and self._size > self._limit:
            yield Block(self._data, self._start(), self._size, self._base, too_large=True)
            self._drop(self._size)
            self._dropping = True

    def finish(self, whole: bool) -> Iterator[Block]:
        """Yield what is left; a last line without a newline only if it is `whole`."""
        stop = self._size if whole else self._cut
        if stop:
            yield self._block(stop)

    def _block(self, stop: int) -> Block:
        return Block(self._data, self._start(), stop, self._base)

    def _start(self) -> int:
        has_bom = self._base == 0 and self._data[: min(3, self._size)].tobytes() == UTF8_BOM
        return 3 if has_bom else 0

    def _append(self, chunk: bytes) -> None:
        size = self._size + len(chunk)
        if size > len(self._data):
            grown = np.empty(_aligned(2 * size), np.uint8)
            grown[: self._size] = self._data[: self._size]
            self._data = grown
        self._data[self._size : size] = np.frombuffer(chunk, np.uint8)
        self._size = size

    def _drop(self, count: int) -> None:
        rest = self._size - count
        self._data[:rest] = self._data[count : self._size].copy()
        self._base += count
        self._size = rest
        self._cut = 0


def _aligned(size: int) -> int:
    return (size + 7) // 8 * 8
