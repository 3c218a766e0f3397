"""Columns that every reader adds, and the batches they make: ids, origins, quarantine rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from pipeline.readers.contract import Batch, InputSource, QuarantineRows, ReadOptions
from schemas.arrow import DOC_ID, QUARANTINE, RAW_DOCUMENT

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]


def _splitmix64(x: U64) -> U64:
    """The finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64-bit integers."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _murmur64(x: U64) -> U64:
    """The finalizer fmix64 of MurmurHash3 (Appleby 2011): another bijection of 64-bit integers."""
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))


def document_ids(source: str, name: str, ordinals: I64) -> pa.FixedSizeBinaryArray:
    """16-byte ids of the documents at `ordinals` (int64, >= 0) in the file `name` of `source`.

    The two big-endian lanes are h1 ^ splitmix64(ordinal) and h2 ^ murmur64(ordinal), with (h1, h2) the XXH3-128 of
    source, a NUL and name. Each lane is a bijection of the ordinal, so ids never collide inside a file; between files
    they collide as 128 random bits do.
    """
    digest = xxhash.xxh3_128_digest(f"{source}\0{name}".encode("utf-8", "surrogateescape"))
    high, low = (np.uint64(int.from_bytes(part, "big")) for part in (digest[:8], digest[8:]))
    keys = ordinals.astype(np.uint64)
    lanes = np.empty((len(keys), 2), dtype=">u8")
    lanes[:, 0] = high ^ _splitmix64(keys)
    lanes[:, 1] = low ^ _murmur64(keys)
    return pa.Array.from_buffers(DOC_ID, len(keys), [None, pa.py_buffer(lanes)])


def origins(name: str, ordinals: I64, given: pa.Array | None = None) -> pa.StringArray:
    """ "name#ordinal" for each ordinal, except where `given` (string or large_string) holds a non-empty string."""
    places = pc.binary_join_element_wise(printable(name), pc.cast(pa.array(ordinals), pa.string()), "#")
    if given is None:
        return places
    given = given.cast(pa.string())
    has_origin = pc.fill_null(pc.greater(pc.binary_length(given), 0), False)
    return pc.if_else(has_origin, given, places)


def printable(name: str) -> str:
    """A file name that Arrow can hold: bytes of a name that is not UTF-8 become backslash escapes."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def documents(
    source: InputSource, name: str, ordinals: I64, text: pa.Array, meta: pa.Array, given_origin: pa.Array | None = None
) -> pa.RecordBatch:
    """A RAW_DOCUMENT batch from large_string `text` and `meta` and the documents' ordinals (int64) in the file."""
    count = len(ordinals)
    columns = [
        document_ids(source.name, name, ordinals),
        text,
        pa.repeat(pa.scalar(source.name, pa.string()), count),
        origins(name, ordinals, given_origin),
        meta,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RAW_DOCUMENT)


def no_documents() -> pa.RecordBatch:
    """An empty RAW_DOCUMENT batch."""
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in RAW_DOCUMENT], schema=RAW_DOCUMENT)


def quarantine(rows: QuarantineRows) -> pa.RecordBatch:
    """The collected rows as a QUARANTINE batch."""
    count = len(rows.positions)
    columns = [
        pa.repeat(pa.scalar(rows.source, pa.string()), count),
        pa.repeat(pa.scalar(printable(rows.path), pa.string()), count),
        pa.array(rows.positions, pa.int64()),
        pa.array(rows.reasons, pa.string()),
        pa.array(rows.details, pa.string()),
        pa.array(rows.heads, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=QUARANTINE)


def single_document(source: InputSource, name: str, text: str, meta: str) -> Batch:
    """The batch of a file that is one document."""
    columns = (pa.array([text], pa.large_string()), pa.array([meta], pa.large_string()))
    batch = documents(source, name, np.zeros(1, np.int64), *columns)
    return Batch(batch, quarantine(QuarantineRows(source.name, name)))


def set_aside(source: InputSource, name: str, position: int, reason: str, detail: str, head: bytes = b"") -> Batch:
    """A batch of one quarantine row."""
    rows = QuarantineRows(source.name, name)
    rows.add(position, reason, detail, head)
    return Batch(no_documents(), quarantine(rows))


def coalesce(batches: Iterable[Batch], options: ReadOptions) -> Iterator[Batch]:
    """Join runs of small batches up to the bounds of `options`, in order; a large one passes through uncopied."""
    held: list[Batch] = []
    size = rows = 0
    for batch in batches:
        batch_size = batch.text_bytes
        batch_rows = batch.documents.num_rows + batch.quarantine.num_rows
        if held and (size + batch_size > options.batch_bytes or rows + batch_rows > options.batch_rows):
            yield _join(held)
            held, size, rows = [], 0, 0
        held.append(batch)
        size += batch_size
        rows += batch_rows
    if held:
        yield _join(held)


def _join(batches: list[Batch]) -> Batch:
    if len(batches) == 1:
        return batches[0]
    return Batch(pa.concat_batches([b.documents for b in batches]), pa.concat_batches([b.quarantine for b in batches]))
