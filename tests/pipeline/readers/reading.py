"""Helpers of the readers' tests: read a file in one call, write one, sum a read up as plain Python."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from pathlib import Path

import zstandard

from pipeline.inputs import list_inputs, split_tasks
from pipeline.readers.contract import InputSource, ReadOptions, ReadTask
from pipeline.readers.dispatch import read_task
from schemas.arrow import QUARANTINE, QUARANTINE_REASONS, RAW_DOCUMENT


@dataclass
class Outcome:
    """A read as lists: delivered rows, records set aside as (position, reason), reasons of the file's own entries."""

    rows: list[dict] = field(default_factory=list)
    aside: list[tuple[int, str]] = field(default_factory=list)
    file_reasons: list[str] = field(default_factory=list)
    entries: list[dict] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        return [row["text"] for row in self.rows]

    def add(self, task: ReadTask, options: ReadOptions) -> None:
        for batch in read_task(task, options):
            assert batch.documents.schema.equals(RAW_DOCUMENT)
            assert batch.quarantine.schema.equals(QUARANTINE)
            batch.documents.validate(full=True)
            batch.quarantine.validate(full=True)
            self.rows += batch.documents.to_pylist()
            for entry in batch.quarantine.to_pylist():
                assert entry["reason"] in QUARANTINE_REASONS
                self.entries.append(entry)
                if entry["position"] < 0:
                    self.file_reasons.append(entry["reason"])
                else:
                    self.aside.append((entry["position"], entry["reason"]))


def read_path(path: Path, *, target: int = 1 << 30, options: ReadOptions | None = None, **fields: str) -> Outcome:
    """Read one path as the source "s"; `fields` are further fields of InputSource."""
    source = InputSource("s", (str(path),), **fields)
    outcome = Outcome()
    for task in split_tasks(source, list_inputs(source), target):
        outcome.add(ReadTask.from_dict(task.to_dict()), options or ReadOptions())
    return outcome


def write(path: Path, data: bytes) -> Path:
    """Write bytes, compressed as the name says."""
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    elif path.suffix == ".zst":
        data = zstandard.ZstdCompressor(write_checksum=True).compress(data)
    path.write_bytes(data)
    return path
