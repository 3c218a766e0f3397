"""Blocks of whole lines from a file, in bounded memory and linear time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.readers.contract import HEAD_BYTES, FileProblem, InputFile, ReadOptions
from pipeline.readers.streams import READ_BYTES, UTF8_BOM, check_plain, check_wide, chunks, head_of, open_random

NEWLINE = b"\n"


@dataclass(frozen=True)
class Block:
    """Whole lines: data[start:stop] of a uint8 array; data[0] is byte `base` of the uncompressed file.

    The last line may lack its newline. A block of `too_large` lines holds only the head of one that exceeds the limit.
    """

    data: npt.NDArray[np.uint8]
    start: int
    stop: int
    base: int
    too_large: bool = False


def plain_chunks(file: InputFile, start: int, end: int) -> Iterator[bytes]:
    """Bytes of an uncompressed file from the first line that starts at or after `start`, to the end of the last line
    that starts before `end`. The first chunk is empty if the file holds no such line. Raises OSError."""
    with open_random(file) as stream:
        skipping = start > 0
        position = start - 1 if skipping else 0
        stream.seek(position)
        while chunk := bytes(stream.read(READ_BYTES)):
            if skipping:
                found = chunk.find(NEWLINE)
                if found < 0:
                    position += len(chunk)
                    if position >= end:
                        return
                    continue
                skipping = False
                chunk, position = chunk[found + 1 :], position + found + 1
                if position >= end:
                    return
                yield position.to_bytes(8, "little")
            if position + len(chunk) >= end:
                found = chunk.find(NEWLINE, max(end - 1 - position, 0))
                if found >= 0:
                    yield chunk[: found + 1]
                    return
            position += len(chunk)
            yield chunk
