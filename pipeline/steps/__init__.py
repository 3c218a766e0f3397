"""Steps: functions of a record batch, configured once per worker.

A step names the columns it needs and those it gives, so that a recipe that misses something is refused before Spark
starts. Columns whose names begin with "_" pass between steps and are not written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from schemas.errors import UserError

BatchFunction = Callable[[pa.RecordBatch], pa.RecordBatch]


@dataclass(frozen=True)
class Step:
    """`build()` loads models and tables, once per worker, and returns the function of a batch."""

    name: str
    needs: tuple[str, ...]
    gives: tuple[str, ...]
    build: Callable[[], BatchFunction]


def check_steps(steps: Sequence[Step], columns: Sequence[str]) -> tuple[str, ...]:
    """Columns after all steps. Raises UserError if a step needs one that neither the readers nor a step before give."""
    have = list(columns)
    for step in steps:
        missing = [name for name in step.needs if name not in have]
        if missing:
            raise UserError(f"step {step.name} needs the column {missing[0]!r}, which no step before it gives")
        have += [name for name in step.gives if name not in have]
    return tuple(have)


def build_steps(steps: Sequence[Step]) -> BatchFunction:
    """One function that applies all steps in order and drops the columns that only pass between them."""
    functions = [step.build() for step in steps]

    def apply(batch: pa.RecordBatch) -> pa.RecordBatch:
        for function in functions:
            batch = function(batch)
        return batch.select([name for name in batch.schema.names if not name.startswith("_")])

    return apply


def set_column(batch: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    """`batch` with the column replaced, or appended if there was none."""
    index = batch.schema.get_field_index(name)
    if index >= 0:
        return batch.set_column(index, batch.schema.field(name).with_type(values.type), values)
    return batch.append_column(name, values)
