"""The Python daemon of the embedded session: everything is imported and loaded once; every worker is a fork of it.

Spark starts it as `python -m pipeline.daemon`. Clusters keep Spark's own daemon, which needs nothing installed.
"""

from __future__ import annotations

import sys

# Spark puts its zipped sources first, which Python compiles anew in every process; the installed package is compiled.
sys.path.sort(key=lambda entry: entry.endswith(".zip"))

import fasttext  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import pipeline.dedup.near
import pipeline.ingest
import pipeline.shards  # noqa: F401
from pipeline.warm import warm_up
from schemas.recipe import Recipe, Source

if __name__ == "__main__":
    warm_up(Recipe(name="warm", output="-", sources=[Source(name="warm", paths=["-"])]))
    manager()
