"""Connected components of the graph of verified pairs: SciPy on the driver, or star contraction on Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Ranks = npt.NDArray[np.int64]

# Above this many edges (about 2 GB on the driver) the components are found on Spark.
DRIVER_EDGES = 50_000_000


def find_components(spark: SparkSession, driver_edges: int = DRIVER_EDGES) -> Callable[[Ranks, Ranks, int], Ranks]:
    """The function (left, right, number of nodes) -> smallest node of each node's component; both ways agree."""

    def find(left: Ranks, right: Ranks, count: int) -> Ranks:
        if len(left) <= driver_edges:
            return components_on_driver(left, right, count)
        edges = spark.createDataFrame(pa.table({"left": left, "right": right}))
        found = components_on_spark(edges).toArrow()
        result = np.arange(count, dtype=np.int64)
        result[found.column("node").to_numpy()] = found.column("component").to_numpy()
        return result

    return find


def components_on_driver(left: Ranks, right: Ranks, count: int) -> Ranks:
    """The smallest node of each node's component, int64[count]; about 40 bytes of memory for each edge."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(left), dtype=np.int8), (left, right)), shape=(count, count))
    _, labels = connected_components(graph, directed=False)
    smallest = np.full(int(labels.max(initial=-1)) + 1, count, dtype=np.int64)
    np.minimum.at(smallest, labels, np.arange(count))
    return smallest[labels]


def components_on_spark(edges: DataFrame) -> DataFrame:
    """(node, component) of every node of the edges (left, right), by alternating large and small stars to a fixpoint.

    Kiveris et al. 2014, "Connected Components in MapReduce and Beyond": O(log^2 n) rounds, no node holds a component.
    """
    from pyspark.sql import functions as F

    current = edges.where("left != right").select("left", "right").distinct().localCheckpoint()
    while True:
        stars = _small_star(_large_star(current)).localCheckpoint()
        changed = stars.exceptAll(current).limit(1).count() + current.exceptAll(stars).limit(1).count()
        current = stars
        if not changed:
            break
    members = current.select(F.col("left").alias("node"), F.col("right").alias("component"))
    roots = current.select(F.col("right").alias("node"), F.col("right").alias("component")).distinct()
    return members.unionByName(roots)


def _large_star(edges: DataFrame) -> DataFrame:
    """Link every larger neighbour of a node to the smallest of the node and its neighbours."""
    from pyspark.sql import functions as F

    both = edges.unionByName(edges.select(F.col("right").alias("left"), F.col("left").alias("right")))
    smallest = both.groupBy("left").agg(F.least(F.min("right"), F.first("left")).alias("root"))
    linked = (
        both.join(smallest, "left")
        .where("right > left")
        .select(F.col("right").alias("left"), F.col("root").alias("right"))
    )
    return linked.where("left != right").distinct()


def _small_star(edges: DataFrame) -> DataFrame:
    """Link a node and all its smaller neighbours to the smallest of them."""
    from pyspark.sql import functions as F

    down = edges.select(F.greatest("left", "right").alias("left"), F.least("left", "right").alias("right"))
    smallest = down.groupBy("left").agg(F.min("right").alias("root"))
    joined = down.join(smallest, "left")
    others = joined.select(F.col("right").alias("left"), F.col("root").alias("right"))
    own = smallest.select("left", F.col("root").alias("right"))
    return others.unionByName(own).where("left != right").distinct()
