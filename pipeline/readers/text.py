"""Text and code: one UTF-8 file, one document, unchanged but for a byte order mark at its start."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipeline.readers import batches
from pipeline.readers.bytes_kernel import OK, REASONS, text_code
from pipeline.readers.contract import Batch, InputSource, ReadOptions, Slice
from pipeline.readers.streams import UTF8_BOM, check_plain, read_whole
from schemas.arrow import QUARANTINE_REASONS


def read(piece: Slice, source: InputSource, options: ReadOptions) -> Iterator[Batch]:
    """The file as one document, or its quarantine row at position 0. Raises FileProblem, OSError."""
    data = read_whole(piece.file, options.max_document_bytes)
    check_plain(data[:512])
    data = data.removeprefix(UTF8_BOM)
    code = check_text(data)
    if code == OK:
        yield batches.single_document(source, piece.file.name, data.decode("utf-8"), "{}")
    else:
        reason = REASONS[code]
        yield batches.set_aside(source, piece.file.name, 0, reason, QUARANTINE_REASONS[reason], data)


def check_text(data: bytes) -> int:
    """OK, or the code of what keeps these bytes from being a document: invalid UTF-8, a NUL, nothing but blanks."""
    padded = np.zeros((len(data) + 7) // 8 * 8, np.uint8)
    padded[: len(data)] = np.frombuffer(data, np.uint8)
    return int(text_code(padded, padded.view(np.uint64), 0, len(data)))
