"""The stream: one order over any ranks, workers and micro-batches, resumable anywhere, refused when it changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import UserError
from schemas.training import BatchConfig, DataConfig, plan_batch
from tests.train.synthetic import random_documents, write_shards
from train.data.order import Layout
from train.data.source import DataState, TokenFolder, order_identity, resume_position
from train.data.stream import Batch, Prefetcher, TokenStream, micro_batches

GLOBAL = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> TokenFolder:
    path = tmp_path_factory.mktemp("stream")
    write_shards(path, [random_documents(seed, 30) for seed in range(4)])
    return TokenFolder(str(path), 16)


@pytest.fixture(scope="module")
def layout(folder: TokenFolder) -> Layout:
    return folder.layout(seed=7, shuffle_block=2)


def steps_of(
    folder: TokenFolder, layout: Layout, n: int, steps: int, ranks: int, workers: int, micro: int
) -> list[list[list[int]]]:
    """Input ids of each step in global order, put together from all ranks."""
    plan = plan_batch(BatchConfig(global_batch=GLOBAL, micro_batch=micro), ranks)
    per_rank: list[list[Batch]] = [
        list(micro_batches(TokenStream(folder, layout, plan, rank, n, steps), workers, prefetch=2))
        for rank in range(ranks)
    ]
    result = []
    for step in range(steps):
        mine = slice(step * plan.accumulation, (step + 1) * plan.accumulation)
        result.append([row for rank in per_rank for batch in rank[mine] for row in batch.input_ids.tolist()])
    return result


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_an_epoch_is_complete_and_in_one_order_for_any_ranks_and_workers(
    folder: TokenFolder, layout: Layout, ranks: int, workers: int
) -> None:
    steps = layout.total // GLOBAL + 1
    expected = [folder.sequence(n, layout).input_ids.tolist() for n in range(steps * GLOBAL)]
    found = steps_of(folder, layout, 0, steps, ranks, workers, micro=2)
    assert [row for step in found for row in step] == expected


@pytest.mark.parametrize("micro", [1, 2, 3, 6])
def test_micro_batch_does_not_change_the_order(folder: TokenFolder, layout: Layout, micro: int) -> None:
    assert steps_of(folder, layout, 0, 3, 2, 0, micro) == steps_of(folder, layout, 0, 3, 1, 0, 4)


def test_resuming_anywhere_equals_the_uninterrupted_stream(folder: TokenFolder, layout: Layout) -> None:
    total = layout.total // GLOBAL + 3  # across the epoch's border
    whole = steps_of(folder, layout, 0, total, 1, 0, 4)
    for done in range(total):
        assert steps_of(folder, layout, done * GLOBAL, total - done, 2, 0, 3) == whole[done:]


@pytest.mark.parametrize(("ranks", "workers"), [(2, 1), (3, 2)])
def test_resuming_with_other_ranks_and_workers(folder: TokenFolder, layout: Layout, ranks: int, workers: int) -> None:
    whole = steps_of(folder, layout, 0, 6, 1, 0, 4)
    assert steps_of(folder, layout, 3 * GLOBAL, 3, ranks, workers, 2) == whole[3:]


def test_prefetcher_yields_steps_in_order_and_raises_what_reading_raised() -> None:
    def numbers() -> object:
        yield from range(6)
        raise UserError("tokens-00001.arrow is gone")

    prefetcher = Prefetcher(numbers(), accumulation=2, depth=1)  # type: ignore[arg-type]
    assert [prefetcher.next()[0] for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(UserError, match="tokens-00001"):
        prefetcher.next()
    prefetcher.close()


def test_shard_cut_short_under_a_worker_is_named_without_a_trace(tmp_path: Path) -> None:
    manifest = write_shards(tmp_path, [random_documents(seed, 30) for seed in range(2)])
    folder = TokenFolder(str(tmp_path), 16)
    for entry in manifest.shards:
        (tmp_path / entry.path).write_bytes(b"short")
    plan = plan_batch(BatchConfig(global_batch=4, micro_batch=2), 1)
    reader = micro_batches(TokenStream(folder, folder.layout(0, 2), plan, 0, 0, 2), num_workers=1, prefetch=1)
    prefetcher = Prefetcher(reader, plan.accumulation, depth=1)
    with pytest.raises(UserError, match=r"^\S*tokens-0000\d.arrow: token shard has 5 bytes"):
        prefetcher.next()
    prefetcher.close()


def test_changed_order_is_refused_by_name(folder: TokenFolder) -> None:
    data = DataConfig(train="x", sequence_length=16)
    identity = order_identity(data, 7, folder.manifest)
    saved = DataState(24, identity).to_json()
    assert resume_position(saved, identity) == 24
    changed = order_identity(data.model_copy(update={"sequence_length": 32}), 8, folder.manifest)
    with pytest.raises(UserError, match=r"data.sequence_length was 16 and is 32; seed was 7 and is 8"):
        resume_position(saved, changed)
    other = order_identity(data, 7, folder.manifest.model_copy(update={"fingerprint": "1" * 32}))
    with pytest.raises(UserError, match="manifest fingerprint"):
        resume_position(saved, other)
