"""A folder of token shards as training and validation sequences: what they are, and the order's identity."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from schemas.errors import UserError
from schemas.manifest import ShardEntry, TokenManifest, fingerprint, read_manifest
from schemas.training import DataConfig
from train.data.order import ORDER_VERSION, Layout, hold_out, locate
from train.data.sequences import Sequence, Shard, check_bytes, check_size

OPEN_SHARDS = 64  # mapped at a time and process; a map costs address space and its row index, not memory


@lru_cache(maxsize=OPEN_SHARDS)
def open_shard(folder: str, entry_json: str, dtype: str) -> Shard:
    """The shard of a manifest entry (as JSON, which hashes), kept open."""
    return Shard(folder, ShardEntry.model_validate_json(entry_json), dtype)


@dataclass(frozen=True)
class Held:
    """A validation sequence. Documents that begin before token `border` don't count: they are trained on."""

    shard: int
    start: int
    border: int


class TokenFolder:
    """Token shards of one manifest, cut into sequences of a fixed length.

    A shard's sequences lie side by side from its first token; what is left at its end, less than one sequence, is
    not used. The last `shares[s]` sequences of shard s are held out for validation.
    """

    def __init__(self, folder: str, sequence_length: int, held_out: int = 0) -> None:
        """Read the manifest and check the size of every shard. Raises UserError."""
        self.folder = folder
        self.sequence_length = sequence_length
        self.manifest = read_manifest(TokenManifest, folder)
        for entry in self.manifest.shards:
            check_size(Path(folder) / entry.path, entry)
        self.available = [entry.tokens // sequence_length for entry in self.manifest.shards]
        if not any(self.available):
            longest = max((entry.tokens for entry in self.manifest.shards), default=0)
            raise UserError(
                f"{folder}: data.sequence_length = {sequence_length} is longer than every shard (the longest holds "
                f"{longest:,} tokens): set a smaller data.sequence_length, or tokenize more text"
            )
        self.shares = hold_out(self.available, held_out)
        self._entries = [entry.model_dump_json() for entry in self.manifest.shards]

    def layout(self, seed: int, shuffle_block: int) -> Layout:
        """The layout of the sequences that are not held out."""
        counts = tuple(count - held for count, held in zip(self.available, self.shares, strict=True))
        return Layout(counts, self.sequence_length, seed, shuffle_block)

    def shard(self, index: int) -> Shard:
        """Shard `index` of the manifest, opened on first use."""
        return open_shard(self.folder, self._entries[index], self.manifest.dtype)

    def sequence(self, n: int, layout: Layout) -> Sequence:
        """The n-th training sequence."""
        where = locate(n, layout)
        return self._known(where.shard, self.shard(where.shard).cut(where.start, self.sequence_length))

    def held(self, limit: int) -> list[Held]:
        """Up to `limit` held-out sequences, in shard order."""
        found: list[Held] = []
        for shard, (count, share) in enumerate(zip(self.available, self.shares, strict=True)):
            border = (count - share) * self.sequence_length
            for place in range(count - share, count):
                if len(found) == limit:
                    return found
                found.append(Held(shard, place * self.sequence_length, border))
        return found

    def held_sequence(self, held: Held) -> Sequence:
        """The tokens of a held-out sequence."""
        cut = self.shard(held.shard).cut(held.start, self.sequence_length, forbidden_before=held.border)
        return self._known(held.shard, cut)

    def _known(self, shard: int, sequence: Sequence) -> Sequence:
        """The sequence, if all its ids are in the vocabulary: others would index past the embedding."""
        largest = int(sequence.input_ids.max())
        if largest >= self.manifest.tokenizer.vocab_size:
            path = Path(self.folder) / self.manifest.shards[shard].path
            raise UserError(
                f"{path}: token {largest} is outside the vocabulary of {self.manifest.tokenizer.vocab_size}: "
                "the shard is damaged, write it again with `prep tokenize`"
            )
        return sequence

    @property
    def bytes(self) -> int:
        """Size of all shards."""
        return sum(entry.bytes for entry in self.manifest.shards)

    def damaged(self, rank: int, ranks: int) -> list[str]:
        """Shards that differ from their checksum, a line each; `rank` of `ranks` reads its share of them."""
        return [
            fault
            for entry in self.manifest.shards[rank::ranks]
            if (fault := check_bytes(Path(self.folder) / entry.path, entry)) is not None
        ]


def order_identity(data: DataConfig, seed: int, manifest: TokenManifest) -> dict[str, Any]:
    """Everything the n-th training sequence depends on, by name; saved with the position n."""
    return {
        "order_version": ORDER_VERSION,
        "data.train (manifest fingerprint)": manifest.fingerprint,
        "seed": seed,
        "data.sequence_length": data.sequence_length,
        "data.shuffle_block": data.shuffle_block,
        "data.validation_sequences": data.validation_sequences,
        "packing": "concatenate-and-cut",
    }


@dataclass(frozen=True)
class DataState:
    """Where the stream is: the next sequence, and the identity of the order in which it is the n-th."""

    n: int
    identity: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """As saved in a checkpoint."""
        return {"n": self.n, "identity": self.identity, "fingerprint": fingerprint(self.identity)}


def resume_position(saved: dict[str, Any], identity: dict[str, Any]) -> int:
    """The position n of a saved DataState. Raises UserError naming what changed if the order is another one."""
    if saved["fingerprint"] == fingerprint(identity):
        return int(saved["n"])
    before = saved["identity"]
    changes = [
        f"{key} was {before.get(key)!r} and is {identity.get(key)!r}"
        for key in sorted(before.keys() | identity.keys())
        if before.get(key) != identity.get(key)
    ]
    raise UserError(
        "the checkpoint's data position belongs to another order of training data: "
        + "; ".join(changes)
        + ". Restore the setting, or start a new run in another output folder"
    )
