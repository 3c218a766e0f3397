"""The order of training sequences: a permutation, every epoch complete, nothing about ranks in it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from schemas.errors import UserError
from train.data.order import Layout, hold_out, locate, permute, round_keys


@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
@hypothesis_settings(max_examples=60, deadline=None)
def test_permutation_is_a_bijection(size: int, seed: int) -> None:
    keys = round_keys(seed)
    assert sorted(permute(i, size, keys) for i in range(size)) == list(range(size))


def test_permutation_of_a_huge_range_is_cheap_and_in_range() -> None:
    size = 10**12 + 39
    images = {permute(i, size, round_keys(1)) for i in range(1000)}
    assert len(images) == 1000 and all(0 <= image < size for image in images)


def test_permutation_depends_on_its_key_and_refuses_what_is_outside() -> None:
    assert [permute(i, 100, round_keys(1)) for i in range(100)] != [permute(i, 100, round_keys(2)) for i in range(100)]
    with pytest.raises(IndexError):
        permute(100, 100, round_keys(1))


def test_permutation_is_fixed_for_good() -> None:
    """Changing these values changes the data order of every run: raise ORDER_VERSION then."""
    assert [permute(i, 10, round_keys(0)) for i in range(10)] == [0, 5, 2, 1, 9, 3, 6, 4, 8, 7]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(1, 5), st.integers(0, 1000))
@hypothesis_settings(max_examples=80, deadline=None)
def test_every_epoch_visits_every_sequence_once(counts: list[int], block: int, seed: int) -> None:
    layout = Layout(tuple(counts), 16, seed, block)
    if not layout.total:
        with pytest.raises(UserError, match="sequence_length"):
            locate(0, layout)
        return
    expected = sorted((shard, 16 * i) for shard, count in enumerate(counts) for i in range(count))
    for epoch in range(3):
        visited = [locate(epoch * layout.total + i, layout) for i in range(layout.total)]
        assert all(where.epoch == epoch for where in visited)
        assert sorted((where.shard, where.start) for where in visited) == expected


def test_epochs_differ_and_shuffle_across_shards_of_a_block() -> None:
    layout = Layout((50, 50, 50, 50), 8, 0, 2)
    first, second = ([locate(e * 200 + i, layout) for i in range(200)] for e in range(2))
    assert [(w.shard, w.start) for w in first] != [(w.shard, w.start) for w in second]
    assert len({w.shard for w in first[:100]}) == 2  # a block of two shards is finished before the next begins
    assert sum(a.shard != b.shard for a, b in pairwise(first[:100])) > 20


@given(st.lists(st.integers(0, 50), min_size=1, max_size=9), st.integers(0, 60))
@hypothesis_settings(max_examples=80, deadline=None)
def test_hold_out_takes_what_is_asked_in_proportion(available: list[int], wanted: int) -> None:
    if wanted > sum(available):
        with pytest.raises(UserError, match="validation_sequences"):
            hold_out(available, wanted)
        return
    shares = hold_out(available, wanted)
    assert sum(shares) == wanted
    for share, count in zip(shares, available, strict=True):
        assert 0 <= share <= count
        assert abs(share - count * wanted / max(1, sum(available))) < 1
