"""One document shard to one token shard: what a worker process does."""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from schemas.arrow import token_shard
from schemas.errors import UserError
from schemas.manifest import ShardEntry
from tokenizer.documents import checksum, open_shard, verify
from tokenizer.encode import Encoder, groups, make_encoder, with_end
from tokenizer.saved import SavedTokenizer, unwritten

# A record batch of a token shard holds the tokens of this much text, or of one document.
BATCH_BYTES, BATCH_ROWS = 8 << 20, 16_384


@dataclass(frozen=True)
class Unit:
    """One work unit."""

    number: int
    source: Path
    entry: ShardEntry
    target: Path
    ledger: Path
    key: str


def token_batches(
    batch: pa.RecordBatch, encoder: Encoder, saved: SavedTokenizer, schema: pa.Schema
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """(tokens of a bounded slice of `batch`, its bytes of text) in order.

    Raises UserError if a document's own text is encoded to the end id: the shard could not be told apart from one
    with another document border there.
    """
    for start in range(0, batch.num_rows, BATCH_ROWS):
        rows = batch.slice(start, BATCH_ROWS)
        for first, stop in groups(rows.column("text"), BATCH_BYTES):
            part = rows.slice(first, stop - first)
            encoded = encoder.encode(part.column("text"))
            if len(encoded.offsets) != part.num_rows + 1:
                raise AssertionError(f"{encoder.name} returned {len(encoded.offsets) - 1} of {part.num_rows} texts")
            if (encoded.ids == saved.ref.eos_id).any():
                raise UserError(
                    f"the tokenizer spells its end token {saved.ref.eos_token!r} in ordinary text; "
                    "choose a control token (special: true) with --eos"
                )
            ids, offsets = with_end(encoded, saved.ref.eos_id, saved.dtype)
            tokens = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(ids))
            columns = [tokens, part.column("doc_id"), part.column("source")]
            yield (
                pa.RecordBatch.from_arrays(columns, schema=schema),
                int(pc.sum(pc.binary_length(part.column("text"))).as_py() or 0),
            )


def encode_shard(
    unit: Unit, encoder: Encoder, saved: SavedTokenizer, progress: Callable[[int], None] = lambda _: None
) -> ShardEntry:
    """Verify, encode and write one shard aside, publish it by rename, then note it in the ledger.

    Raises UserError if the input is damaged, if counts do not close, or if the disk is full.
    """
    verify(unit.source, unit.entry)
    schema = token_shard(saved.dtype)
    rows = tokens = done = 0
    sources: Counter[str] = Counter()
    aside = unit.target.with_name(f".{unit.target.name}.{uuid.uuid4().hex[:8]}")
    try:
        with open_shard(unit.source) as opened, aside.open("wb") as sink:
            with ipc.new_file(sink, schema) as writer:
                for index in range(opened.batches):
                    for batch, size in token_batches(opened.batch(index), encoder, saved, schema):
                        writer.write_batch(batch)
                        rows += batch.num_rows
                        tokens += len(batch.column("tokens").values)
                        sources.update(_counts(batch.column("source")))
                        done += size
                        progress(done)
            _sync(sink)
        if rows != unit.entry.rows:
            raise UserError(f"{unit.source}: holds {rows} documents, but its manifest says {unit.entry.rows}")
        entry = ShardEntry(
            path=unit.target.name,
            rows=rows,
            bytes=aside.stat().st_size,
            checksum=checksum(aside),
            text_bytes=done,
            tokens=tokens,
            sources=dict(sorted(sources.items())),
        )
        os.rename(aside, unit.target)
    finally:
        aside.unlink(missing_ok=True)
    write_aside(unit.ledger, json.dumps({"key": unit.key, "entry": entry.model_dump(mode="json")}, sort_keys=True))
    return entry


def _sync(sink: IO[bytes]) -> None:
    """The bytes must be on disk before the name is, or a power cut leaves a finished-looking empty shard."""
    sink.flush()
    os.fsync(sink.fileno())


def _counts(column: pa.Array) -> dict[str, int]:
    counts = column.value_counts()
    return dict(zip(counts.field(0).to_pylist(), counts.field(1).to_pylist(), strict=True))


def write_aside(path: Path, text: str) -> None:
    """Write a small file whole or not at all."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with aside.open("wb") as sink:
            sink.write(text.encode("utf-8"))
            _sync(sink)
        os.rename(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def finished(unit: Unit) -> ShardEntry | None:
    """The entry of a shard that an earlier run of the same key finished, or None."""
    try:
        note = json.loads(unit.ledger.read_text(encoding="utf-8"))
        entry = ShardEntry.model_validate(note["entry"])
        same_size = unit.target.stat().st_size == entry.bytes  # spares reading a shard that was cut short
        if note["key"] == unit.key and same_size and checksum(unit.target) == entry.checksum:
            return entry
    except (OSError, ValueError, KeyError, TypeError, UserError):
        pass  # no note, a damaged one, or no shard: it is made again
    return None


class _Worker:
    """What a worker process keeps between units."""

    encoder: Encoder
    saved: SavedTokenizer
    progress: Any


def start_worker(name: str, saved: SavedTokenizer, progress: Any) -> None:
    """Set up a worker process: one encoder, one thread, and an end when the parent ends."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # processes are the parallelism
    _exit_with_parent()
    _Worker.saved, _Worker.progress = saved, progress
    _Worker.encoder = make_encoder(name, saved)


def _exit_with_parent() -> None:
    """A killed parent cannot close the pool; its workers would wait for work for ever."""
    from multiprocessing import parent_process
    from multiprocessing.connection import wait

    parent = parent_process()
    if parent is not None:
        sentinel = parent.sentinel
        threading.Thread(target=lambda: (wait([sentinel]), os._exit(1)), daemon=True).start()


def run_unit(unit: Unit) -> ShardEntry:
    """Encode one unit in a worker process. Raises UserError only, since other errors may not pickle."""

    def note(done: int) -> None:
        _Worker.progress[unit.number] = done

    try:
        return encode_shard(unit, _Worker.encoder, _Worker.saved, note)
    except UserError as error:
        text = str(error)
        raise UserError(text if text.startswith(str(unit.source)) else f"{unit.source}: {text}") from None
    except OSError as error:
        raise UserError(f"{unit.target}: {unwritten(error)}") from None
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a Rust panic is a BaseException and does not pickle
        raise RuntimeError(f"{unit.source}: {_Worker.encoder.name}: {type(error).__name__}: {error}") from None


def bytes_done(progress: Any, units: list[Unit]) -> int:
    """Bytes of text encoded so far in the given units."""
    return int(sum(int(np.int64(progress[unit.number])) for unit in units))
