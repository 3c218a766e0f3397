"""Formats by name, and the one entry that reads a task."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.readers import batches, html, jsonl, parquet, text
from pipeline.readers.contract import Batch, FileProblem, InputSource, Reader, ReadOptions, ReadTask, Slice

READERS: dict[str, Reader] = {"jsonl": jsonl.read, "parquet": parquet.read, "text": text.read, "html": html.read}

DEFAULT_OPTIONS = ReadOptions()


def read_task(task: ReadTask, options: ReadOptions = DEFAULT_OPTIONS) -> Iterator[Batch]:
    """Batches of a task, in the order of its slices; a function of the task, its files and the options.

    Bad data never raises: a record that cannot be delivered is a quarantine row at its position, a defect of the
    file one at position -1, after what could be read.
    """
    pieces = (batch for piece in task.slices for batch in read_slice(piece, task.source, options))
    return batches.coalesce(pieces, options)


def read_slice(piece: Slice, source: InputSource, options: ReadOptions) -> Iterator[Batch]:
    """Batches of one slice, defects of the file included as the last one.

    A remote file that cannot be read raises OSError, so that the task is tried again: an outage must not look like
    bad data. A local one is set aside.
    """
    name = piece.file.name
    try:
        yield from READERS[piece.file.format](piece, source, options)
    except FileProblem as problem:
        yield batches.set_aside(source, name, -1, problem.reason, problem.detail, problem.head)
    except OSError as error:
        if piece.file.filesystem:
            raise
        yield batches.set_aside(source, name, -1, "unreadable_file", str(error).replace(piece.file.path, name))
