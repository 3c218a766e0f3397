"""What the readers and everything around them agree on: input files, slices, tasks, options, batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

MIB = 1 << 20


@dataclass(frozen=True)
class InputSource:
    """One named source of raw text, as a recipe lists it.

    `format` is a key of the readers' registry, or None to infer it from each file's name. `text_field` names the
    JSON member or the Parquet column (a dotted path reaches into structs). Where `origin_field` names a string
    field, its value is the document's origin instead of "name#position".
    """

    name: str
    paths: tuple[str, ...]
    format: str | None = None
    text_field: str = "text"
    origin_field: str | None = None


@dataclass(frozen=True)
class InputFile:
    """One file of a source.

    `name` is relative to what the source's paths have in common, so that it survives a move of the corpus; it is
    unique in its source. `filesystem` is a URI that pyarrow.fs opens ("" is the local file system), `path` the path
    inside it. `compression` is None, "gzip" or "zstd".
    """

    name: str
    filesystem: str
    path: str
    format: str
    compression: str | None
    size: int
    modified: int = 0  # nanoseconds; 0 where the file system does not say. No part of ids or fingerprints


@dataclass(frozen=True)
class Slice:
    """A part of a file: bytes [start, end) of plain JSONL, row groups [start, end) of Parquet; end None: to the end.

    A JSONL slice owns the lines that start inside it.
    """

    file: InputFile
    start: int = 0
    end: int | None = None


@dataclass(frozen=True)
class ReadTask:
    """Slices of one source that one worker reads. Picklable, and JSON through `to_dict` and `from_dict`."""

    source: InputSource
    slices: tuple[Slice, ...]

    def to_dict(self) -> dict[str, Any]:
        """The task as JSON values."""
        return asdict(self)

    @staticmethod
    def from_dict(values: dict[str, Any]) -> ReadTask:
        """The inverse of `to_dict`, also after a trip through JSON."""
        source = dict(values["source"], paths=tuple(values["source"]["paths"]))
        slices = tuple(Slice(InputFile(**s["file"]), s["start"], s["end"]) for s in values["slices"])
        return ReadTask(InputSource(**source), slices)


@dataclass(frozen=True)
class ReadOptions:
    """Bounds of a read. Sizes are in bytes of uncompressed input.

    `max_document_bytes` bounds a JSONL line, a file that is one document, and a Parquet text value.
    `max_depth` is the deepest JSON nesting read, well inside what Python's json module can read back from `meta`.
    `batch_bytes` bounds a batch's text, except that one longer record makes a batch alone.
    """

    max_document_bytes: int = 256 * MIB
    batch_bytes: int = 16 * MIB
    batch_rows: int = 50_000
    max_depth: int = 512


@dataclass(frozen=True)
class Batch:
    """Delivered documents (RAW_DOCUMENT) and what was set aside (QUARANTINE) on the way."""

    documents: pa.RecordBatch
    quarantine: pa.RecordBatch

    @property
    def text_bytes(self) -> int:
        """UTF-8 bytes of delivered text."""
        column = self.documents.column("text")
        if len(column) == 0:
            return 0
        return int(pa.compute.sum(pa.compute.binary_length(column)).as_py())


class FileProblem(Exception):
    """A defect of a file as a whole; becomes one quarantine row with position -1.

    `clean_end` says that the bytes delivered before it end where the content ends, so that a last line without a
    newline is whole (bytes after the last compressed member), not cut (a truncated stream).
    """

    def __init__(self, reason: str, detail: str, head: bytes = b"", clean_end: bool = False) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.head = head
        self.clean_end = clean_end


Reader = Callable[[Slice, InputSource, ReadOptions], Iterator[Batch]]


@dataclass
class QuarantineRows:
    """Quarantine rows of one file, collected before they become a record batch. Few, so plain lists."""

    source: str
    path: str
    positions: list[int] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    heads: list[bytes] = field(default_factory=list)

    def add(self, position: int, reason: str, detail: str, head: bytes = b"") -> None:
        """Set one record (or, at position -1, the file) aside."""
        self.positions.append(position)
        self.reasons.append(reason)
        self.details.append(detail)
        self.heads.append(head[:HEAD_BYTES])


HEAD_BYTES = 200
