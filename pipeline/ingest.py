"""Text pass 1: read, normalise, score, fingerprint. Each task writes one part, its quarantine and, last, its ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from pipeline.parts import part_name
from pipeline.plan import Plan, steps_of
from pipeline.readers.contract import ReadOptions, ReadTask
from pipeline.readers.dispatch import read_task
from pipeline.steps import BatchFunction, build_steps
from pipeline.storage import Storage
from schemas.arrow import QUARANTINE, RAW_DOCUMENT
from schemas.errors import UserError
from schemas.recipe import Recipe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Parts are read again within the hour: a fast codec. Text falls to about half.
PART_OPTIONS = ipc.IpcWriteOptions(compression="lz4")


def ledger_name(part: int) -> str:
    return f"ledger/{part:06d}.json"


def quarantine_name(part: int) -> str:
    return f"quarantine/{part:06d}.arrow"


@lru_cache(maxsize=4)
def _steps(recipe_json: str) -> BatchFunction:
    """The steps, built once per Python worker."""
    return build_steps(steps_of(Recipe.model_validate_json(recipe_json)))


def run_task(part: int, task: ReadTask, recipe: Recipe, storage: Storage) -> dict[str, Any]:
    """Write part `part` and return its ledger. A task whose ledger stands is not run again.

    The ledger is the commit: a part without one, or whose bytes are not those it records, is written anew.
    """
    if (ledger := _finished(part, storage)) is not None:
        return ledger
    steps = _steps(recipe.model_dump_json())
    schema = steps(_empty_batch()).schema
    options = ReadOptions(max_document_bytes=recipe.tasks.max_document_bytes)
    delivered = text_bytes = normalized_bytes = 0
    quarantine: list[pa.RecordBatch] = []
    with storage.create(part_name(part)) as sink, ipc.new_file(sink, schema, options=PART_OPTIONS) as writer:
        for batch in read_task(task, options):
            if batch.quarantine.num_rows:
                quarantine.append(batch.quarantine)
            if batch.documents.num_rows == 0:
                continue
            text_bytes += batch.text_bytes
            scored = steps(batch.documents)
            delivered += scored.num_rows
            normalized_bytes += int(pc.sum(scored.column("byte_count")).as_py())
            writer.write_batch(scored.cast(schema) if scored.schema != schema else scored)
    rows = pa.Table.from_batches(quarantine, schema=QUARANTINE)
    if rows.num_rows:
        with storage.create(quarantine_name(part)) as sink, ipc.new_file(sink, QUARANTINE) as writer:
            writer.write_table(rows)
    ledger = {
        "part": storage.stamp(part_name(part)),
        "source": task.source.name,
        "delivered": delivered,
        "text_bytes": text_bytes,
        "normalized_bytes": normalized_bytes,
        "records": _by_reason(rows.filter(pc.greater_equal(rows.column("position"), 0))),
        "files": _by_reason(rows.filter(pc.less(rows.column("position"), 0))),
    }
    storage.write_json(ledger_name(part), ledger)
    return ledger


def _finished(part: int, storage: Storage) -> dict[str, Any] | None:
    """The ledger of a part that is whole."""
    if not storage.exists(ledger_name(part)):
        return None
    ledger: dict[str, Any] | None = storage.read_json(ledger_name(part))
    return ledger if ledger is not None and ledger.get("part") == storage.stamp(part_name(part)) else None


def _empty_batch() -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in RAW_DOCUMENT], schema=RAW_DOCUMENT)


def _by_reason(rows: pa.Table) -> dict[str, int]:
    return dict(sorted(Counter(rows.column("reason").to_pylist()).items()))


def ingest(spark: SparkSession, plan: Plan, storage: Storage) -> list[dict[str, Any]]:
    """Run all tasks that have no ledger yet; returns the ledgers in order of parts."""
    work: Sequence[tuple[int, ReadTask]] = list(enumerate(plan.tasks))
    recipe = plan.recipe
    rows = spark.sparkContext.parallelize(work, max(1, len(work)))
    return rows.map(lambda item: run_task(item[0], item[1], recipe, storage)).collect()


def check_quarantine(plan: Plan, ledgers: Sequence[dict[str, Any]], storage: Storage) -> None:
    """Raise UserError if more was set aside than the recipe allows, or nothing was delivered at all."""
    # A file that cannot be read counts as one record at least; an empty one is nobody's loss.
    lost = sum(count for ledger in ledgers for reason, count in ledger["files"].items() if reason != "empty_file")
    aside = lost + sum(sum(ledger["records"].values()) for ledger in ledgers)
    seen = aside + sum(ledger["delivered"] for ledger in ledgers)
    reasons: Counter[str] = Counter()
    for ledger in ledgers:
        reasons.update(ledger["records"])
        reasons.update(ledger["files"])
    limit = plan.recipe.quarantine.max_fraction
    worst = ", ".join(f"{reason} {count:,}" for reason, count in reasons.most_common(3))
    if seen and aside > limit * seen:
        raise UserError(
            f"{aside:,} of {seen:,} records and files ({aside / seen:.1%}) were set aside, more than "
            f"quarantine.max_fraction = {limit:.1%} ({worst}): look at them with `prep quarantine {storage.root}`, "
            "then mend the input or raise the limit"
        )
    if not any(ledger["delivered"] for ledger in ledgers):
        raise UserError(
            f"no document could be read from {plan.input_files:,} files ({worst or 'they hold no records'})"
        )
