"""128-bit content hashes: MurmurHash3 x64 128 (Austin Appleby, public domain), seed 0, of each document's bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipeline.text.buffers import Text
from pipeline.text.jit import kernel
from pipeline.text.utf8 import fmix64

C1 = np.uint64(0x87C37B91114253D5)
C2 = np.uint64(0x4CF5AD432745937F)


@kernel(inline="always")
def _rotate(x, bits):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


@kernel(inline="always")
def _word(data, i, count):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    value = np.uint64(0)
    for k in range(count):
        value |= np.uint64(data[i + k]) << np.uint64(8 * k)
    return value


@kernel
def _murmur(data, offsets, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    for doc in range(len(offsets) - 1):
        start, end = offsets[doc], offsets[doc + 1]
        length = end - start
        h1 = h2 = np.uint64(0)
        i = start
        while i + 16 <= end:
            k1, k2 = _word(data, i, 8), _word(data, i + 8, 8)
            h1 ^= _rotate(k1 * C1, 31) * C2
            h1 = (_rotate(h1, 27) + h2) * np.uint64(5) + np.uint64(0x52DCE729)
            h2 ^= _rotate(k2 * C2, 33) * C1
            h2 = (_rotate(h2, 31) + h1) * np.uint64(5) + np.uint64(0x38495AB5)
            i += 16
        rest = end - i
        if rest > 8:
            h2 ^= _rotate(_word(data, i + 8, rest - 8) * C2, 33) * C1
        if rest > 0:
            h1 ^= _rotate(_word(data, i, min(rest, 8)) * C1, 31) * C2
        h1 ^= np.uint64(length)
        h2 ^= np.uint64(length)
        h1 += h2
        h2 += h1
        h1 = fmix64(h1)
        h2 = fmix64(h2)
        h1 += h2
        h2 += h1
        out[doc, 0] = h1
        out[doc, 1] = h2


def content_hashes(text: Text) -> npt.NDArray[np.uint64]:
    """uint64[documents, 2]: the two halves of the hash, h1 first."""
    out = np.empty((len(text.offsets) - 1, 2), dtype=np.uint64)
    _murmur(text.data, text.offsets, out)
    return out
