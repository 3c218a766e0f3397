"""Cutting batches anew depends on the rows only; keys take parts and rows apart again."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.parts import keys_of, part_of, rebatch, row_of


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 30), max_size=40),
    st.lists(st.integers(0, 40), max_size=5),
    st.integers(1, 7),
    st.integers(1, 60),
)
def test_rebatch_gives_the_same_batches_for_any_arrival(
    sizes: list[int], cuts: list[int], rows: int, size: int
) -> None:
    whole = pa.record_batch({"text": pa.array(["x" * n for n in sizes], pa.large_string())})
    bounds = sorted({0, len(sizes), *(min(cut, len(sizes)) for cut in cuts)})
    pieces = [whole.slice(a, b - a) for a, b in pairwise(bounds)]
    one = [b.column(0).to_pylist() for b in rebatch(iter([whole]), rows, size, "text")]
    many = [b.column(0).to_pylist() for b in rebatch(iter(pieces), rows, size, "text")]
    assert one == many
    assert [text for batch in one for text in batch] == whole.column(0).to_pylist()
    assert all(len(batch) <= rows for batch in one)
    assert all(sum(map(len, batch)) <= size or len(batch) == 1 for batch in one)


@given(st.integers(0, 2**30), st.integers(0, 5))
def test_keys(part: int, count: int) -> None:
    keys = keys_of(part, count)
    assert part_of(keys).tolist() == [part] * count and np.array_equal(row_of(keys), np.arange(count))
