"""Decoding and 64-bit mixing, inlined into the kernels. Input is valid UTF-8 (readers see to that)."""

from __future__ import annotations

import numpy as np

from pipeline.text.jit import kernel

# Odd constants of splitmix64 and of MurmurHash3's 64-bit finaliser (public domain).
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FMIX_1 = np.uint64(0xFF51AFD7ED558CCD)
FMIX_2 = np.uint64(0xC4CEB9FE1A85EC53)


@kernel(inline="always")
def decode(data, i):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """(code point, length in bytes) of the character that starts at byte `i` of valid UTF-8."""
    first = np.uint32(data[i])
    if first < 0x80:
        return first, 1
    if first < 0xE0:
        return (first & np.uint32(0x1F)) << np.uint32(6) | np.uint32(data[i + 1]) & np.uint32(0x3F), 2
    if first < 0xF0:
        return (
            (first & np.uint32(0x0F)) << np.uint32(12)
            | (np.uint32(data[i + 1]) & np.uint32(0x3F)) << np.uint32(6)
            | np.uint32(data[i + 2]) & np.uint32(0x3F)
        ), 3
    return (
        (first & np.uint32(0x07)) << np.uint32(18)
        | (np.uint32(data[i + 1]) & np.uint32(0x3F)) << np.uint32(12)
        | (np.uint32(data[i + 2]) & np.uint32(0x3F)) << np.uint32(6)
        | np.uint32(data[i + 3]) & np.uint32(0x3F)
    ), 4


@kernel(inline="always")
def fmix64(h):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """MurmurHash3's finaliser, a bijection of 64-bit integers that spreads every bit."""
    h ^= h >> np.uint64(33)
    h *= FMIX_1
    h ^= h >> np.uint64(33)
    h *= FMIX_2
    h ^= h >> np.uint64(33)
    return h
