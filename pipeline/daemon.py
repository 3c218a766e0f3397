"""The Python daemon of the embedded session: everything is imported once, and every worker is a fork of that.

Spark starts it as `python -m pipeline.daemon`. Clusters keep Spark's own daemon, which needs nothing installed.
"""

from __future__ import annotations

import fasttext  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import pipeline.dedup.near
import pipeline.ingest
import pipeline.shards  # noqa: F401
from pipeline.text.classes import tables

if __name__ == "__main__":
    tables()
    manager()
