"""The narrow interface over DeepSpeed: learning rate, a training step, an evaluation, state in and out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deepspeed
import torch
from deepspeed.runtime.checkpoint_engine.torch_checkpoint_engine import TorchCheckpointEngine
from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
from deepspeed.runtime.zero.config import ZeroStageEnum
from deepspeed.utils.tensor_fragment import fragment_address
from transformers import PreTrainedModel

from schemas.errors import UserError
from schemas.training import BatchPlan, TrainConfig
from train.data.stream import Batch
from train.files import save_tensors
from train.model import buffers_kept, forward, loss_sum
from train.parallel import Ranks

TAG = "state"  # the folder DeepSpeed makes inside a checkpoint
BUCKET = 500_000_000  # DeepSpeed's default bucket, in elements; smaller models need no more than themselves


@dataclass(frozen=True)
class StepOutcome:
    """What an optimizer step did, the same on every rank."""

    loss: float  # nats per label, mean over the global batch; may be non-finite
    grad_norm: float  # before clipping; may be non-finite
    applied: bool  # False: gradients were not finite, the weights are untouched
    targets: int  # labels that counted


class CheckpointFiles(TorchCheckpointEngine):
    """How DeepSpeed writes and reads its files: with checksums, and without unpickling anything but tensors."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.written: dict[str, str] = {}  # path -> xxh3-128 of the bytes handed to the disk

    def save(self, state_dict: dict[str, Any], path: str) -> None:
        """Write one file."""
        self.written[str(path)] = save_tensors(state_dict, path)

    def load(self, path: str, map_location: Any = None) -> Any:
        """Read one file."""
        known = [LossScaler, DynamicLossScaler, fragment_address, ZeroStageEnum]
        with torch.serialization.safe_globals(known):
            return torch.load(path, map_location=map_location, weights_only=True)


def deepspeed_settings(config: TrainConfig, plan: BatchPlan, parameters: int) -> dict[str, Any]:
    """DeepSpeed's own configuration for a run."""
    bucket = min(BUCKET, parameters)
    settings: dict[str, Any] = {
        "train_batch_size": plan.global_batch,
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": plan.accumulation,
        "gradient_clipping": 0.0 if _plain(config) else config.optimizer.clip,
        "zero_optimization": {
            "stage": config.zero_stage,
            "reduce_bucket_size": bucket,
            "allgather_bucket_size": bucket,
            "stage3_prefetch_bucket_size": bucket,
        },
    }
    if config.precision != "fp32":
        settings[config.precision] = {"enabled": True}
    return settings


def _plain(config: TrainConfig) -> bool:
    """fp32 without ZeRO: DeepSpeed reports no gradient norm and lets non-finite gradients through."""
    return config.precision == "fp32" and config.zero_stage == 0


