"""What a run did, for people: tables on the terminal."""

from __future__ import annotations

import json
import sys
from typing import Any

import pyarrow as pa
from pyarrow import ipc
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from pipeline.judge import load_rule_set
from pipeline.plan import Plan
from pipeline.signals import SIGNALS
from pipeline.stages import MANIFEST, REPORT
from pipeline.storage import Storage
from schemas.config import dump_yaml
from schemas.errors import UserError
from schemas.manifest import Counts, DocumentManifest


def size(count: float) -> str:
    """12 B, 3.4 kB, 56.7 MB: powers of ten."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(count) < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def print_plan(plan: Plan) -> None:
    """Inputs, tasks, steps and rules of a run that is not started."""
    console = Console()
    table = Table(
        "source", "files", "bytes", "tasks", "weight", title=escape(f"{plan.recipe.name}: {plan.recipe.output}")
    )
    for source in plan.recipe.sources:
        files = plan.files[source.name]
        tasks = sum(task.source.name == source.name for task in plan.tasks)
        total = sum(file.size for file in files)
        table.add_row(source.name, f"{len(files):,}", size(total), f"{tasks:,}", f"{source.weight:g}")
    console.print(table)
    console.print("steps: " + ", ".join(step.name for step in plan.steps))
    for name, judge in plan.judges.items():
        console.print(f"rules of {name}: " + (", ".join(rule.reason for rule in judge.rules) or "none"))
    console.print(f"fingerprint {plan.fingerprint}; nothing was run")
    console.print("\n" + dump_yaml(plan.recipe), markup=False, highlight=False)


def _count_row(table: Table, name: str, counts: Counts) -> None:
    reasons = [f"{reason} {count:,}" for reason, count in counts.dropped.items()]
    aside = [f"{reason} {count:,}" for reason, count in counts.quarantined.items()]
    table.add_row(
        name,
        f"{counts.seen:,}",
        f"{counts.kept:,}",
        f"{sum(counts.dropped.values()):,}\n" + "\n".join(reasons),
        f"{sum(counts.quarantined.values()):,}\n" + "\n".join(aside),
    )


def read_results(storage: Storage) -> tuple[DocumentManifest, dict[str, Any]]:
    """The manifest and the report of a finished run. Raises UserError if it has not finished."""
    manifest, report = storage.read_json(MANIFEST), storage.read_json(REPORT)
    if manifest is None or report is None:
        missing = MANIFEST if manifest is None else REPORT
        raise UserError(f"{storage.root}: holds no finished run ({missing} is missing or damaged)")
    return DocumentManifest.model_validate(manifest), report


def print_summary(storage: Storage) -> None:
    """Documents in, dropped by reason, kept, by source; bytes; where the shards lie."""
    manifest, report = read_results(storage)
    console = Console()
    table = Table(
        "source", "documents in", "kept", "dropped", "quarantined", title=escape(str(manifest.recipe["name"]))
    )
    for name, counts in manifest.sources.items():
        _count_row(table, name, counts)
    table.add_section()
    _count_row(table, "all", manifest.counts)
    console.print(table)
    near = report["near_duplicates"]
    if near.get("unresolved"):
        console.print(f"near-duplicates: {near['unresolved']:,} candidates left after the last round were kept")
    if report["files_quarantined"]:
        console.print(f"files with a defect: {json.dumps(report['files_quarantined'])}")
    console.print(
        f"text in {size(report['text_bytes_in'])}, kept {size(report['text_bytes_kept'])}, "
        f"{len(manifest.shards)} shards of {size(sum(shard.bytes for shard in manifest.shards))}"
    )
    if manifest.counts.kept == 0:
        console.print("warning: no document was kept; see the reasons above")
    console.print(f"in {manifest.counts.seen:,} = kept + dropped + quarantined", highlight=False)
    console.print(f"shards: {storage.root.rstrip('/')}/shards", soft_wrap=True, highlight=False)


def folding(*names: str, title: str | None = None) -> Table:
    """A table that breaks long names instead of cutting them: they are there to be copied."""
    return Table(*(Column(name, overflow="fold") for name in names), title=title)


def print_rules(name: str) -> None:
    """One rule set as a table."""
    table = folding("signal", "drop if", "reason", "languages", title=name)
    for rule in load_rule_set(name):
        languages = ", ".join(rule.languages or []) or (
            "not " + ", ".join(rule.except_languages or []) if rule.except_languages else "all"
        )
        table.add_row(rule.signal, rule.drop_if, rule.reason, languages)
    Console().print(table)


def print_signals() -> None:
    """The signal table."""
    table = folding("signal", "unit", "definition", "source")
    for signal in SIGNALS:
        table.add_row(signal.name, signal.unit, signal.definition, signal.source)
    Console().print(table)


def print_quarantine(storage: Storage, limit: int) -> None:
    """The first rows that a run set aside; lines of tab-separated values where stdout is no terminal."""
    names = storage.names("quarantine")
    if not names and not storage.names("ledger"):
        raise UserError(f"{storage.root}: holds no run")
    rows: list[tuple[str, ...]] = []
    total = 0
    for name in names:
        try:
            with storage.open(f"quarantine/{name}") as source:
                part = ipc.open_file(source).read_all()
        except pa.ArrowException as error:
            raise UserError(f"{storage.root}/quarantine/{name}: cannot be read: {error}") from None
        total += part.num_rows
        for row in part.slice(0, max(0, limit - len(rows))).to_pylist():
            head = _printable(row["head"].decode("utf-8", "backslashreplace")[:60])
            rows.append((row["source"], f"{row['path']}#{row['position']}", row["reason"], row["detail"], head))
    console = Console()
    if console.is_terminal:
        table = Table("source", "place", "reason", "detail", "first bytes")
        for cells in rows:
            table.add_row(*map(escape, cells))
        console.print(table)
    else:
        for cells in rows:
            print("\t".join(_printable(cell) for cell in cells))
    print(f"{len(rows):,} of {total:,} rows; all: {storage.root.rstrip('/')}/quarantine/", file=sys.stderr)


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)
