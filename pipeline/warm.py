"""Compile every kernel once, before many workers would each do it at the same time."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.decide import keyed_hash
from pipeline.inputs import list_inputs, split_tasks
from pipeline.plan import steps_of
from pipeline.readers.contract import InputSource
from pipeline.readers.dispatch import read_task
from pipeline.steps import build_steps
from pipeline.text.buffers import text_buffers
from pipeline.text.minhash import jaccard, unique_shingles
from pipeline.text.words import segment
from schemas.recipe import Recipe


def warm_up(recipe: Recipe) -> None:
    """Send one document the way that all will go; a few seconds on a new machine, under one on a known one."""
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
