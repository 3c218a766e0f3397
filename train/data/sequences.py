"""Fixed-length sequences cut from memory-mapped token shards, with their document boundaries."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from schemas.errors import UserError
from schemas.manifest import ShardEntry, TokenManifest

IGNORED = -100  # the label cross-entropy leaves out
CHUNK_BYTES = 1 << 22

Int64s = npt.NDArray[np.int64]


class Sequence(NamedTuple):
    """One sequence, int64 [sequence_length] each."""

    input_ids: Int64s
    position_ids: Int64s  # restart at 0 with every document, and with the sequence
    labels: Int64s  # the input, but IGNORED where a document or the sequence begins: nothing predicts across documents


@dataclass(frozen=True)
class _Batch:
    """One record batch: zero-copy views, and the place of its first token in the shard."""

    base: int
    offsets: Int64s  # [rows + 1] document starts, as stored
    values: npt.NDArray[np.unsignedinteger]


class Shard:
    """A token shard, memory-mapped. Tokens are numbered from 0 through all its record batches."""

    def __init__(self, folder: str | Path, entry: ShardEntry, dtype: str) -> None:
        """Open and check size, structure, type and counts. Raises UserError naming the file."""
        self.path = Path(folder) / entry.path
        check_size(self.path, entry)
        try:
            self._source = pa.memory_map(str(self.path))
            reader = pa.ipc.open_file(self._source)
            columns = [reader.get_batch(i).column("tokens") for i in range(reader.num_record_batches)]
        except (pa.ArrowException, KeyError, OSError) as error:
            raise UserError(f"{self.path}: not a readable token shard: {error}; write the shards again") from None
        self._batches: list[_Batch] = []
        self.tokens = 0
        for column in columns:
            if not pa.types.is_large_list(column.type) or str(column.type.value_type) != dtype:
                raise UserError(
                    f"{self.path}: tokens are {column.type}, the manifest says {dtype}: write the shards again"
                )
            offsets = column.offsets.to_numpy()
            self._batches.append(_Batch(self.tokens, offsets, column.values.to_numpy()))
            self.tokens += int(offsets[-1] - offsets[0]) if len(offsets) else 0
        self.documents = sum(len(column) for column in columns)
        if (self.tokens, self.documents) != (entry.tokens, entry.rows):
            raise UserError(
                f"{self.path}: holds {self.documents} documents and {self.tokens} tokens, the manifest says "
                f"{entry.rows} and {entry.tokens}: write the shards again"
            )
        self._bases = np.array([batch.base for batch in self._batches] or [0], dtype=np.int64)

    def largest_token(self) -> int:
        """The largest token id in the shard, -1 if it has none. Reads the whole shard."""
        return max((int(batch.values.max()) for batch in self._batches if len(batch.values)), default=-1)

    def documents_without_end(self, eos_id: int) -> int:
        """Documents that are empty or whose last token is not `eos_id`. Reads the ends only."""
        count = 0
        for batch in self._batches:
            begins, ends = batch.offsets[:-1], batch.offsets[1:]
            filled = ends > begins
            count += int((~filled).sum()) + int((batch.values[ends[filled] - 1] != eos_id).sum())
        return count

    def cut(self, start: int, length: int, forbidden_before: int = 0) -> Sequence:
        """`length` tokens from token `start`.

        Labels of a document that begins before token `forbidden_before` are IGNORED too: validation leaves out
        documents whose beginning is trained on.
        """
        tokens = np.empty(length, dtype=np.int64)
        begins = np.zeros(length, dtype=bool)
        begins[0] = True
        done = 0
        index = int(np.searchsorted(self._bases, start, side="right")) - 1
        while done < length:
            batch = self._batches[index]
            low = start + done - batch.base + int(batch.offsets[0])
            taken = batch.values[low : low + length - done]
            tokens[done : done + len(taken)] = taken
            first, last = np.searchsorted(batch.offsets, (low, low + len(taken)), side="left")
            begins[batch.offsets[first:last] - low + done] = True
            done += len(taken)
            index += 1
        places = np.arange(length, dtype=np.int64)
        positions = places - np.maximum.accumulate(np.where(begins, places, 0))
        labels = np.where(begins, IGNORED, tokens)
        if forbidden_before:
            labels[: self._foreign(start, length, forbidden_before)] = IGNORED
        return Sequence(tokens, positions, labels)

    def _foreign(self, start: int, length: int, border: int) -> int:
        """How many leading tokens of a sequence belong to a document that begins before token `border`."""
        following = [
            int(batch.offsets[place]) - int(batch.offsets[0]) + batch.base
            for batch in self._batches
            if (place := int(np.searchsorted(batch.offsets, border - batch.base + batch.offsets[0], side="left")))
            < len(batch.offsets) - 1
        ]
        next_document = min(following, default=start + length)
        return min(max(next_document - start, 0), length)


def check_size(path: Path, entry: ShardEntry) -> None:
    """Raise UserError if the shard is missing or has another size than the manifest says."""
    try:
        size = os.stat(path).st_size
    except OSError as error:
        raise UserError(
            f"{path}: token shard cannot be read: {error.strerror}; write or copy the shards again"
        ) from None
    if size != entry.bytes:
        raise UserError(
            f"{path}: token shard has {size} bytes, the manifest says {entry.bytes}; "
            "it was cut short or changed: write or copy it again"
        )


def file_checksum(path: str | Path) -> str:
    """xxh3-128 of a file, 32 hexadecimal digits."""
    state = xxhash.xxh3_128()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            state.update(chunk)
    return state.hexdigest()


def check_bytes(path: Path, entry: ShardEntry) -> str | None:
    """What is wrong with the bytes of a shard, in a line; None if they are those the manifest names."""
    try:
        check_size(path, entry)
        if file_checksum(path) == entry.checksum:
            return None
    except UserError as error:
        return str(error)
    except OSError as error:
        return f"{path}: token shard cannot be read: {error.strerror}; write or copy it again"
    return f"{path}: checksum differs from the manifest: write it again with `prep tokenize`, or copy it again"


def check_shard(folder: str | Path, manifest: TokenManifest, entry: ShardEntry) -> list[str]:
    """Read a shard completely; the faults found, one line each: checksum, structure, token range, document ends."""
    path = Path(folder) / entry.path
    try:
        if (fault := check_bytes(path, entry)) is not None:
            return [fault]
        shard = Shard(folder, entry, manifest.dtype)
    except UserError as error:
        return [str(error)]
    faults = []
    if shard.largest_token() >= manifest.tokenizer.vocab_size:
        faults.append(
            f"{path}: token {shard.largest_token()} is outside the vocabulary of {manifest.tokenizer.vocab_size}"
        )
    unended = shard.documents_without_end(manifest.tokenizer.eos_id)
    if unended:
        faults.append(f"{path}: {unended} documents do not end with the end-of-document id {manifest.tokenizer.eos_id}")
    return faults
