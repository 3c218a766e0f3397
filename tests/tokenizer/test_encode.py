"""Both encoders give the ids that `tokenizers` gives, document by document."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tokenizer.test_trainers import CHARACTERS, WORDY
from tokenizer import encode
from tokenizer.documents import Documents
from tokenizer.encode import Encoded, GigatokenEncoder, HFEncoder, check_texts, choose_encoder, groups, with_end
from tokenizer.saved import SavedTokenizer, read_tokenizer


def large(texts: list[str]) -> pa.LargeStringArray:
    return pa.array(texts, type=pa.large_string())


def rows(encoded: Encoded) -> list[list[int]]:
    ends = encoded.offsets
    return [encoded.ids[ends[i] : ends[i + 1]].tolist() for i in range(len(ends) - 1)]


@pytest.mark.parametrize("make", [HFEncoder, GigatokenEncoder])
def test_batches_equal_single_texts(make: type, saved: SavedTokenizer, docs: Documents) -> None:
    texts = check_texts(docs, saved)
    reference = saved.load()
    want = [reference.encode(text, add_special_tokens=False).ids for text in texts.to_pylist()]
    got = make(saved).encode(texts)
    assert (got.ids.dtype, got.offsets.dtype) == (np.uint32, np.int64)
    assert rows(got) == want
    assert rows(make(saved).encode(texts.slice(3, 7))) == want[3:10]
    assert rows(make(saved).encode(texts.slice(0, 0))) == []


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(CHARACTERS, WORDY), max_size=8))
def test_gigatoken_equals_tokenizers(saved: SavedTokenizer, texts: list[str]) -> None:
    array = large(texts)
    assert rows(GigatokenEncoder(saved).encode(array)) == rows(HFEncoder(saved).encode(array))


def test_fast_encoder_is_chosen(saved: SavedTokenizer, docs: Documents) -> None:
    choice = choose_encoder(saved, check_texts(docs, saved))
    assert (choice.name, choice.warning) == ("gigatoken", None)
    assert 1 < choice.bytes_per_token < 10


def test_unsupported_kind_falls_back(unigram_folder: Path, docs: Documents) -> None:
    saved = read_tokenizer(unigram_folder)
    choice = choose_encoder(saved, check_texts(docs, saved))
    assert choice.name == "tokenizers"
    assert "Unigram" in (choice.warning or "")


def test_a_difference_falls_back(saved: SavedTokenizer, docs: Documents, monkeypatch: pytest.MonkeyPatch) -> None:
    """One wrong id in one document is enough."""
    honest = GigatokenEncoder.encode

    def wrong(self: GigatokenEncoder, texts: pa.LargeStringArray) -> Encoded:
        encoded = honest(self, texts)
        ids = encoded.ids.copy()
        ids[-1] += 1
        return Encoded(ids, encoded.offsets)

    monkeypatch.setattr(GigatokenEncoder, "encode", wrong)
    choice = choose_encoder(saved, check_texts(docs, saved))
    assert choice.name == "tokenizers"
    assert "differ" in (choice.warning or "")


def test_check_covers_every_shard(docs: Documents, saved: SavedTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "CHECK_BYTES", 1)
    assert len(check_texts(docs, saved)) == len(encode.hard_cases(saved)) + len(docs.manifest.shards)


@given(st.lists(st.integers(0, 9), max_size=20), st.integers(1, 12))
def test_groups_cover_all_texts_in_bounds(sizes: list[int], limit: int) -> None:
    texts = large(["x" * size for size in sizes])
    ranges = list(groups(texts, limit))
    assert [row for start, stop in ranges for row in range(start, stop)] == list(range(len(sizes)))
    assert all(sum(sizes[start:stop]) <= limit or stop == start + 1 for start, stop in ranges)


@given(st.lists(st.lists(st.integers(1, 60_000), max_size=6), max_size=8))
def test_end_token_behind_every_text(texts: list[list[int]]) -> None:
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    flat = np.array([i for text in texts for i in text], dtype=np.uint32)
    ids, ends = with_end(Encoded(flat, offsets), 0, "uint16")
    assert ids.dtype == np.uint16
    assert [ids[ends[i] : ends[i + 1]].tolist() for i in range(len(texts))] == [[*text, 0] for text in texts]


def test_dtype_is_the_narrowest(saved: SavedTokenizer) -> None:
    for size, dtype in ((1 << 16, "uint16"), ((1 << 16) + 1, "uint32")):
        assert replace(saved, ref=saved.ref.model_copy(update={"vocab_size": size})).dtype == dtype


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "eos", "fast"),
    [
        ("gpt-neox", "<|endoftext|>", True),
        ("deepseek", "<｜end▁of▁sentence｜>", True),
        ("bert-base-uncased", "[SEP]", False),
    ],
)
def test_golden_ids_of_published_tokenizers(name: str, eos: str, fast: bool, real_data: Path) -> None:
    """200 texts in 49 languages, encoded elsewhere."""
    with gzip.open(real_data / "tokenizers" / "golden.jsonl.gz", "rt", encoding="utf-8") as lines:
        golden = [json.loads(line) for line in lines]
    saved = read_tokenizer(real_data / "tokenizers" / name, eos)
    texts = large([row["text"] for row in golden])
    want = [row["ids"][name] for row in golden]
    assert rows(HFEncoder(saved).encode(texts)) == want
    choice = choose_encoder(saved, texts)
    assert choice.name == ("gigatoken" if fast else "tokenizers")
    if fast:
        assert rows(GigatokenEncoder(saved).encode(texts)) == want
