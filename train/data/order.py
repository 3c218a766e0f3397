"""The order of training sequences as arithmetic: no table, no file, no state but the position n.

An epoch visits every sequence once. Shards are put in a keyed random order and grouped in blocks; sequences are
permuted inside each block, so a reader has one block of shards open at a time. Each epoch uses new keys. Nothing here
knows ranks, workers or batches: they take slices of this one order.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from schemas.errors import UserError

ORDER_VERSION = 1  # part of the data fingerprint: raise it when locate() changes
ROUNDS = 6
_U64 = 0xFFFFFFFFFFFFFFFF

Int64s = npt.NDArray[np.int64]


def round_keys(*parts: int) -> tuple[int, ...]:
    """ROUNDS keys of 64 bits from integers, by BLAKE2b; the same on every machine and Python version."""
    seed = ",".join(map(str, parts)).encode("ascii")
    digest = hashlib.blake2b(seed, digest_size=8 * ROUNDS).digest()
    return tuple(int.from_bytes(digest[8 * i : 8 * i + 8], "little") for i in range(ROUNDS))


def permute(index: int, size: int, keys: tuple[int, ...]) -> int:
    """Image of `index` under a keyed permutation of range(size), in O(1) memory.

    A balanced Feistel network over the next even number of bits, walked until it lands inside the range (cycle
    walking, Black & Rogaway 2002); fewer than four walks on average. The round function is the finaliser of splitmix64.
    """
    if not 0 <= index < size:
        raise IndexError(f"index {index} is outside range({size})")
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = index >> half, index & mask
        for key in keys:
            mixed = (right ^ key) & _U64
            mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _U64
            mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _U64
            left, right = right, left ^ ((mixed ^ (mixed >> 31)) & mask)
        index = left << half | right
        if index < size:
            return index


@dataclass(frozen=True)
class Layout:
    """All that the order depends on: sequences per shard, and the keys."""

    counts: tuple[int, ...]  # training sequences of each shard, in manifest order
    sequence_length: int
    seed: int
    shuffle_block: int  # shards per block

    @property
    def total(self) -> int:
        """Sequences per epoch."""
        return sum(self.counts)


@dataclass(frozen=True)
class Location:
    """Where a training sequence lies: `sequence_length` tokens of `shard` from token `start`."""

    epoch: int
    shard: int
    start: int


@lru_cache(maxsize=4)
def _epoch(layout: Layout, epoch: int) -> tuple[Int64s, Int64s]:
    """The epoch's shard order, and the number of sequences before each place in it, [shards] and [shards + 1]."""
    keys = round_keys(layout.seed, epoch, 0)
    shards = len(layout.counts)
    order = np.array([permute(place, shards, keys) for place in range(shards)], dtype=np.int64)
    before = np.zeros(shards + 1, dtype=np.int64)
    np.cumsum(np.asarray(layout.counts, dtype=np.int64)[order], out=before[1:])
    return order, before


@lru_cache(maxsize=64)
def _block_keys(seed: int, epoch: int, block: int) -> tuple[int, ...]:
    return round_keys(seed, epoch, 1, block)


def locate(n: int, layout: Layout) -> Location:
    """The n-th training sequence, n from 0 without end. Costs a few microseconds and memory per shard only.

    Raises UserError if the layout holds no sequence at all.
    """
    if not layout.total:
        raise UserError(
            f"no shard holds {layout.sequence_length} tokens beyond the validation share: "
            "set a smaller data.sequence_length or data.validation_sequences, or give more data"
        )
    epoch, within = divmod(n, layout.total)
    order, before = _epoch(layout, epoch)
    place = int(np.searchsorted(before, within, side="right")) - 1
    block = place // layout.shuffle_block
    first = block * layout.shuffle_block
    last = min(first + layout.shuffle_block, len(order))
    base, end = int(before[first]), int(before[last])
    drawn = base + permute(within - base, end - base, _block_keys(layout.seed, epoch, block))
    place = int(np.searchsorted(before, drawn, side="right")) - 1
    return Location(epoch, int(order[place]), (drawn - int(before[place])) * layout.sequence_length)


def hold_out(available: list[int], wanted: int) -> list[int]:
    """How many sequences each shard sets aside so that `wanted` are set aside in all, in proportion to its size.

    Largest remainders, ties to the earlier shard. Raises UserError if there are not that many.
    """
    total = sum(available)
    if wanted > total:
        remedy = f"set it below {total}" if total else "set a shorter data.sequence_length, or tokenize more text"
        raise UserError(f"data.validation_sequences = {wanted}, but there are only {total} sequences: {remedy}")
    shares = [count * wanted // total if total else 0 for count in available]
    remainders = [-(count * wanted % total) if total else 0 for count in available]
    for shard in sorted(range(len(available)), key=remainders.__getitem__)[: wanted - sum(shares)]:
        shares[shard] += 1
    return shares
