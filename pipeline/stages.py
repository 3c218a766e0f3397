"""The clean job: two passes over text, and keys only between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import ipc

from pipeline import decide, ingest, shards
from pipeline.dedup.exact import exact_drops
from pipeline.dedup.near import NEAR, near_drops
from pipeline.parts import decision_name
from pipeline.plan import Plan, open_run, recipe_fields
from pipeline.progress import say, stage
from pipeline.storage import Storage
from schemas.manifest import MANIFEST_NAME, Counts, DocumentManifest, ShardEntry, fingerprint, to_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MANIFEST = f"shards/{MANIFEST_NAME}"
REPORT = "report.json"
NEAR_ROWS = "stages/near.arrow"


class CountError(RuntimeError):
    """in = kept + dropped + quarantined does not hold: a defect of this program, never of the input."""


def begin(plan: Plan, storage: Storage, restart: bool = False) -> DocumentManifest | None:
    """Claim the output folder; the manifest if the run is complete. Needs no Spark. Raises UserError."""
    open_run(plan, storage, restart)
    found = storage.read_json(MANIFEST)
    if found is None or storage.read_json(REPORT) is None:
        return None
    manifest = DocumentManifest.model_validate(found)
    damaged = [entry.path for entry in manifest.shards if not _is_whole(entry, storage)]
    if damaged:
        say(f"{storage.root}/shards/{damaged[0]} is missing or damaged: the shards are written again")
        storage.remove(MANIFEST)
        return None
    say(f"{storage.root}: this run is complete; nothing to do (start over with --restart)")
    return manifest


def _is_whole(entry: ShardEntry, storage: Storage) -> bool:
    return storage.stamp(f"shards/{entry.path}") == {"bytes": entry.bytes, "checksum": entry.checksum}


def clean(plan: Plan, spark: SparkSession, storage: Storage) -> DocumentManifest:
    """Run the recipe; a finished stage is not repeated. Raises UserError for what the user can mend."""
    if (complete := begin(plan, storage)) is not None:
        return complete
    if before := len(storage.names("ledger")):
        say(f"{before} of {len(plan.tasks)} parts were finished before")
    with stage(spark, "1 read and score"):
        ledgers = ingest.ingest(spark, plan, storage)
    ingest.check_quarantine(plan, ledgers, storage)
    exact = (
        exact_drops(spark, plan.recipe, storage, len(plan.tasks)).persist() if plan.recipe.exact_dup.enabled else None
    )
    with stage(spark, "2 duplicates"):
        near, near_report = near_stage(plan, spark, storage, exact)
    with stage(spark, "3 decisions"):
        decisions = decide_stage(plan, spark, storage, exact, near)
    counts, by_source = close_counts(plan, ledgers, decisions)
    with stage(spark, "4 write shards"):
        kept_bytes = sum(row["kept_bytes"] for row in decisions)
        entries = shards.write_shards(spark, plan.recipe, storage, len(plan.tasks), kept_bytes)
    return finish(plan, storage, counts, by_source, entries, report_of(ledgers, near_report, kept_bytes))


def near_stage(
    plan: Plan, spark: SparkSession, storage: Storage, exact: DataFrame | None
) -> tuple[pa.Table, dict[str, int]]:
    """Near-duplicate verdicts, kept in the run's folder so that a killed run does not find them again."""
    if not plan.recipe.near_dup.enabled:
        return NEAR.empty_table(), {}
    marker = storage.read_json("stages/near.json")
    if marker is not None and marker["file"] == storage.stamp(NEAR_ROWS):
        with storage.open(NEAR_ROWS) as source:
            return ipc.open_file(source).read_all(), marker["report"]
    near, report = near_drops(spark, plan.recipe, storage, len(plan.tasks), exact)
    with storage.create(NEAR_ROWS) as sink, ipc.new_file(sink, NEAR) as writer:
        writer.write_table(near)
    storage.write_json("stages/near.json", {"report": report, "file": storage.stamp(NEAR_ROWS)})
    return near, report


