"""The stream of training batches: one global order, sliced by ranks and workers, read ahead of the step."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from schemas.errors import UserError
from schemas.training import BatchPlan
from train.data.order import Layout
from train.data.sequences import IGNORED, Sequence
from train.data.source import TokenFolder


class Batch(NamedTuple):
    """A micro-batch, int64 [sequences, sequence_length] each; see sequences.Sequence."""

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    labels: torch.Tensor

    def to(self, device: torch.device) -> Batch:
        """The batch on `device`."""
        return Batch(*(tensor.to(device, non_blocking=True) for tensor in self))

    def targets(self) -> int:
        """Labels that count for the loss: those with a token before them in the sequence."""
        return int((self.labels[:, 1:] != IGNORED).sum())


def stack(sequences: list[Sequence]) -> Batch:
    """Sequences as one batch."""
    return Batch(*(torch.from_numpy(np.stack(field)) for field in zip(*sequences, strict=True)))


class TokenStream(IterableDataset[Batch]):
    """Micro-batches of one rank for steps first, first + 1, ... as a function of the position n alone.

    Step k takes sequences [n + k * global_batch, n + (k + 1) * global_batch) of the global order; a rank takes one
    contiguous slice of them. Workers take micro-batches in turn, which is how DataLoader puts them together again, so
    the order depends neither on ranks, nor on workers, nor on the micro-batch.
    """

    def __init__(self, folder: TokenFolder, layout: Layout, plan: BatchPlan, rank: int, n: int, steps: int) -> None:
        self.folder, self.layout, self.plan, self.rank, self.n, self.steps = folder, layout, plan, rank, n, steps

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        first, stride = (worker.id, worker.num_workers) if worker else (0, 1)
        for index in range(first, self.steps * self.plan.accumulation, stride):
            yield self.micro_batch(index)

    def micro_batch(self, index: int) -> Batch:
        """The rank's micro-batch `index`, counted from position n."""
        step, part = divmod(index, self.plan.accumulation)
        start = self.n + step * self.plan.global_batch + self.rank * self.plan.per_rank + part * self.plan.micro_batch
        return stack([self.folder.sequence(start + i, self.layout) for i in range(self.plan.micro_batch)])


def micro_batches(stream: TokenStream, num_workers: int, prefetch: int) -> Iterator[Batch]:
    """The stream read by `num_workers` processes, or in this process. Leaves torch's random state alone."""
    workers: dict[str, Any] = {"num_workers": 0}
    if num_workers:
        ahead = max(1, -(-prefetch * stream.plan.accumulation // num_workers))
        workers = {"num_workers": num_workers, "prefetch_factor": ahead}
    generator = torch.Generator().manual_seed(0)  # DataLoader would draw its workers' seed from the global generator
    return iter(DataLoader(stream, batch_size=None, generator=generator, **workers))


class Prefetcher:
    """Whole steps, fetched by a thread while the step before runs. `next` measures how long it had to wait."""

    def __init__(self, batches: Iterator[Batch], accumulation: int, depth: int) -> None:
        self._batches, self._accumulation = batches, accumulation
        self._queue: queue.Queue[list[Batch] | BaseException] = queue.Queue(maxsize=depth)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._fill, name="prefetch", daemon=True)
        self._thread.start()

    def _fill(self) -> None:
        try:
            while not self._closed.is_set():
                self._put([next(self._batches) for _ in range(self._accumulation)])
        except BaseException as error:  # handed to the training thread, which raises it
            self._put(error)

    def _put(self, item: list[Batch] | BaseException) -> None:
        while not self._closed.is_set():
            try:
                return self._queue.put(item, timeout=0.1)
            except queue.Full:
                continue

    def next(self) -> tuple[list[Batch], float]:
        """The next step's micro-batches and the seconds spent waiting for them. Raises what reading raised."""
        begin = time.perf_counter()
        item = self._queue.get()
        if isinstance(item, UserError):  # a worker's comes wrapped in a stack trace
            raise UserError(str(item).rsplit("UserError: ", 1)[-1].strip())
        if isinstance(item, BaseException):
            raise item
        return item, time.perf_counter() - begin

    def close(self) -> None:
        """Stop the thread; its workers end with it."""
        self._closed.set()
        self._thread.join(timeout=5)
