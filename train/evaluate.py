"""Validation loss on a fixed set of sequences, without touching the training stream or any random state."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from schemas.training import BatchPlan, TrainConfig
from train.data.sequences import IGNORED
from train.data.source import Held, TokenFolder
from train.data.stream import Batch, stack
from train.engine import Engine
from train.parallel import Ranks


@dataclass(frozen=True)
class Validation:
    """The sequences validation runs on."""

    folder: TokenFolder
    held: list[Held]


def open_validation(config: TrainConfig, training: TokenFolder) -> Validation | None:
    """The validation folder's first sequences, or the training folder's held-out ones; None if neither is set."""
    limit = config.validation.batches * config.batch.global_batch
    folder = training
    if config.data.validation is not None:
        folder = TokenFolder(config.data.validation, config.data.sequence_length)
        folder.shares = list(folder.available)
    held = folder.held(limit)
    return Validation(folder, held) if held else None


def batches(validation: Validation, plan: BatchPlan, ranks: Ranks) -> Iterator[Batch]:
    """This rank's micro-batches: the same number on each rank, the last filled up with sequences that don't count."""
    size = plan.micro_batch
    for start in range(0, len(validation.held), size * ranks.world):
        mine = validation.held[start + ranks.rank * size :][:size]
        sequences = [validation.folder.held_sequence(held) for held in mine]
        filler = validation.folder.held_sequence(validation.held[0])
        filler.labels.fill(IGNORED)
        yield stack(sequences + [filler] * (size - len(sequences)))


def validation_loss(engine: Engine, validation: Validation, plan: BatchPlan, ranks: Ranks) -> tuple[float, float, int]:
    """Mean loss in nats per token, perplexity exp(loss), and the number of tokens predicted."""
    with torch.random.fork_rng():
        loss, tokens = engine.evaluate(batches(validation, plan, ranks))
    return loss, math.exp(min(loss, 700.0)), tokens