def decide_stage(
    plan: Plan, spark: SparkSession, storage: Storage, exact: DataFrame | None, near: pa.Table
) -> list[dict[str, Any]]:
    """Decisions of every part; the summaries, with a checksum of each file, are the stage's marker."""
    marker = "stages/decisions.json"
    summaries: list[dict[str, Any]] | None = storage.read_json(marker)
    if summaries is None or any(row["file"] != storage.stamp(decision_name(row["part"])) for row in summaries):
        summaries = decide.decide(spark, plan.recipe, storage, len(plan.tasks), exact, near)
        storage.write_json(marker, summaries)
    return summaries


def close_counts(
    plan: Plan, ledgers: Sequence[dict[str, Any]], decisions: Sequence[dict[str, Any]]
) -> tuple[Counts, dict[str, Counts]]:
    """Counts in all and by source. Raises CountError unless in = kept + dropped + quarantined for each."""
    if len(ledgers) != len(plan.tasks) or len(decisions) != len(plan.tasks):
        raise CountError(f"{len(plan.tasks)} tasks, {len(ledgers)} ledgers, {len(decisions)} decisions")
    by_source = {}
    for source in plan.recipe.sources:
        pairs = [(a, b) for a, b in zip(ledgers, decisions, strict=True) if a["source"] == source.name]
        by_source[source.name] = _counts(pairs)
    total = Counts(
        seen=sum(counts.seen for counts in by_source.values()),
        kept=sum(counts.kept for counts in by_source.values()),
        dropped=_sum(counts.dropped for counts in by_source.values()),
        quarantined=_sum(counts.quarantined for counts in by_source.values()),
    )
    for name, counts in {"all sources": total, **by_source}.items():
        if not counts.closes():
            raise CountError(f"{name}: {counts.seen} seen, but {counts.model_dump()}")
    return total, by_source


def _counts(pairs: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> Counts:
    quarantined = _sum(ledger["records"] for ledger, _ in pairs)
    return Counts(
        seen=sum(ledger["delivered"] for ledger, _ in pairs) + sum(quarantined.values()),
        kept=sum(decision["kept"] for _, decision in pairs),
        dropped=_sum(decision["reasons"] for _, decision in pairs),
        quarantined=quarantined,
    )


def _sum(counts: Any) -> dict[str, int]:
    total: Counter[str] = Counter()
    for item in counts:
        total.update(item)
    return dict(sorted(total.items()))


def report_of(ledgers: Sequence[dict[str, Any]], near: dict[str, int], kept_bytes: int) -> dict[str, Any]:
    """Figures beside the counts, for the report."""
    return {
        "text_bytes_in": sum(ledger["text_bytes"] for ledger in ledgers),
        "text_bytes_normalized": sum(ledger["normalized_bytes"] for ledger in ledgers),
        "text_bytes_kept": kept_bytes,
        "files_quarantined": _sum(ledger["files"] for ledger in ledgers),
        "near_duplicates": near,
    }


def finish(
    plan: Plan,
    storage: Storage,
    counts: Counts,
    by_source: dict[str, Counts],
    entries: list[ShardEntry],
    report: dict[str, Any],
) -> DocumentManifest:
    """Check the written rows against the decisions, then publish the report and, last, the manifest."""
    written = sum(entry.rows for entry in entries)
    if written != counts.kept:
        raise CountError(f"{counts.kept} documents kept, but {written} written")
    stamp = fingerprint({"plan": plan.fingerprint, "shards": [entry.checksum for entry in entries]})
    manifest = DocumentManifest(
        fingerprint=stamp, recipe=recipe_fields(plan.recipe), counts=counts, sources=by_source, shards=entries
    )
    for folder in ("parts", "quarantine", "ledger", "decisions", "stages", "shards"):
        storage.sweep(folder)
    storage.write_json(REPORT, {"counts": counts.model_dump(mode="json"), **report})
    storage.write_text(MANIFEST, to_json(manifest))
    return manifest
