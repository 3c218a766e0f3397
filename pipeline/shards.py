"""Text pass 2: kept documents are shuffled once, in a seeded order, into Arrow shards of about the target size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import ipc

from pipeline.decide import keyed_hash
from pipeline.parts import decision_name, iterate, part_name, read_columns, rebatch
from pipeline.storage import Storage
from schemas.arrow import DOCUMENT
from schemas.manifest import ShardEntry
from schemas.recipe import Recipe, Shards

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = (
    "shard int, place long, doc_id binary, text string, source string, origin string, lang string, "
    "lang_score float, meta string"
)
WRITTEN = "entry string"
# Batches in a shard: small enough to be read on any machine, large enough for compression.
BATCH_ROWS, BATCH_BYTES = 16_384, 8 << 20


def shard_name(shard: int) -> str:
    return f"shard-{shard:05d}.arrow"


def places(doc_ids: pa.Array, seed: int, shards: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """(shard, place in it) of each document: a hash of seed and id, cut into equal ranges.

    The order of the whole corpus is the order of the hashes, so it depends on nothing but ids and seed. Shards differ
    in size by chance only; two documents of one place are ordered by id.
    """
    place = keyed_hash(doc_ids, seed) >> np.uint64(1)
    shard = ((place >> np.uint64(31)) * np.uint64(shards)) >> np.uint64(32)
    return shard.astype(np.int32), place.astype(np.int64)


def shard_count(kept_bytes: int, target_bytes: int) -> int:
    """Shards of about the target size, at least one."""
    return max(1, round(kept_bytes / target_bytes))


def kept_rows(part: int, recipe: Recipe, storage: Storage, shards: int) -> Iterator[pa.RecordBatch]:
    """The kept documents of a part with their shard and place, batch by batch; decisions lie in the same order."""
    kept = read_columns(storage, decision_name(part), ["kept"]).column("kept")
    start = 0
    for batch in iterate(storage, part_name(part), DOCUMENT.names):
        chosen = batch.select(DOCUMENT.names).filter(kept.slice(start, batch.num_rows))
        start += batch.num_rows
        if chosen.num_rows:
            shard, place = places(chosen.column("doc_id"), recipe.seed, shards)
            columns = [pa.array(shard), pa.array(place), chosen.column("doc_id").cast(pa.binary()), *chosen.columns[1:]]
            yield pa.RecordBatch.from_arrays(columns, names=["shard", "place", *DOCUMENT.names])


def _as_documents(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([batch.column(f.name).cast(f.type) for f in DOCUMENT], schema=DOCUMENT)


def _runs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
    """Group rows that come in order of shard, streaming: each group must be read before the next."""
    stream = iter(batches)
    held = next(stream, None)

    def one(shard: int) -> Iterator[pa.RecordBatch]:
        nonlocal held
        while held is not None:
            numbers = held.column("shard").to_numpy()
            end = int(np.searchsorted(numbers, shard, side="right"))
            if end:
                yield _as_documents(held.slice(0, end))
            held = held.slice(end) if end < len(numbers) else next(stream, None)
            if held is not None and held.num_rows and held.column("shard")[0].as_py() != shard:
                return

    while held is not None:
        if held.num_rows == 0:
            held = next(stream, None)
            continue
        shard = held.column("shard")[0].as_py()
        yield shard, one(shard)


def write_shard(shard: int, batches: Iterator[pa.RecordBatch], config: Shards, storage: Storage) -> ShardEntry:
    """Write one shard; its bytes depend on its rows only."""
    options = ipc.IpcWriteOptions(compression=None if config.compression == "none" else config.compression)
    name = shard_name(shard)
    rows = text_bytes = 0
    sources: Counter[str] = Counter()
    with storage.create(f"shards/{name}") as sink, ipc.new_file(sink, DOCUMENT, options=options) as writer:
        for batch in rebatch(batches, BATCH_ROWS, BATCH_BYTES, "text"):
            writer.write_batch(batch)
            rows += batch.num_rows
            text_bytes += int(pa.compute.sum(pa.compute.binary_length(batch.column("text"))).as_py())
            counts = batch.column("source").value_counts()
            sources.update(dict(zip(counts.field(0).to_pylist(), counts.field(1).to_pylist(), strict=True)))
    stamp = storage.stamp(f"shards/{name}")
    assert stamp is not None
    return ShardEntry(
        path=name,
        rows=rows,
        bytes=stamp["bytes"],
        checksum=stamp["checksum"],
        text_bytes=text_bytes,
        sources=dict(sorted(sources.items())),
    )


def write_shards(
    spark: SparkSession, recipe: Recipe, storage: Storage, parts: int, kept_bytes: int
) -> list[ShardEntry]:
    """Shuffle the kept text once and write the shards; entries in order. One that chance left empty is not written."""
    shards = shard_count(kept_bytes, recipe.shards.target_bytes)
    config = recipe.shards

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in batch.column(0).to_numpy():
                yield from kept_rows(int(part), recipe, storage, shards)

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for shard, rows in _runs(batches):
            entry = write_shard(shard, rows, config, storage)
            yield pa.RecordBatch.from_pydict({"entry": [entry.model_dump_json()]})

    rows = spark.range(0, parts, 1, numPartitions=max(1, parts)).mapInArrow(read, ROWS)
    placed = rows.repartitionById(shards, rows["shard"]).sortWithinPartitions("shard", "place", "doc_id")
    written = placed.mapInArrow(write, WRITTEN).toArrow().column("entry").to_pylist()
    return sorted((ShardEntry.model_validate_json(text) for text in written), key=lambda entry: entry.path)
