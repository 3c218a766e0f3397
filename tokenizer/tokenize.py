"""Document shards to token shards, a shard a work unit, in several processes; a killed run resumes."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from schemas.errors import UserError
from schemas.manifest import MANIFEST_NAME, ShardEntry, TokenManifest, fingerprint, to_json
from tokenizer.documents import Documents
from tokenizer.encode import Choice, check_texts, choose_encoder
from tokenizer.saved import SavedTokenizer, unwritten
from tokenizer.shards import Unit, bytes_done, finished, run_unit, start_worker, write_aside

LEDGER = ".ledger"
RUN_NAME = "run.json"
PLAIN_EVERY_S = 15.0


@dataclass(frozen=True)
class TokenizePlan:
    """A run as it will be: units in order, and those that an earlier run finished."""

    documents: Documents
    saved: SavedTokenizer
    output: Path
    units: list[Unit]
    done: dict[int, ShardEntry]

    @property
    def pending(self) -> list[Unit]:
        return [unit for unit in self.units if unit.number not in self.done]

    @property
    def run_fingerprint(self) -> str:
        """Of input and tokenizer: what an output folder belongs to."""
        return fingerprint([unit.key for unit in self.units])


def make_plan(documents: Documents, saved: SavedTokenizer, output: str | Path, restart: bool = False) -> TokenizePlan:
    """Lay out the run; nothing is written.

    Raises UserError if the output holds another run and not `restart`, or anything that is no token run at all.
    """
    folder = Path(output).expanduser()
    units = [_unit(documents, saved, folder, number) for number in range(len(documents.manifest.shards))]
    plan = TokenizePlan(documents, saved, folder, units, {})
    _refuse_other_run(plan, restart)
    entries = {} if restart else {unit.number: finished(unit) for unit in units}
    return TokenizePlan(documents, saved, folder, units, {n: e for n, e in entries.items() if e is not None})


def _unit(documents: Documents, saved: SavedTokenizer, folder: Path, number: int) -> Unit:
    entry = documents.manifest.shards[number]
    name = f"shard-{number:05d}"
    key = fingerprint([entry.checksum, entry.rows, saved.ref.fingerprint, saved.ref.eos_id, saved.dtype])
    ledger = folder / LEDGER / f"{name}.json"
    return Unit(number, documents.path(entry), entry, folder / f"{name}.arrow", ledger, key)


def _refuse_other_run(plan: TokenizePlan, restart: bool) -> None:
    folder = plan.output
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: is a file; choose another --output")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    try:
        run = json.loads((folder / LEDGER / RUN_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        # Document shards, for one, have the same file names: never discard what no token run wrote.
        raise UserError(f"{folder}: holds files that no token run wrote; choose another --output") from None
    if not restart and (not isinstance(run, dict) or run.get("fingerprint") != plan.run_fingerprint):
        raise UserError(
            f"{folder}: holds another run (other documents or tokenizer); choose another --output, "
            "or --restart to discard it"
        )


def _prepare(plan: TokenizePlan, restart: bool) -> None:
    """Make the output folder; with `restart`, remove what earlier runs wrote (token shards, ledger, manifest) only."""
    folder = plan.output
    (folder / MANIFEST_NAME).unlink(missing_ok=True)
    for stale in [*folder.glob(".shard-*.arrow.*"), *folder.glob(".manifest.json.*")]:
        stale.unlink(missing_ok=True)
    if restart and folder.is_dir():
        shutil.rmtree(folder / LEDGER, ignore_errors=True)
        for shard in folder.glob("shard-*.arrow"):
            shard.unlink()
    (folder / LEDGER).mkdir(parents=True, exist_ok=True)
    write_aside(folder / LEDGER / RUN_NAME, json.dumps({"fingerprint": plan.run_fingerprint}))


def _check_space(plan: TokenizePlan, choice: Choice) -> None:
    """Raises UserError if the shards to come surely do not fit."""
    text = sum(unit.entry.text_bytes for unit in plan.pending)
    rows = sum(unit.entry.rows for unit in plan.pending)
    need = int(text / max(choice.bytes_per_token, 0.1)) * np.dtype(plan.saved.dtype).itemsize + 32 * rows
    free = shutil.disk_usage(plan.output).free
    if need > free:
        raise UserError(
            f"{plan.output}: about {size(need)} are needed, {size(free)} are free; "
            "free some space or choose another --output"
        )


def size(count: float) -> str:
    """Bytes in the unit that leaves one to three digits before the point."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 99.95 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def default_workers() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def say(text: str) -> None:
    """A line for the user, on stderr, so that stdout stays for results."""
    print(text, file=sys.stderr, flush=True)