def _adamw(model: torch.nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW with decay on matrices. lr starts at 0: DeepSpeed may step once on zero gradients to make the moments."""
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [
        {"params": decayed, "weight_decay": config.optimizer.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=config.optimizer.betas, eps=config.optimizer.eps)


class Engine:
    """A model under DeepSpeed."""

    def __init__(self, model: PreTrainedModel, config: TrainConfig, plan: BatchPlan, ranks: Ranks) -> None:
        self._config, self._ranks = config, ranks
        settings = deepspeed_settings(config, plan, model.num_parameters())
        with buffers_kept(model):
            self._engine, *_ = deepspeed.initialize(model=model, optimizer=_adamw(model, config), config=settings)
        self._files = CheckpointFiles(self._engine._config)
        self._engine.checkpoint_engine = self._files
        self._forget_warm_start()

    def _forget_warm_start(self) -> None:
        """Set Adam's step counts to 0: 16-bit ZeRO-0 has counted the step that made the moments, which would
        spoil the bias correction of every early step."""
        inner = getattr(self._engine.optimizer, "optimizer", self._engine.optimizer)
        for state in inner.state.values():
            if isinstance(state.get("step"), torch.Tensor):
                state["step"].zero_()

    @property
    def module(self) -> PreTrainedModel:
        """The model itself."""
        return self._engine.module

    def set_lr(self, lr: float) -> None:
        """Learning rate of the next step, for every parameter group."""
        for group in self._engine.optimizer.param_groups:
            group["lr"] = lr

    def train_step(self, batches: list[Batch]) -> StepOutcome:
        """One optimizer step on the rank's micro-batches.

        The loss is the mean over the labels of the global batch, so neither micro-batches nor ranks with fewer
        labels weigh more. Non-finite gradients leave the weights untouched.
        """
        self._engine.train()
        targets = int(self._ranks.sum(sum(batch.targets() for batch in batches))[0])
        total = torch.zeros((), dtype=torch.float64, device=self._ranks.device)
        applied = True
        for index, batch in enumerate(batches):
            local = batch.to(self._ranks.device)
            loss = loss_sum(forward(self._engine, local, self._config.data.mask_boundaries), local.labels)
            total += loss.detach()
            # DeepSpeed averages gradients over the ranks; the factor `world` makes that a sum.
            self._engine.backward(loss * (self._ranks.world / max(1, targets)), scale_wrt_gas=False)
            if index + 1 == len(batches) and _plain(self._config):
                self._own_norm, applied = self._clip()
            self._engine.step()
        norm = self._own_norm if _plain(self._config) else self._engine.get_global_grad_norm()
        mean = self._ranks.sum(float(total))[0] / max(1, targets)
        applied = applied and self._engine.was_step_applied()
        return StepOutcome(mean, float("nan") if norm is None else float(norm), applied, targets)

    def _clip(self) -> tuple[float, bool]:
        """Clip the gradients; their norm before, and whether it is finite. Drops them if it is not."""
        limit = self._config.optimizer.clip or math.inf
        norm = float(torch.nn.utils.clip_grad_norm_(self.module.parameters(), limit))
        if not math.isfinite(norm):
            self.module.zero_grad(set_to_none=True)
        return norm, math.isfinite(norm)

    @torch.no_grad()
    def evaluate(self, batches: Iterable[Batch]) -> tuple[float, int]:
        """Mean loss in nats per label over all ranks' batches, and the number of labels.

        Every rank must bring the same number of batches (ZeRO-3 gathers weights together).
        """
        self._engine.eval()
        total, targets = 0.0, 0
        for batch in batches:
            local = batch.to(self._ranks.device)
            total += float(loss_sum(forward(self._engine, local, self._config.data.mask_boundaries), local.labels))
            targets += batch.targets()
        total, counted = self._ranks.sum(total, targets)
        self._engine.train()
        return total / max(1.0, counted), int(counted)

    @contextmanager
    def whole_weights(self) -> Iterator[dict[str, torch.Tensor]]:
        """All weights by their Hugging Face names, tied ones once, whole on rank 0. Every rank must enter."""
        named = dict(self.module.named_parameters())  # lists a shared parameter once
        gathered = list(named.values()) if self._config.zero_stage == 3 else []
        with deepspeed.zero.GatheredParameters(gathered, enabled=bool(gathered)):
            yield {name: parameter.detach() for name, parameter in named.items()}

    def save(self, folder: Path) -> dict[str, str]:
        """Write model and optimizer state; the files this rank wrote, with their checksums. Every rank must call."""
        self._files.written.clear()
        self._engine.save_checkpoint(str(folder), tag=TAG, save_latest=False)
        return dict(self._files.written)

    def load(self, folder: Path) -> None:
        """Read what `save` wrote. Raises UserError if DeepSpeed refuses it."""
        path, _ = self._engine.load_checkpoint(str(folder), tag=TAG, load_lr_scheduler_states=False)
        if path is None:
            raise UserError(f"{folder}: DeepSpeed found no state there: choose another checkpoint with --resume PATH")
