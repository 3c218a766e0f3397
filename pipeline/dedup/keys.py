"""The rows that deduplication shuffles: keys, hashes and numbers of the documents that passed the rules; no text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.judge import KEPT, judges
from pipeline.parts import keys_of, part_name, read_columns
from pipeline.steps.fingerprint import BANDS, CONTENT_HIGH, CONTENT_LOW
from pipeline.storage import Storage
from schemas.recipe import Recipe

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# The order of preference between duplicates: priority, then length, then id; smallest first.
ORDER = ("neg_priority", "neg_length", "doc_id", "key")
KEY_COLUMNS = "neg_priority int, neg_length long, doc_id binary, key long, hash_1 long, hash_2 long"
BAND_COLUMNS = "neg_priority int, neg_length long, doc_id binary, key long, bands array<long>"


def survivors(recipe: Recipe, storage: Storage, part: int, extra: list[str]) -> pa.RecordBatch:
    """ORDER columns and `extra` columns of the documents of a part that no rule drops."""
    names = judges(recipe)
    wanted = dict.fromkeys(["doc_id", "source", "char_count", *extra])
    for judge in names.values():
        wanted.update(dict.fromkeys(judge.columns))
    batch = read_columns(storage, part_name(part), list(wanted))
    if batch.num_rows == 0:
        rows, priority = np.empty(0, dtype=np.int64), 0
    else:
        source = batch.column("source")[0].as_py()
        verdict, _ = names[source].judge(batch)
        rows = np.flatnonzero(verdict == KEPT)
        priority = next(item.priority for item in recipe.sources if item.name == source)
    kept = batch.take(pa.array(rows))
    length = kept.column("char_count").to_numpy().astype(np.int64)
    columns = {
        "neg_priority": pa.array(np.full(len(rows), -priority, dtype=np.int32)),
        "neg_length": pa.array(-length),
        "doc_id": pc.cast(kept.column("doc_id"), pa.binary()),
        "key": pa.array(keys_of(part, batch.num_rows)[rows]),
        **{name: kept.column(name) for name in extra},
    }
    return pa.RecordBatch.from_pydict(columns)


def _frame(spark: SparkSession, parts: int, function: Callable[[int], pa.RecordBatch], schema: str) -> DataFrame:
    """A DataFrame of one batch a part, read by the tasks themselves."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in batch.column(0).to_numpy():
                yield function(int(part))

    slices = min(parts, 4 * spark.sparkContext.defaultParallelism)
    return spark.range(0, parts, 1, numPartitions=max(1, slices)).mapInArrow(read, schema)


def content_keys(spark: SparkSession, recipe: Recipe, storage: Storage, parts: int) -> DataFrame:
    """ORDER columns with the two halves of the content hash."""

    def rows(part: int) -> pa.RecordBatch:
        batch = survivors(recipe, storage, part, [CONTENT_HIGH, CONTENT_LOW])
        return batch.rename_columns([*ORDER, "hash_1", "hash_2"])

    return _frame(spark, parts, rows, KEY_COLUMNS)


def band_keys(spark: SparkSession, recipe: Recipe, storage: Storage, parts: int) -> DataFrame:
    """ORDER columns with the band keys; documents without words have no shingle and take no part."""

    def rows(part: int) -> pa.RecordBatch:
        batch = survivors(recipe, storage, part, [BANDS, "word_count"])
        batch = batch.filter(pc.greater(batch.column("word_count"), 0)).drop_columns(["word_count"])
        bands = pc.cast(batch.column(BANDS), pa.list_(pa.int64()))
        return batch.drop_columns([BANDS]).append_column("bands", bands)

    return _frame(spark, parts, rows, BAND_COLUMNS)


def order() -> Column:
    """The order of preference as one column; its minimum is the document that stays."""
    from pyspark.sql import functions as F

    return F.struct(*ORDER)
