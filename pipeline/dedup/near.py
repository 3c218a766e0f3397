"""Near-duplicates: banding on Spark, star edges, exact verification, components, removal only against a kept document.

Spark finds the band buckets that documents share and measures every pair; the rounds in between are arithmetic on the
memberships of shared buckets (44 bytes each) and run on the driver.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.dedup.components import find_components
from pipeline.dedup.keys import band_keys
from pipeline.dedup.shingles import similarities, write_all_shingles
from pipeline.storage import Storage
from schemas.recipe import NearDuplicates, Recipe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Measure = Callable[[Ints, Ints], Floats]  # similarities of pairs of ranks
Components = Callable[[Ints, Ints, int], Ints]  # smallest node of each node's component

NEAR = pa.schema(
    [
        pa.field("key", pa.int64()),
        pa.field("kept", pa.bool_()),
        pa.field("value", pa.float64()),
        pa.field("kept_doc_id", pa.binary()),
        pa.field("cluster_size", pa.int64()),
    ]
)


@dataclass
class Clusters:
    """What became of the candidates, by rank (0 is the most preferred document)."""

    leader: Ints  # the kept document a removed one was measured against, -1 otherwise
    value: Floats  # that similarity
    cluster: Ints  # representative of its component, -1 if it has none
    size: Ints  # documents in that component
    report: dict[str, int] = field(default_factory=dict)


def star_edges(bucket: Ints, rank: Ints) -> tuple[Ints, Ints]:
    """(smallest, other) of every bucket: n - 1 pairs for n members, each pair once, sorted."""
    by_bucket = np.lexsort((rank, bucket))
    bucket, rank = bucket[by_bucket], rank[by_bucket]
    first = np.ones(len(bucket), dtype=np.bool_)
    first[1:] = bucket[1:] != bucket[:-1]
    centre = rank[np.maximum.accumulate(np.where(first, np.arange(len(bucket)), 0))] if len(bucket) else rank
    pairs = np.unique(np.stack([centre[~first], rank[~first]], axis=1), axis=0)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def cluster(
    bucket: Ints, rank: Ints, count: int, measure: Measure, components: Components, config: NearDuplicates
) -> Clusters:
    """Decide the candidates 0 … count - 1, given the members of shared buckets.

    Each round links the members of a bucket to its most preferred one, measures the links, and takes the components
    of those at or above the threshold. The most preferred document of a component is kept; a member goes if its own
    similarity to that document reaches the threshold. The rest, and members whose link failed, are clustered again.
    """
    none = np.full(count, -1, dtype=np.int64)
    result = Clusters(none.copy(), np.full(count, np.nan), none.copy(), np.zeros(count, dtype=np.int64))
    report = {"candidates": count, "pairs_measured": 0, "pairs_verified": 0, "rounds": 0, "unresolved": 0}
    open_nodes = np.ones(count, dtype=np.bool_)
    while True:
        inside = open_nodes[rank]
        left, right = star_edges(bucket[inside], rank[inside])
        if len(left) == 0:
            break
        if report["rounds"] == config.max_rounds:
            report["unresolved"] = len(np.unique(np.concatenate([left, right])))
            break
        report["rounds"] += 1
        value = measure(left, right)
        good = value >= config.threshold
        report["pairs_measured"] += len(left)
        report["pairs_verified"] += int(good.sum())
        waiting = np.zeros(count, dtype=np.bool_)
        waiting[right[~good]] = True
        root = components(left[good], right[good], count)
        direct = (right[good], left[good], value[good])
        report["pairs_measured"] += _settle(root, direct, measure, config, result, waiting)
        open_nodes &= waiting
    result.report.update(report)
    return result


def _settle(
    root: Ints,
    direct: tuple[Ints, Ints, Floats],
    measure: Measure,
    config: NearDuplicates,
    result: Clusters,
    waiting: npt.NDArray[np.bool_],
) -> int:
    """Keep each component's representative, remove what is similar to it, mark the rest as waiting.

    `direct` holds the verified pairs (member, other, similarity). Returns the number of pairs measured in addition.
    """
    count = len(waiting)
    size = np.bincount(root, minlength=count)
    members = np.flatnonzero((size[root] > 1) & (root != np.arange(count)))
    similarity = np.full(count, np.nan)
    member, other, value = direct
    known = root[member] == other
    similarity[member[known]] = value[known]
    unknown = members[np.isnan(similarity[members])]
    if len(unknown):
        similarity[unknown] = measure(root[unknown], unknown)
    gone = members[similarity[members] >= config.threshold]
    rest = members[similarity[members] < config.threshold]
    keepers = np.unique(root[members])
    result.leader[gone], result.value[gone] = root[gone], similarity[gone]
    for nodes in (gone, keepers):
        result.cluster[nodes], result.size[nodes] = root[nodes], size[root[nodes]]
    waiting[gone] = waiting[keepers] = False
    waiting[rest] = True
    return len(unknown)


def shared_buckets(
    spark: SparkSession, recipe: Recipe, storage: Storage, parts: int, dropped: DataFrame | None
) -> pa.Table:
    """(bucket, ORDER columns) of every member of a bucket that at least two documents share."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    keys = band_keys(spark, recipe, storage, parts)
    if dropped is not None:
        keys = keys.join(dropped.select("key"), "key", "left_anti")
    members = keys.select("neg_priority", "neg_length", "doc_id", "key", F.explode("bands").alias("bucket"))
    size = F.count("*").over(Window.partitionBy("bucket"))  # one pass over the parts and one shuffle, which spills
    return members.withColumn("size", size).where("size > 1").drop("size").toArrow()


