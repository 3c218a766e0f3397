"""Sequences against a plain reference, and what damaged shards say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from schemas.errors import UserError
from tests.train.synthetic import EOS, VOCAB, random_documents, write_shards
from train.data.sequences import IGNORED, Shard, check_shard
from train.data.source import TokenFolder

DOCUMENTS = st.lists(st.lists(st.integers(1, VOCAB - 1), max_size=12).map(lambda words: [*words, EOS]), max_size=30)


def reference(documents: list[list[int]], start: int, length: int, border: int) -> list[tuple[int, int, int]]:
    """(token, position, label) by walking over the documents one token at a time."""
    stream = [(token, place, start) for start, doc in _begins(documents) for place, token in enumerate(doc)]
    rows = []
    for index in range(start, start + length):
        token, place, begin = stream[index]
        position = min(place, index - start)
        rows.append((token, position, IGNORED if position == 0 or begin < border else token))
    return rows


def _begins(documents: list[list[int]]) -> list[tuple[int, list[int]]]:
    begins, total = [], 0
    for document in documents:
        begins.append((total, document))
        total += len(document)
    return begins


@given(DOCUMENTS, st.integers(1, 9), st.sampled_from(["uint16", "uint32"]), st.data())
@hypothesis_settings(max_examples=120, deadline=None)
def test_cut_equals_the_reference(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[int]], rows: int, dtype: str, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("shard")
    manifest = write_shards(folder, [documents], rows_per_batch=rows, dtype=dtype)
    shard = Shard(folder, manifest.shards[0], dtype)
    if shard.tokens < 2:
        return
    length = data.draw(st.integers(2, shard.tokens))
    start = data.draw(st.integers(0, shard.tokens - length))
    border = data.draw(st.integers(0, shard.tokens))
    cut = shard.cut(start, length, forbidden_before=border)
    assert list(zip(*(field.tolist() for field in cut), strict=True)) == reference(documents, start, length, border)


def test_labels_never_cross_documents(tmp_path: Path) -> None:
    documents = random_documents(1, 80)
    manifest = write_shards(tmp_path, [documents])
    shard = Shard(tmp_path, manifest.shards[0], "uint16")
    for start in range(0, shard.tokens - 64, 64):
        cut = shard.cut(start, 64)
        after_end = np.flatnonzero(cut.input_ids[:-1] == EOS) + 1
        assert (cut.labels[after_end] == IGNORED).all() and (cut.position_ids[after_end] == 0).all()
        counted = cut.labels != IGNORED
        assert (cut.labels[counted] == cut.input_ids[counted]).all()


def test_held_out_sequences_are_never_trained_on(tmp_path: Path) -> None:
    write_shards(tmp_path, [random_documents(seed, 40) for seed in range(3)])
    folder = TokenFolder(str(tmp_path), 16, held_out=12)
    layout = folder.layout(seed=5, shuffle_block=2)
    held = {(where.shard, where.start) for where in folder.held(100)}
    from train.data.order import locate

    trained = {(where.shard, where.start) for where in (locate(n, layout) for n in range(layout.total))}
    assert len(held) == 12 and not held & trained
    assert len(trained) + 12 == sum(folder.available)


def test_truncated_shard_is_named(tmp_path: Path) -> None:
    manifest = write_shards(tmp_path, [random_documents(0, 40)])
    path = tmp_path / manifest.shards[0].path
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"tokens-00000.arrow: token shard has \d+ bytes, the manifest says"):
        TokenFolder(str(tmp_path), 16)


def test_missing_shard_is_named(tmp_path: Path) -> None:
    manifest = write_shards(tmp_path, [random_documents(0, 40)])
    (tmp_path / manifest.shards[0].path).unlink()
    with pytest.raises(UserError, match=r"tokens-00000.arrow"):
        TokenFolder(str(tmp_path), 16)


def test_garbage_of_the_right_size_is_named(tmp_path: Path) -> None:
    manifest = write_shards(tmp_path, [random_documents(0, 40)])
    path = tmp_path / manifest.shards[0].path
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(UserError, match=r"tokens-00000.arrow: not a readable token shard"):
        Shard(tmp_path, manifest.shards[0], "uint16")


def test_check_finds_flipped_bytes_wrong_tokens_and_missing_ends(tmp_path: Path) -> None:
    manifest = write_shards(tmp_path / "good", [random_documents(0, 40)])
    assert check_shard(tmp_path / "good", manifest, manifest.shards[0]) == []
    path = tmp_path / "good" / manifest.shards[0].path
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert "checksum" in check_shard(tmp_path / "good", manifest, manifest.shards[0])[0]
    manifest = write_shards(tmp_path / "bad", [[[5, VOCAB, EOS], [7, 8]]])
    faults = check_shard(tmp_path / "bad", manifest, manifest.shards[0])
    assert f"token {VOCAB} is outside the vocabulary" in faults[0] and "1 documents do not end" in faults[1]
