"""Clustering laws: every removal has its own similarity to a kept document; nothing depends on order of arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.dedup.components import components_on_driver, components_on_spark, find_components
from pipeline.dedup.near import Clusters, cluster, rank_nodes, star_edges
from schemas.recipe import NearDuplicates

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = NearDuplicates(threshold=0.5, max_rounds=50)


def reference_components(edges: list[tuple[int, int]], count: int) -> list[int]:
    root = list(range(count))
    for _ in range(count):
        for a, b in edges:
            root[a] = root[b] = min(root[a], root[b])
    return root


graphs = st.integers(1, 12).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=20))
)


@settings(max_examples=200, deadline=None)
@given(graphs)
def test_components_equal_the_reference(graph: tuple[int, list[tuple[int, int]]]) -> None:
    count, edges = graph
    pairs = np.array(edges, dtype=np.int64).reshape(-1, 2)
    assert components_on_driver(pairs[:, 0], pairs[:, 1], count).tolist() == reference_components(edges, count)


@pytest.mark.slow
def test_components_on_spark_equal_those_on_the_driver(spark: SparkSession) -> None:
    rng = np.random.default_rng(1)
    chain = np.stack([np.arange(60), np.arange(1, 61)], axis=1)  # the worst case: one long path
    random = rng.integers(100, 160, (40, 2))
    edges = np.concatenate([chain, random])
    left, right = edges[:, 0], edges[:, 1]
    on_driver = components_on_driver(left, right, 200)
    assert find_components(spark, driver_edges=0)(left, right, 200).tolist() == on_driver.tolist()
    assert components_on_spark(spark.createDataFrame(pa.table({"left": left, "right": right}))).count() == len(
        np.unique(edges[edges[:, 0] != edges[:, 1]])
    )


members = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), min_size=1, max_size=40)


@given(members)
def test_star_edges_are_few_and_reach_the_smallest(rows: list[tuple[int, int]]) -> None:
    rows = sorted(set(rows))
    bucket, rank = np.array(rows, dtype=np.int64).T
    left, right = star_edges(bucket, rank)
    expected = set()
    for b in set(bucket.tolist()):
        inside = sorted(rank[bucket == b].tolist())
        expected |= {(inside[0], other) for other in inside[1:]}
    assert list(zip(left.tolist(), right.tolist(), strict=True)) == sorted(expected)


def run(rows: list[tuple[int, int]], seed: int, config: NearDuplicates = CONFIG) -> tuple[Clusters, np.ndarray]:
    """Cluster ten documents with a random symmetric similarity."""
    table = np.random.default_rng(seed).random((10, 10))
    similarity = np.maximum(table, table.T)
    bucket, rank = np.array(sorted(set(rows)), dtype=np.int64).T
    measure = lambda left, right: similarity[left, right]  # noqa: E731
    return cluster(bucket, rank, 10, measure, components_on_driver, config), similarity


@settings(max_examples=300, deadline=None)
@given(members, st.integers(0, 1000))
def test_a_document_goes_only_if_its_own_similarity_to_a_kept_one_reaches_the_threshold(
    rows: list[tuple[int, int]], seed: int
) -> None:
    found, similarity = run(rows, seed)
    removed = np.flatnonzero(found.leader >= 0)
    leaders = found.leader[removed]
    assert not set(leaders.tolist()) & set(removed.tolist())
    assert np.array_equal(found.value[removed], similarity[leaders, removed])
    assert (found.value[removed] >= CONFIG.threshold).all()
    assert (leaders < removed).all()  # the more preferred document stays
    assert found.report["unresolved"] == 0


@settings(max_examples=100, deadline=None)
@given(members, st.integers(0, 1000), st.randoms())
def test_the_result_does_not_depend_on_the_order_of_rows(
    rows: list[tuple[int, int]], seed: int, random: object
) -> None:
    rows = sorted(set(rows))
    table = np.random.default_rng(seed).random((10, 10))
    similarity = np.maximum(table, table.T)
    results = []
    for permutation in (np.arange(len(rows)), np.random.default_rng(seed).permutation(len(rows))):
        bucket, rank = np.array(rows, dtype=np.int64)[permutation].T
        found = cluster(bucket, rank, 10, lambda a, b: similarity[a, b], components_on_driver, CONFIG)
        results.append((found.leader.tolist(), found.cluster.tolist(), found.size.tolist()))
    assert results[0] == results[1]


def test_a_chain_keeps_its_far_end() -> None:
    """0 ~ 1 ~ 2, but 0 and 2 are unlike: transitive closure would remove 2 without a reason."""
    similarity = np.eye(3)
    similarity[0, 1] = similarity[1, 0] = similarity[1, 2] = similarity[2, 1] = 0.9
    bucket, rank = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 2])
    found = cluster(bucket, rank, 3, lambda a, b: similarity[a, b], components_on_driver, CONFIG)
    assert found.leader.tolist() == [-1, 0, -1]
    assert found.size.tolist() == [3, 3, 0]


def test_what_the_last_round_leaves_is_kept_and_reported() -> None:
    rows = [(0, rank) for rank in range(10)]
    found, _ = run(rows, 3, NearDuplicates(threshold=1.0, max_rounds=2))
    assert (found.leader < 0).all() and found.report["unresolved"] == 8


def test_the_order_of_preference_is_priority_then_length_then_id() -> None:
    table = pa.table(
        {
            "bucket": [1, 1, 1, 1],
            "neg_priority": pa.array([0, 0, 0, -1], pa.int32()),
            "neg_length": [-5, -9, -9, -1],
            "doc_id": pa.array([b"a" * 16, b"z" * 16, b"b" * 16, b"y" * 16], pa.binary()),
            "key": [10, 11, 12, 13],
        }
    )
    keys, ids, rank = rank_nodes(table)
    assert keys.tolist() == [13, 12, 11, 10]
    assert ids[0] == b"y" * 16 and rank.tolist() == [3, 2, 1, 0]
