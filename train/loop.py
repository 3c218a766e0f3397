"""The training loop: every event once, everything else elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import UserError
from schemas.training import BatchPlan, TrainConfig
from train.data.stream import Prefetcher
from train.engine import Engine, StepOutcome
from train.parallel import Ranks
from train.schedule import learning_rate
from train.state import RunState


@dataclass(frozen=True)
class StepEvent:
    """One optimizer step, as metrics see it."""

    state: RunState  # after the step
    outcome: StepOutcome
    lr: float
    tokens: int  # tokens of the global batch
    seconds: float  # wall-clock time of the step, waiting for data included
    wait_s: float  # of which rank 0 waited for data


@dataclass(frozen=True)
class Hooks:
    """What the loop calls besides the engine."""

    step: Callable[[StepEvent], None]
    save: Callable[[RunState], Path]
    validate: Callable[[RunState], float | None]  # the perplexity
    stop_requested: Callable[[], bool]


def train(
    config: TrainConfig, plan: BatchPlan, engine: Engine, data: Prefetcher, state: RunState, hooks: Hooks, ranks: Ranks,
    stop_at: int,
) -> RunState:  # fmt: skip
    """Train from `state` to step `stop_at` or until a stop is requested; a checkpoint lies at the end either way."""
    saved, validated = state.step, -1  # the checkpoint that was resumed from is there already
    while state.step < stop_at:
        begin = time.perf_counter()
        batches, waited = data.next()
        lr = learning_rate(state.step, config.optimizer, config.schedule)
        engine.set_lr(lr)
        outcome = engine.train_step(batches)
        state = state.advance(plan.global_batch, outcome)
        tokens = plan.global_batch * config.data.sequence_length
        hooks.step(StepEvent(state, outcome, lr, tokens, time.perf_counter() - begin, waited))
        _check_finite(state, config)
        stopping = ranks.any(hooks.stop_requested())
        if stopping or state.step % config.checkpoint.every == 0:
            hooks.save(state)
            saved = state.step
        if stopping:
            return state
        if state.step % config.validation.every == 0:
            hooks.validate(state)
            validated = state.step
    if saved != state.step:
        hooks.save(state)
    if validated != state.step:
        hooks.validate(state)
    return state


def _check_finite(state: RunState, config: TrainConfig) -> None:
    if state.skipped_in_row >= config.max_skipped:
        raise UserError(
            f"step {state.step}: the last {state.skipped_in_row} steps had non-finite gradients and were skipped; "
            "the run has diverged. Start a run in a new output folder with a lower optimizer.lr or more "
            "schedule.warmup_steps, and check the data with `train data check`"
        )
