"""Decisions, laid out by part: rules, duplicates and sampling brought together, one file a part."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from pipeline.judge import KEPT, judges
from pipeline.parts import decision_name, keys_of, part_name, part_of, read_columns, row_of
from pipeline.storage import Storage
from pipeline.text.buffers import read_only
from pipeline.text.jit import kernel
from pipeline.text.utf8 import GOLDEN, fmix64
from schemas.arrow import DECISION
from schemas.recipe import Recipe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NO_ROW = (1 << 32) - 1  # a sentinel, so that every part has its task even if nothing in it is a duplicate
VERDICTS = "key long, removed boolean, exact boolean, value double, kept_doc_id binary, cluster_size long"
SUMMARY = "part long, source string, kept long, kept_bytes long, details string"


@kernel
def _mix(ids, seed, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    for i in range(len(ids)):
        out[i] = fmix64(fmix64(ids[i, 0] ^ seed) + ids[i, 1] * GOLDEN)


def id_halves(doc_ids: pa.Array) -> npt.NDArray[np.uint64]:
    """uint64[n, 2] view of a fixed-size binary(16) array without nulls."""
    data = np.frombuffer(doc_ids.buffers()[1], dtype=np.uint64, count=2 * len(doc_ids), offset=doc_ids.offset * 16)
    return data.reshape(-1, 2)


def keyed_hash(doc_ids: pa.Array, seed: int) -> npt.NDArray[np.uint64]:
    """A 64-bit hash of each id under `seed`: the order of documents and, with another seed, sampling."""
    out = np.empty(len(doc_ids), dtype=np.uint64)
    _mix(read_only(id_halves(doc_ids)), np.uint64(seed), out)
    return out


SAMPLING_SALT = 0x73616D706C65  # so that sampling and order are independent


def sampled_out(doc_ids: pa.Array, seed: int, weight: float) -> npt.NDArray[np.bool_]:
    """Which documents a source's weight leaves out; a document's fate does not depend on the others."""
    if weight >= 1:
        return np.zeros(len(doc_ids), dtype=np.bool_)
    return keyed_hash(doc_ids, seed ^ SAMPLING_SALT) >= np.uint64(int(weight * 2.0**64))


def decide_part(
    part: int, duplicates: pa.RecordBatch, recipe: Recipe, storage: Storage
) -> tuple[str, int, int, Counter[str]]:
    """Write the decisions of a part; (source, kept documents, their bytes, dropped by reason).

    `duplicates`: rows of VERDICTS for this part, in order of key.
    """
    resolved = judges(recipe)
    wanted = dict.fromkeys(["doc_id", "source", "byte_count"])
    for judge in resolved.values():
        wanted.update(dict.fromkeys(judge.columns))
    batch = read_columns(storage, part_name(part), list(wanted))
    count = batch.num_rows
    source = batch.column("source")[0].as_py() if count else recipe.sources[0].name
    judge = resolved[source]
    code, value = judge.judge(batch)
    reasons = (*judge.reasons, "exact_duplicate", "near_duplicate", "sampled_out")
    exact_code, near_code, sampled_code = range(len(judge.reasons), len(reasons))

    rows = row_of(duplicates.column("key").to_numpy())
    removed = duplicates.column("removed").to_numpy(zero_copy_only=False)
    exact = duplicates.column("exact").to_numpy(zero_copy_only=False)
    code[rows[removed]] = np.where(exact[removed], exact_code, near_code)
    value[rows[removed]] = duplicates.column("value").to_numpy(zero_copy_only=False)[removed]

    weight = next(item.weight for item in recipe.sources if item.name == source)
    left_out = sampled_out(batch.column("doc_id"), recipe.seed, weight) & (code == KEPT)
    code[left_out], value[left_out] = sampled_code, weight

    kept = code == KEPT
    reason = pa.DictionaryArray.from_arrays(pa.array(code, mask=kept), pa.array(reasons)).cast(pa.string())
    table = _table(part, batch.column("doc_id"), kept, reason, value, rows, duplicates)
    with storage.create(decision_name(part)) as sink, ipc.new_file(sink, DECISION) as writer:
        writer.write_table(table)
    sizes = batch.column("byte_count").to_numpy()
    counts: Counter[str] = Counter()
    for name, number in zip(reasons, np.bincount(code[~kept], minlength=len(reasons)).tolist(), strict=True):
        counts[name] += number  # several rules may give one reason
    return source, int(kept.sum()), int(sizes[kept].sum()), counts


def _table(
    part: int,
    doc_ids: pa.Array,
    kept: npt.NDArray[np.bool_],
    reason: pa.Array,
    value: npt.NDArray[np.float64],
    rows: npt.NDArray[np.int64],
    duplicates: pa.RecordBatch,
) -> pa.Table:
    count = len(doc_ids)
    place = np.full(count, -1, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    indices = pa.array(place, mask=place < 0)
    partner = duplicates.column("kept_doc_id").cast(pa.binary(16)).take(indices)
    size = duplicates.column("cluster_size").take(indices)
    clustered = pc.is_valid(size)
    removed = duplicates.column("removed").take(indices)
    nothing = pa.nulls(count, pa.binary(16))
    return pa.table(
        [
            pa.array(keys_of(part, count)),
            doc_ids,
            pa.array(kept),
            reason,
            pa.array(value, from_pandas=True),
            pc.if_else(pc.fill_null(removed, False), partner, nothing),
            pc.if_else(clustered, partner, nothing),
            size,
        ],
        schema=DECISION,
    )


def decide(
    spark: SparkSession, recipe: Recipe, storage: Storage, parts: int, exact: DataFrame | None, near: pa.Table | None
) -> list[dict[str, Any]]:
    """Write the decisions of every part; one summary a part (SUMMARY as a dict, `details` read), in order."""
    from pyspark.sql import functions as F

    frame = spark.range(0, parts).selectExpr(
        f"shiftleft(id, 32) + {NO_ROW}L AS key", "false AS removed", "false AS exact", "CAST(NULL AS double) AS value",
        "CAST(NULL AS binary) AS kept_doc_id", "CAST(NULL AS long) AS cluster_size",
    )  # fmt: skip
    rows = spark.createDataFrame(near) if near is not None and near.num_rows else None
    if exact is not None:
        frame = frame.unionByName(_follow(exact, rows))
    if rows is not None:
        frame = frame.unionByName(
            rows.selectExpr("key", "NOT kept AS removed", "false AS exact", "value", "kept_doc_id", "cluster_size")
        )

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part, rows in _by_part(batches):
            source, kept, kept_bytes, reasons = decide_part(part, rows, recipe, storage)
            text = json.dumps({"reasons": +reasons, "file": storage.stamp(decision_name(part))})
            yield pa.RecordBatch.from_pydict({
                "part": [part], "source": [source], "kept": [kept], "kept_bytes": [kept_bytes], "details": [text]
            })  # fmt: skip

    slices = max(1, min(parts, 4 * spark.sparkContext.defaultParallelism))
    placed = frame.repartition(slices, F.shiftright("key", 32)).sortWithinPartitions("key")
    found = placed.mapInArrow(write, SUMMARY).toArrow().sort_by("part").to_pylist()
    return [{**row, **json.loads(row.pop("details"))} for row in found]


def _follow(exact: DataFrame, near: DataFrame | None) -> DataFrame:
    """Exact duplicates as rows of VERDICTS; where their twin went as a near-duplicate, its kept document is theirs."""
    if near is None:
        return exact.selectExpr(
            "key", "true AS removed", "true AS exact", "CAST(1.0 AS double) AS value", "kept_doc_id",
            "CAST(NULL AS long) AS cluster_size",
        )  # fmt: skip
    gone = near.where("NOT kept").selectExpr("key AS kept_key", "value", "kept_doc_id AS next_doc_id")
    return exact.join(gone, "kept_key", "left").selectExpr(
        "key", "true AS removed", "true AS exact", "coalesce(value, 1.0D) AS value",
        "coalesce(next_doc_id, kept_doc_id) AS kept_doc_id", "CAST(NULL AS long) AS cluster_size",
    )  # fmt: skip


def _by_part(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Cut rows in order of key into parts; the sentinel, a part's largest key, closes it and is left out."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        start = 0
        keys = batch.column("key").to_numpy()
        for end in np.flatnonzero(row_of(keys) == NO_ROW):
            held.append(batch.slice(start, int(end) - start))
            yield int(part_of(keys[end : end + 1])[0]), pa.concat_batches(held)
            held, start = [], int(end) + 1
        if start < batch.num_rows:
            held.append(batch.slice(start))
