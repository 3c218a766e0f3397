"""Shingles, signatures, bands, content hashes and Jaccard against independent implementations."""

from __future__ import annotations

import numpy as np
import pytest
from datasketch import MinHash
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.text.buffers import text_of
from pipeline.text.content import content_hashes
from pipeline.text.minhash import band_keys, jaccard, signatures, unique_shingles
from pipeline.text.words import segment

NO_STOPS = np.empty(0, dtype=np.uint64)
sentences = st.lists(st.sampled_from("the cat sat on a mat 中 文 x".split()), max_size=40).map(" ".join)


def shingle_sets(texts: list[str], n: int) -> list[set[int]]:
    table = segment(text_of(texts), NO_STOPS)
    values, offsets = unique_shingles(table.hashes, table.offsets, n)
    return [set(values[offsets[i] : offsets[i + 1]].tolist()) for i in range(len(texts))]


@settings(max_examples=100, deadline=None)
@given(st.lists(sentences, min_size=2, max_size=5), st.integers(1, 6))
def test_shingles_are_equal_exactly_where_word_tuples_are(texts: list[str], n: int) -> None:
    def tuples(text: str) -> set[tuple[str, ...]]:
        words = text.split()
        if len(words) < n:
            return {tuple(words)} if words else set()
        return {tuple(words[i : i + n]) for i in range(len(words) - n + 1)}

    found = shingle_sets(texts, n)
    for i, left in enumerate(texts):
        assert len(found[i]) == len(tuples(left))
        for j, right in enumerate(texts):
            assert len(found[i] & found[j]) == len(tuples(left) & tuples(right))


@settings(max_examples=50, deadline=None)
@given(sentences.filter(bool), st.integers(1, 5), st.integers(0, 3))
def test_signatures_equal_datasketch(text: str, n: int, seed: int) -> None:
    table = segment(text_of(["filler words before", text]), NO_STOPS)
    ours = signatures(table.hashes, table.offsets, n, 16, seed)[1]
    theirs = MinHash(num_perm=16, seed=seed, scheme="affine64", hashfunc=lambda value: value)
    theirs.update_batch(sorted(shingle_sets([text], n)[0]))
    assert ours.tolist() == theirs.hashvalues.tolist()


def test_a_document_without_words_has_datasketchs_empty_signature() -> None:
    table = segment(text_of(["", "!!!"]), NO_STOPS)
    empty = MinHash(num_perm=8, scheme="affine64").hashvalues.tolist()
    assert signatures(table.hashes, table.offsets, 5, 8, 1).tolist() == [empty, empty]


def test_band_keys_are_equal_exactly_where_rows_are() -> None:
    sigs = np.random.default_rng(0).integers(0, 3, (200, 6), dtype=np.uint64)
    keys = band_keys(sigs, 3, 2)
    for band in range(3):
        rows = [tuple(row) for row in sigs[:, 2 * band : 2 * band + 2].tolist()]
        assert len(set(rows)) == len(set(keys[:, band].tolist()))
    assert not set(keys[:, 0].tolist()) & set(keys[:, 1].tolist())


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sets(st.integers(0, 30)), min_size=2, max_size=6))
def test_jaccard_equals_sets(sets: list[set[int]]) -> None:
    values = np.array([v for s in sets for v in sorted(s)], dtype=np.uint64)
    offsets = np.cumsum([0, *map(len, sets)])
    left, right = (grid.ravel() for grid in np.meshgrid(np.arange(len(sets)), np.arange(len(sets))))
    found = jaccard(values, offsets, values, offsets, left, right)
    for i, j, value in zip(left, right, found, strict=True):
        union = sets[i] | sets[j]
        assert value == (len(sets[i] & sets[j]) / len(union) if union else 0.0)


@pytest.mark.parametrize(
    ("text", "digest"),
    [  # MurmurHash3 x64 128, seed 0: the two halves as big-endian numbers
        ("", "00000000000000000000000000000000"),
        ("hello", "cbd8a7b341bd9b025b1e906a48ae1d19"),
        ("The quick brown fox jumps over the lazy dog", "e34bbc7bbc071b6c7a433ca9c49a9347"),
    ],
)
def test_content_hash_equals_murmur3(text: str, digest: str) -> None:
    assert content_hashes(text_of(["x", text])).astype(">u8")[1].tobytes().hex() == digest


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=40), max_size=10))
def test_content_hashes_are_equal_exactly_where_texts_are(texts: list[str]) -> None:
    texts = [text.encode("utf-8", "ignore").decode() for text in texts]
    hashes = {tuple(row) for row in content_hashes(text_of(texts)).tolist()}
    assert len(hashes) == len(set(texts))
