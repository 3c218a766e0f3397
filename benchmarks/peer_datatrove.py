"""datatrove over a folder of JSONL: Gopher quality, then MinHash. Runs under .venv-peers, prints one line of JSON.

The stages are those of its own examples, with its defaults: 14 buckets of 8 hashes, 5-grams, 64-bit xxhash, English.
Files in between and at the end are not compressed, which favours it.
"""

from __future__ import annotations

import argparse
import json
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import (
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
)
from datatrove.pipeline.filters import GopherQualityFilter
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter

BUCKETS = 14


def stages(source: str, work: str, cores: int) -> list[tuple[str, list[Any], int]]:
    """(name, steps, tasks) of each stage, in order."""
    filtered, signatures, buckets, removed = (f"{work}/{name}" for name in ("filtered", "sigs", "buckets", "removed"))
    rules = [JsonlReader(source), GopherQualityFilter(), JsonlWriter(filtered, compression=None)]
    keep = [JsonlReader(filtered), MinhashDedupFilter(removed), JsonlWriter(f"{work}/kept", compression=None)]
    return [
        ("rules", rules, cores),
        ("signatures", [JsonlReader(filtered), MinhashDedupSignature(signatures)], cores),
        ("buckets", [MinhashDedupBuckets(signatures, buckets)], BUCKETS),
        ("clusters", [MinhashDedupCluster(buckets, removed)], 1),
        ("filter", keep, cores),
    ]


def count(stats: Any, step: int, name: str) -> int:
    """A counter of a step, summed over tasks."""
    return int(stats.stats[step].stats[name].total)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source")
    parser.add_argument("work", type=Path)
    parser.add_argument("--cores", type=int, required=True)
    options = parser.parse_args()
    times, results = {}, {}
    for name, steps, tasks in stages(options.source, str(options.work), options.cores):
        started = time.perf_counter()
        executor = LocalPipelineExecutor(
            pipeline=steps, tasks=tasks, workers=min(options.cores, tasks), logging_dir=f"{options.work}/logs/{name}"
        )
        results[name] = executor.run()
        times[name] = round(time.perf_counter() - started, 2)
    report = {
        "peer": f"datatrove {version('datatrove')}",
        "stages": times,
        "seen": count(results["rules"], 0, "documents"),
        "passed_rules": count(results["rules"], 1, "forwarded"),
        "kept": count(results["filter"], 1, "forwarded"),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
