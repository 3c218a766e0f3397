"""Pay start-up costs once: compiled kernels, and an archive of Spark's classes that later JVMs map into memory."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.decide import keyed_hash
from pipeline.inputs import list_inputs, split_tasks
from pipeline.plan import make_plan, steps_of
from pipeline.readers.contract import InputSource
from pipeline.readers.dispatch import read_task
from pipeline.spark import class_archive, embedded_session, java_options
from pipeline.stages import clean
from pipeline.steps import build_steps
from pipeline.storage import Storage
from pipeline.text.buffers import text_buffers
from pipeline.text.minhash import jaccard, unique_shingles
from pipeline.text.words import segment
from schemas.recipe import Recipe, Source

JVM_EXIT_S = 120


def warm_up(recipe: Recipe) -> None:
    """Send one document the way that all will go, so that every kernel is compiled and loaded in this process.

    A few seconds on a new machine, two on a known one.
    """
    steps = build_steps(steps_of(recipe))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.jsonl"
        path.write_text('{"text": "one small document\\u00e9", "n": 1}\n', encoding="utf-8")
        source = InputSource(recipe.sources[0].name, (str(path),))
        for task in split_tasks(source, list_inputs(source), 1 << 20):
            for batch in read_task(task):
                scored = steps(batch.documents)
                table = segment(text_buffers(scored.column("text")), np.empty(0, dtype=np.uint64))
                sets, offsets = unique_shingles(table.hashes, table.offsets, 2)
                zero = np.zeros(1, dtype=np.int64)
                jaccard(sets, offsets, sets, offsets, zero, zero)
                keyed_hash(scored.column("doc_id").cast(pa.binary(16)), 0)


def archive_classes() -> bool:
    """Run a tiny recipe and let its JVM archive the classes that it loaded; False if the archive was there already."""
    from pyspark import SparkContext

    archive = class_archive()
    if archive.exists():
        return False
    unfinished = archive.with_suffix(".part")
    unfinished.unlink(missing_ok=True)
    flags = [*java_options(0), f"-XX:ArchiveClassesAtExit={unfinished}", "-Xlog:disable"]
    with tempfile.TemporaryDirectory() as folder:
        session = embedded_session("local[2]", "1g", flags=flags)
        recipe = _tiny_recipe(Path(folder))
        clean(make_plan(recipe), session, Storage.at(recipe.output))
        gateway = SparkContext._gateway
        session.stop()
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends, and writes the archive while it does
    gateway.proc.wait(JVM_EXIT_S)
    unfinished.replace(archive)
    return True


def _tiny_recipe(folder: Path) -> Recipe:
    """A recipe that passes through every stage: exact and near-duplicates, several parts."""
    words = [f"word{i % 97} and number{i % 89}" for i in range(400)]
    texts = [" ".join(words), " ".join(words), " ".join([*words, "more"]), "short"]
    for i, text in enumerate(texts):
        (folder / f"{i}.jsonl").write_text(json.dumps({"text": text}) + "\n", encoding="utf-8")
    source = Source(name="warm", paths=[str(folder / "*.jsonl")])
    values = {
        "name": "warm",
        "output": str(folder / "out"),
        "sources": [source.model_dump()],
        "tasks": {"target_bytes": 1024},
    }
    return Recipe.model_validate(values)
