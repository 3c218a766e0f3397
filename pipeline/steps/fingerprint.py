"""Fingerprints: the content hash for exact duplicates, the MinHash band keys for near-duplicate candidates."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pipeline.steps import BatchFunction, Step, set_column
from pipeline.steps.signals import WORD_HASHES
from pipeline.text.buffers import text_buffers
from pipeline.text.content import content_hashes
from pipeline.text.minhash import band_keys, signatures
from schemas.recipe import NearDuplicates

# Spark has no unsigned type, so hashes are stored as the int64 of the same bits.
CONTENT_HIGH, CONTENT_LOW, BANDS = "content_hash_1", "content_hash_2", "bands"


def exact_fingerprint() -> Step:
    """Adds the 128-bit hash of the normalised text as two int64 columns."""

    def build() -> BatchFunction:
        def apply(batch: pa.RecordBatch) -> pa.RecordBatch:
            hashes = content_hashes(text_buffers(batch.column("text"))).view(np.int64)
            batch = set_column(batch, CONTENT_HIGH, pa.array(hashes[:, 0]))
            return set_column(batch, CONTENT_LOW, pa.array(hashes[:, 1]))

        return apply

    return Step("exact_fingerprint", needs=("text",), gives=(CONTENT_HIGH, CONTENT_LOW), build=build)


def near_fingerprint(config: NearDuplicates) -> Step:
    """Adds the band keys, a list of int64 of length `bands` for each document."""

    def build() -> BatchFunction:
        def apply(batch: pa.RecordBatch) -> pa.RecordBatch:
            words = batch.column(WORD_HASHES)
            hashes = words.values.to_numpy(zero_copy_only=True)
            sigs = signatures(hashes, words.offsets.to_numpy(), config.ngram, config.num_perm, config.seed)
            keys = band_keys(sigs, config.bands, config.rows).view(np.int64)
            return set_column(batch, BANDS, pa.FixedSizeListArray.from_arrays(pa.array(keys.ravel()), config.bands))

        return apply

    return Step("near_fingerprint", needs=(WORD_HASHES,), gives=(BANDS,), build=build)