def rank_nodes(members: pa.Table) -> tuple[Ints, list[bytes], Ints]:
    """(keys, doc ids, rank of each row): candidates in the order of preference."""
    key = members.column("key").to_numpy()
    unique, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    nodes = members.select(["neg_priority", "neg_length", "doc_id"]).take(pa.array(first)).combine_chunks()
    ids = nodes.column("doc_id").cast(pa.binary(16)).combine_chunks()
    halves = np.frombuffer(b"".join(chunk.buffers()[1] for chunk in _chunks(ids)), dtype=">u8").reshape(-1, 2)
    length, priority = (nodes.column(name).to_numpy() for name in ("neg_length", "neg_priority"))
    preference = np.lexsort((unique, halves[:, 1], halves[:, 0], length, priority))
    rank = np.empty(len(unique), dtype=np.int64)
    rank[preference] = np.arange(len(unique))
    doc_ids = [halves[i].tobytes() for i in preference]
    return unique[preference], doc_ids, rank[inverse.ravel()]


def _chunks(array: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return array.chunks if isinstance(array, pa.ChunkedArray) else [array]


def near_drops(
    spark: SparkSession, recipe: Recipe, storage: Storage, parts: int, dropped: DataFrame | None
) -> tuple[pa.Table, dict[str, int]]:
    """(rows of NEAR for removed documents and for kept ones of a cluster, figures for the report)."""
    config = recipe.near_dup
    members = shared_buckets(spark, recipe, storage, parts, dropped)
    if members.num_rows == 0:
        return NEAR.empty_table(), {"candidates": 0}
    keys, doc_ids, rank = rank_nodes(members)
    bucket = members.column("bucket").to_numpy()
    write_all_shingles(spark, storage, np.sort(keys), config.ngram)

    def measure(left: Ints, right: Ints) -> Floats:
        return similarities(spark, storage, keys[left], keys[right])

    found = cluster(bucket, rank, len(keys), measure, find_components(spark), config)
    storage.remove("near")
    sizes = np.unique(bucket, return_counts=True)[1]
    report = {
        **found.report,
        "removed": int((found.leader >= 0).sum()),
        "largest_bucket": int(sizes.max()),
        "large_buckets": int((sizes > config.bucket_report).sum()),
    }
    return _rows(found, keys, doc_ids), report


def _rows(found: Clusters, keys: Ints, doc_ids: list[bytes]) -> pa.Table:
    nodes = np.flatnonzero(found.cluster >= 0)
    return pa.table(
        [
            pa.array(keys[nodes]),
            pa.array(found.leader[nodes] < 0),
            pa.array(found.value[nodes], from_pandas=True),
            pa.array([doc_ids[i] for i in found.cluster[nodes]], pa.binary()),
            pa.array(found.size[nodes]),
        ],
        schema=NEAR,
    )
