"""The learning rate as a pure function of the step."""

from __future__ import annotations

import math

from schemas.training import OptimizerConfig, ScheduleConfig


def learning_rate(step: int, optimizer: OptimizerConfig, schedule: ScheduleConfig) -> float:
    """Learning rate of `step` (from 0): linear warm-up, then half a cosine (Loshchilov & Hutter 2017).

    Step 0 has peak / (warmup_steps + 1), step `warmup_steps` the peak, step `steps - 1` peak * min_lr_ratio.
    """
    if step < schedule.warmup_steps:
        return optimizer.lr * (step + 1) / (schedule.warmup_steps + 1)
    span = max(1, schedule.steps - 1 - schedule.warmup_steps)
    progress = min(1.0, (step - schedule.warmup_steps) / span)
    low = schedule.min_lr_ratio
    return optimizer.lr * (low + (1 - low) * 0.5 * (1 + math.cos(math.pi * progress)))
