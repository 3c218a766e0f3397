"""Exact similarity of candidate pairs: each candidate's shingle set is written once, then pairs are measured on it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import ipc

from pipeline.parts import iterate, part_name, part_of, row_of
from pipeline.storage import Storage
from pipeline.text.buffers import text_buffers
from pipeline.text.minhash import jaccard, unique_shingles
from pipeline.text.words import segment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Keys = npt.NDArray[np.int64]

SHINGLES = pa.schema([pa.field("row", pa.int64()), pa.field("shingles", pa.large_list(pa.uint64()))])
PAIRS_IN_TASK = 50_000


def shingles_name(part: int) -> str:
    return f"near/shingles/{part:06d}.arrow"


def write_shingles(storage: Storage, part: int, rows: Keys, ngram: int) -> None:
    """Write the sorted distinct shingle hashes of the given rows (ascending) of a part, uncompressed, to be mapped."""
    with storage.create(shingles_name(part)) as sink, ipc.new_file(sink, SHINGLES) as writer:
        start = 0
        for batch in iterate(storage, part_name(part), ["text"]):
            inside = rows[np.searchsorted(rows, start) : np.searchsorted(rows, start + batch.num_rows)]
            if len(inside):
                texts = batch.column(0).take(pa.array(inside - start))
                table = segment(text_buffers(texts), np.empty(0, dtype=np.uint64))
                values, offsets = unique_shingles(table.hashes, table.offsets, ngram)
                sets = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(values))
                writer.write_batch(pa.RecordBatch.from_arrays([pa.array(inside), sets], schema=SHINGLES))
            start += batch.num_rows


@lru_cache(maxsize=64)
def _open_shingles(storage: Storage, part: int) -> tuple[Keys, npt.NDArray[np.uint64], Keys]:
    """(rows, values, offsets) of a part's shingle file; one batch is mapped without a copy."""
    table = ipc.open_file(storage.open(shingles_name(part))).read_all().combine_chunks()
    sets = table.column("shingles").chunk(0)
    return table.column("row").to_numpy(), sets.values.to_numpy(), sets.offsets.to_numpy()


def measure(storage: Storage, left: Keys, right: Keys) -> npt.NDArray[np.float64]:
    """Jaccard similarity of each pair of keys, whose shingles have been written."""
    result = np.empty(len(left), dtype=np.float64)
    parts = np.stack([part_of(left), part_of(right)], axis=1)
    groups, inverse = np.unique(parts, axis=0, return_inverse=True)
    by_group = np.argsort(inverse.ravel(), kind="stable")
    bounds = np.searchsorted(inverse.ravel()[by_group], np.arange(len(groups) + 1))
    for index, (part_left, part_right) in enumerate(groups):
        pairs = by_group[bounds[index] : bounds[index + 1]]
        rows_left, values_left, offsets_left = _open_shingles(storage, int(part_left))
        rows_right, values_right, offsets_right = _open_shingles(storage, int(part_right))
        result[pairs] = jaccard(
            values_left,
            offsets_left,
            values_right,
            offsets_right,
            np.searchsorted(rows_left, row_of(left[pairs])),
            np.searchsorted(rows_right, row_of(right[pairs])),
        )
    return result


def write_all_shingles(spark: SparkSession, storage: Storage, keys: Keys, ngram: int) -> None:
    """Write the shingles of all `keys` (ascending), one task a part."""
    parts, starts = np.unique(part_of(keys), return_index=True)
    work = [(int(part), row_of(rows)) for part, rows in zip(parts, np.split(keys, starts[1:]), strict=True)]
    spark.sparkContext.parallelize(work, len(work)).foreach(
        lambda item: write_shingles(storage, item[0], item[1], ngram)
    )


def similarities(spark: SparkSession, storage: Storage, left: Keys, right: Keys) -> npt.NDArray[np.float64]:
    """Jaccard similarity of each pair, measured in tasks of pairs that lie in the same parts."""
    nearby = np.lexsort((right, left))
    chunks = list(_cut(nearby, PAIRS_IN_TASK))
    work = [(left[chunk], right[chunk]) for chunk in chunks]
    found = spark.sparkContext.parallelize(work, len(work)).map(lambda pair: measure(storage, *pair)).collect()
    result = np.empty(len(left), dtype=np.float64)
    for chunk, values in zip(chunks, found, strict=True):
        result[chunk] = values
    return result


def _cut(order: npt.NDArray[np.int64], size: int) -> Iterator[npt.NDArray[np.int64]]:
    for start in range(0, len(order), size):
        yield order[start : start + size]
