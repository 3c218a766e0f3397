"""Processes of a run: where they are, and the few things they tell each other. Imported before DeepSpeed."""

from __future__ import annotations

import logging
import os
import socket
import warnings
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from train import environment


@dataclass(frozen=True)
class Ranks:
    """This process among the others."""

    rank: int
    world: int
    device: torch.device

    @property
    def main(self) -> bool:
        """Whether this process reports and publishes."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait for all processes."""
        if self.world > 1:
            dist.barrier()

    def gather(self, value: Any) -> list[Any]:
        """`value` of every rank, on every rank."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value)
        return values

    def sum(self, *values: float) -> list[float]:
        """Element-wise sum over the ranks, in double precision."""
        if self.world == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor)
        return [float(value) for value in tensor.tolist()]

    def any(self, flag: bool) -> bool:
        """Whether `flag` holds on any rank; the same answer everywhere."""
        return self.sum(float(flag))[0] > 0


def _describe_world() -> None:
    """Set what DeepSpeed reads about accelerator and world, where no launcher or user has."""
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    if "RANK" not in os.environ:  # no launcher: a world of one
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        single = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        os.environ.update(single)
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed.*")


def start() -> Ranks:
    """Join the process group: NCCL with a CUDA GPU, gloo without."""
    environment.prepare()
    _describe_world()
    import deepspeed
    import deepspeed.ops

    logging.getLogger("DeepSpeed").setLevel(os.environ.get("DS_LOG_LEVEL", "ERROR").upper())
    cuda = torch.cuda.is_available() and os.environ.get("DS_ACCELERATOR", "cuda") == "cuda"
    # The shared-memory all-reduce serves CPU inference only, but DeepSpeed compiles it at start (about 30 s).
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if not cuda:
        environment.keep_freed_memory()
    if cuda:
        torch.cuda.set_device(local_rank)
    elif "OMP_NUM_THREADS" not in os.environ:
        here = int(os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("LOCAL_SIZE") or os.environ["WORLD_SIZE"])
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // here))
    deepspeed.init_distributed(dist_backend="nccl" if cuda else "gloo", verbose=False)
    device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
    return Ranks(dist.get_rank(), dist.get_world_size(), device)


def stop() -> None:
    """Leave the process group."""
    if dist.is_initialized():
        dist.destroy_process_group()
