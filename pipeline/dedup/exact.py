"""Exact duplicates: equal 128-bit content hashes; the first in the order of preference stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.dedup.keys import content_keys, order
from pipeline.storage import Storage
from schemas.recipe import Recipe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def exact_drops(spark: SparkSession, recipe: Recipe, storage: Storage, parts: int) -> DataFrame:
    """(key, kept_key, kept_doc_id) of every document whose text equals that of a kept one."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    keys = content_keys(spark, recipe, storage, parts)
    same = Window.partitionBy("hash_1", "hash_2")  # one pass over the parts and one shuffle, which spills
    return (
        keys.withColumn("first", F.min(order()).over(same))
        .where("key != first.key")
        .select("key", F.col("first.key").alias("kept_key"), F.col("first.doc_id").alias("kept_doc_id"))
    )
