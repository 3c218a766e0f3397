"""The position of a run: what the loop counts, and the random state of a process."""

from __future__ import annotations

import math
import random
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from schemas.errors import UserError
from train.engine import StepOutcome
from train.files import save_tensors


@dataclass(frozen=True)
class RunState:
    """Counters of a run after `step` optimizer steps."""

    step: int = 0  # steps taken, skipped ones included: the learning rate follows it
    n: int = 0  # position in the order of training sequences
    targets: int = 0  # labels trained on
    skipped: int = 0  # steps that left the weights untouched
    skipped_in_row: int = 0
    first_loss: float | None = None
    last_loss: float | None = None  # the last finite one
    loss_finite: bool = True  # whether the last step's was

    def advance(self, sequences: int, outcome: StepOutcome) -> RunState:
        """The state after a step on `sequences` sequences."""
        loss = outcome.loss if math.isfinite(outcome.loss) else None
        return replace(
            self,
            step=self.step + 1,
            n=self.n + sequences,
            targets=self.targets + outcome.targets,
            skipped=self.skipped + (not outcome.applied),
            skipped_in_row=0 if outcome.applied else self.skipped_in_row + 1,
            first_loss=loss if self.first_loss is None else self.first_loss,
            last_loss=self.last_loss if loss is None else loss,
            loss_finite=loss is not None,
        )

    def to_json(self) -> dict[str, Any]:
        """As saved in a checkpoint."""
        return asdict(self)


def check_trajectory(saved: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise UserError naming every setting that changed since the checkpoint and would change the run's course."""
    changes = [
        f"{key} was {saved.get(key)!r} and is {now.get(key)!r}"
        for key in sorted(saved.keys() | now.keys())
        if saved.get(key) != now.get(key)
    ]
    if changes:
        raise UserError(
            "the configuration differs from the checkpoint's where it decides the course of training: "
            + "; ".join(changes)
            + ". Restore the settings, or start a new run in another output folder"
        )


def save_random_state(path: Path) -> str:
    """Write the state of Python's, NumPy's and torch's generators; the file's checksum."""
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    value = {
        "python": random.getstate(),
        "numpy": (str(name), torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, cached),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }
    return save_tensors(value, path)


def load_random_state(path: Path) -> None:
    """Restore what save_random_state wrote."""
    value = torch.load(path, weights_only=True, map_location="cpu")
    version, internal, gauss = value["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, position, has_gauss, cached = value["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(value["torch"])
    if value["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(value["cuda"])


def seed_everything(seed: int, rank: int) -> None:
    """Seed Python's, NumPy's and torch's generators, differently on each rank."""
    random.seed(seed * 65537 + rank)
    np.random.seed((seed * 65537 + rank) % 2**32)
    torch.manual_seed(seed * 65537 + rank)
