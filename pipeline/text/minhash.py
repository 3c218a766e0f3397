"""Shingles, MinHash signatures, band keys and exact Jaccard similarity, on word hashes.

A shingle is `n` consecutive words; a shorter document is one shingle of all its words, so that short documents are
duplicates only of their equals. Signatures equal `datasketch.MinHash(scheme="affine64")` fed with the same shingle
hashes (datasketch 2.0: h -> a * fmix64(h) + b modulo 2^64, the minimum over the shingles).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from pipeline.text.buffers import read_only
from pipeline.text.jit import kernel
from pipeline.text.utf8 import GOLDEN, fmix64

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

BASE = np.uint64(0xD1342543DE82EF95)  # odd multiplier of the polynomial over word hashes
NO_SHINGLE = np.uint64(0xFFFFFFFFFFFFFFFF)  # datasketch's value of an empty signature


@lru_cache(maxsize=8)
def permutations(num_perm: int, seed: int) -> tuple[U64, U64]:
    """(a, b), each uint64[num_perm], as datasketch draws them for scheme "affine64"."""
    from datasketch import MinHash

    a, b = MinHash(num_perm=num_perm, seed=seed, scheme="affine64").permutations
    return np.ascontiguousarray(a, dtype=np.uint64), np.ascontiguousarray(b, dtype=np.uint64)


@kernel
def _shingles_of(words, n, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Write the shingle hashes of one document to `out`; returns how many."""
    count = len(words)
    if count == 0:
        return 0
    width = min(n, count)
    power = np.uint64(1)
    for _ in range(width):
        power *= BASE
    h = np.uint64(0)
    for i in range(width):
        h = h * BASE + words[i]
    # A short document must not equal the first shingle of a long one by length alone.
    salt = np.uint64(0) if count >= n else np.uint64(count) * GOLDEN
    out[0] = fmix64(h ^ salt)
    for i in range(width, count):
        h = h * BASE + words[i] - words[i - width] * power
        out[i - width + 1] = fmix64(h)
    return count - width + 1


@kernel
def _signatures(hashes, offsets, n, a, b, scratch, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    for doc in range(len(offsets) - 1):
        count = _shingles_of(hashes[offsets[doc] : offsets[doc + 1]], n, scratch)
        row = out[doc]
        row[:] = NO_SHINGLE
        for s in range(count):
            h = fmix64(scratch[s])
            for p in range(len(a)):
                row[p] = min(row[p], a[p] * h + b[p])


@kernel
def _bands(signatures, bands, rows, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    for doc in range(len(signatures)):
        for band in range(bands):
            h = np.uint64(band) * GOLDEN
            for row in range(rows):
                h = fmix64(h ^ signatures[doc, band * rows + row]) * GOLDEN
            out[doc, band] = h


@kernel
def _unique_shingles(hashes, offsets, n, scratch, out, out_offsets):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    total = 0
    out_offsets[0] = 0
    for doc in range(len(offsets) - 1):
        count = _shingles_of(hashes[offsets[doc] : offsets[doc + 1]], n, scratch)
        ordered = np.sort(scratch[:count])
        for i in range(count):
            if i == 0 or ordered[i] != ordered[i - 1]:
                out[total] = ordered[i]
                total += 1
        out_offsets[doc + 1] = total
    return total


@kernel
def _jaccard(left, left_offsets, right, right_offsets, pairs_left, pairs_right, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    for k in range(len(pairs_left)):
        i, i_end = left_offsets[pairs_left[k]], left_offsets[pairs_left[k] + 1]
        j, j_end = right_offsets[pairs_right[k]], right_offsets[pairs_right[k] + 1]
        sizes = (i_end - i) + (j_end - j)
        common = 0
        while i < i_end and j < j_end:
            x, y = left[i], right[j]
            if x == y:
                common += 1
                i += 1
                j += 1
            elif x < y:
                i += 1
            else:
                j += 1
        out[k] = common / (sizes - common) if sizes > common else 0.0


def _longest(offsets: I64) -> int:
    return int(np.diff(offsets).max(initial=0))


def signatures(hashes: U64, offsets: I64, n: int, num_perm: int, seed: int) -> U64:
    """MinHash signatures, uint64[documents, num_perm]; a document without words gets datasketch's empty signature."""
    a, b = permutations(num_perm, seed)
    out = np.empty((len(offsets) - 1, num_perm), dtype=np.uint64)
    _signatures(read_only(hashes), read_only(offsets), n, a, b, np.empty(_longest(offsets), dtype=np.uint64), out)
    return out


def band_keys(sigs: U64, bands: int, rows: int) -> U64:
    """One 64-bit key a band, uint64[documents, bands]; equal keys are candidates, and every candidate is verified."""
    out = np.empty((len(sigs), bands), dtype=np.uint64)
    _bands(sigs, bands, rows, out)
    return out


def unique_shingles(hashes: U64, offsets: I64, n: int) -> tuple[U64, I64]:
    """Sorted distinct shingle hashes of each document: (values, offsets[documents + 1])."""
    out = np.empty(len(hashes), dtype=np.uint64)
    out_offsets = np.empty(len(offsets), dtype=np.int64)
    scratch = np.empty(_longest(offsets), dtype=np.uint64)
    total = _unique_shingles(read_only(hashes), read_only(offsets), n, scratch, out, out_offsets)
    return out[:total], out_offsets


def jaccard(
    left: U64, left_offsets: I64, right: U64, right_offsets: I64, rows_left: I64, rows_right: I64
) -> npt.NDArray[np.float64]:
    """|A ∩ B| / |A ∪ B| of pairs of sorted distinct sets, 0 where both are empty.

    64-bit hashes: two different shingles of one pair collide with probability below (|A| + |B|)^2 / 2^65.
    """
    out = np.empty(len(rows_left), dtype=np.float64)
    sets = (left, left_offsets, right, right_offsets, rows_left, rows_right)
    _jaccard(*(read_only(array) for array in sets), out)
    return out