def tokenize(plan: TokenizePlan, workers: int | None = None, restart: bool = False) -> TokenManifest:
    """Run the plan and write the manifest. The output is the same for any number of workers.

    Raises UserError on a damaged input shard, a full disk, a killed worker, or counts that do not close.
    """
    try:
        _prepare(plan, restart)
    except OSError as error:
        raise UserError(f"{plan.output}: {unwritten(error)}") from None
    entries = dict(plan.done)
    if plan.pending:
        choice = choose_encoder(plan.saved, check_texts(plan.documents, plan.saved))
        if choice.warning:
            say(f"warning: {choice.warning}; encoding with tokenizers, which is slower")
        _check_space(plan, choice)
        entries.update(_encode(plan, choice.name, workers or default_workers()))
    manifest = make_manifest(plan, [entries[unit.number] for unit in plan.units])
    try:
        write_aside(plan.output / MANIFEST_NAME, to_json(manifest))
    except OSError as error:
        raise UserError(f"{plan.output / MANIFEST_NAME}: {unwritten(error)}") from None
    return manifest


def make_manifest(plan: TokenizePlan, shards: list[ShardEntry]) -> TokenManifest:
    """The manifest of all shards. Raises UserError if documents in and out differ."""
    rows = sum(shard.rows for shard in shards)
    if rows != plan.documents.rows:
        raise UserError(f"{plan.output}: {rows} documents written, but {plan.documents.rows} read")
    return TokenManifest(
        fingerprint=fingerprint(
            {
                "shards": [shard.checksum for shard in shards],
                "tokenizer": plan.saved.ref.model_dump(mode="json"),
                "dtype": plan.saved.dtype,
            }
        ),
        tokenizer=plan.saved.ref,
        documents_fingerprint=plan.documents.manifest.fingerprint,
        dtype="uint16" if plan.saved.dtype == "uint16" else "uint32",
        documents=rows,
        tokens=sum(shard.tokens for shard in shards),
        shards=shards,
    )


def _encode(plan: TokenizePlan, encoder: str, workers: int) -> dict[int, ShardEntry]:
    """Encode the pending units in fresh processes; the first error ends the run, finished shards stay."""
    pending = sorted(plan.pending, key=lambda unit: -unit.entry.text_bytes)  # long ones first: the tail is short
    context = multiprocessing.get_context("spawn")  # a fork would copy threads of Arrow and Rust in unknown states
    # One slot a unit, no lock: a worker killed while it held one would stop the others.
    progress: Any = context.RawArray("q", len(plan.units))
    pool = ProcessPoolExecutor(
        min(workers, len(pending)), context, initializer=start_worker, initargs=(encoder, plan.saved, progress)
    )
    try:
        waiting = {pool.submit(run_unit, unit): unit for unit in pending}
        return _collect(waiting, Meter(pending, progress))
    except BrokenProcessPool:
        raise UserError(
            f"{plan.output}: a worker process died: killed by a signal, or for lack of memory. Finished shards are "
            "kept: run the same command again, with fewer --workers if memory was short"
        ) from None
    except RuntimeError as error:
        raise UserError(f"{error}; run again, and report this if it returns") from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _collect(waiting: dict[Future[ShardEntry], Unit], meter: Meter) -> dict[int, ShardEntry]:
    entries: dict[int, ShardEntry] = {}
    rest = set(waiting)
    while rest:
        ready, rest = wait(rest, timeout=1.0, return_when=FIRST_COMPLETED)
        for future in ready:
            entries[waiting[future].number] = future.result()
        meter.show(len(entries))
    meter.end()
    return entries


class Meter:
    """Progress on stderr: a line that is rewritten on a terminal, one line now and then elsewhere."""

    def __init__(self, units: list[Unit], progress: Any) -> None:
        self._units, self._progress = units, progress
        self._total = sum(unit.entry.text_bytes for unit in units)
        self._terminal = sys.stderr.isatty()
        self._started = self._shown = time.monotonic()

    def show(self, shards: int) -> None:
        now = time.monotonic()
        if not self._terminal and now - self._shown < PLAIN_EVERY_S:
            return
        self._shown = now
        text = self._line(shards, now - self._started)
        if self._terminal:
            print(f"\r\x1b[2K{text}", end="", file=sys.stderr, flush=True)
        else:
            say(text)

    def _line(self, shards: int, elapsed: float) -> str:
        done = bytes_done(self._progress, self._units)
        text = f"tokenize: {done / 1e6:.0f} of {self._total / 1e6:.0f} MB, shard {shards} of {len(self._units)}"
        if done and elapsed > 2:
            left = elapsed * (self._total - done) / done
            text += f", {done / 1e6 / elapsed:.1f} MB/s, {left:.0f} s left"
        return text

    def end(self) -> None:
        if self._terminal:
            print("\r\x1b[2K", end="", file=sys.stderr)
        elapsed = max(time.monotonic() - self._started, 1e-9)
        say(f"tokenize: {self._total / 1e6:.1f} MB of text in {elapsed:.1f} s ({self._total / 1e6 / elapsed:.1f} MB/s)")
