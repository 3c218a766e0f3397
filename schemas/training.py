"""The training run as data: one strict model of everything a run depends on, and its batch arithmetic."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from pydantic import Field, model_validator

from schemas.config import StrictModel
from schemas.errors import UserError


class DataConfig(StrictModel):
    """Which tokens, in which sequences."""

    train: str = Field(description="folder of token shards with manifest.json")
    validation: str | None = Field(
        default=None, description="folder of token shards for validation only; excludes validation_sequences"
    )
    validation_sequences: int = Field(
        default=0,
        ge=0,
        description="without a validation folder: this many sequences at the ends of the training shards are held out, "
        "spread over the shards in proportion to their size; they are never trained on, and a document cut by the "
        "border counts for training only",
    )
    sequence_length: int = Field(ge=2, description="tokens per training sequence")
    mask_boundaries: bool = Field(
        default=True,
        description="attention stays inside a document; position ids restart and labels stop at documents either way",
    )
    shuffle_block: int = Field(
        default=16, ge=1, description="sequences are shuffled inside blocks of this many (shuffled) shards"
    )
    num_workers: int = Field(default=1, ge=0, description="processes per rank that read data; 0 reads in a thread")
    prefetch: int = Field(default=2, ge=1, description="steps of data kept ready ahead of the step that runs")

    @model_validator(mode="after")
    def _one_validation_source(self) -> DataConfig:
        if self.validation is not None and self.validation_sequences:
            raise ValueError("validation and validation_sequences exclude each other: remove one of the two")
        return self


class ModelConfig(StrictModel):
    """A decoder of the Llama family."""

    hidden_size: int = Field(ge=1, description="width of the residual stream")
    layers: int = Field(ge=1, description="number of decoder layers")
    heads: int = Field(ge=1, description="attention heads; hidden_size must be an even multiple of it")
    kv_heads: int | None = Field(
        default=None, ge=1, description="key and value heads, a divisor of heads; unset: heads"
    )
    intermediate_size: int | None = Field(
        default=None, ge=1, description="width of the gated MLP; unset: 8/3 of hidden_size, rounded up to 64"
    )
    tie_embeddings: bool = Field(default=True, description="input and output embeddings share their weights")
    vocab_multiple: int = Field(
        default=64, ge=1, description="the vocabulary is padded to a multiple of this; padded ids never occur as labels"
    )
    rope_theta: float = Field(default=10000.0, gt=0, description="base of the rotary position embedding")

    @model_validator(mode="after")
    def _heads_divide(self) -> ModelConfig:
        if self.hidden_size % (2 * self.heads):
            near = max(1, round(self.hidden_size / (2 * self.heads))) * 2 * self.heads
            raise ValueError(
                f"hidden_size = {self.hidden_size} is not an even multiple of heads = {self.heads}: "
                f"set hidden_size: {near}"
            )
        if self.heads % self.key_value_heads:
            raise ValueError(
                f"heads = {self.heads} is not a multiple of kv_heads = {self.kv_heads}: "
                f"set kv_heads to a divisor of {self.heads}"
            )
        return self

    @property
    def key_value_heads(self) -> int:
        """`kv_heads` with its default applied."""
        return self.kv_heads or self.heads

    @property
    def mlp_size(self) -> int:
        """`intermediate_size` with its default applied."""
        return self.intermediate_size or -(-self.hidden_size * 8 // (3 * 64)) * 64

    def padded_vocab(self, vocab_size: int) -> int:
        """Rows of the embedding: `vocab_size` rounded up to `vocab_multiple`."""
        return -(-vocab_size // self.vocab_multiple) * self.vocab_multiple

    def parameters(self, vocab_size: int) -> int:
        """Number of weights of the model for a tokenizer of `vocab_size` ids."""
        h, kv = self.hidden_size, self.hidden_size // self.heads * self.key_value_heads
        layer = 2 * h * h + 2 * h * kv + 3 * h * self.mlp_size + 2 * h
        embeddings = self.padded_vocab(vocab_size) * h * (1 if self.tie_embeddings else 2)
        return embeddings + self.layers * layer + h


class BatchConfig(StrictModel):
    """How many sequences an optimizer step sees, and how many at a time."""

    global_batch: int = Field(ge=1, description="sequences per optimizer step, over all ranks")
    micro_batch: int = Field(ge=1, description="sequences per forward pass and rank")


class BatchPlan(NamedTuple):
    """`global_batch = micro_batch * ranks * accumulation`."""

    global_batch: int
    micro_batch: int
    ranks: int
    accumulation: int

    @property
    def per_rank(self) -> int:
        """Sequences a rank sees per optimizer step."""
        return self.micro_batch * self.accumulation


def plan_batch(batch: BatchConfig, ranks: int) -> BatchPlan:
    """The micro-batches each rank accumulates per optimizer step. Raises UserError naming batch sizes that fit."""
    unit = batch.micro_batch * ranks
    if batch.global_batch % unit:
        below = batch.global_batch // unit * unit
        fits = " or ".join(str(size) for size in (below, below + unit) if size)
        raise UserError(
            f"batch.global_batch = {batch.global_batch} is not a multiple of micro_batch x ranks = "
            f"{batch.micro_batch} x {ranks} = {unit}: set global_batch: {fits}"
        )
    return BatchPlan(batch.global_batch, batch.micro_batch, ranks, batch.global_batch // unit)


class OptimizerConfig(StrictModel):
    """AdamW (Loshchilov & Hutter 2019); decay acts on matrices only, not on norms."""

    lr: float = Field(gt=0, description="peak learning rate")
    betas: tuple[float, float] = Field(default=(0.9, 0.95), description="decay of the first and second moment")
    eps: float = Field(default=1e-8, gt=0, description="added to the root of the second moment")
    weight_decay: float = Field(default=0.1, ge=0, description="decoupled weight decay of matrices")
    clip: float = Field(default=1.0, ge=0, description="largest gradient norm; 0 switches clipping off")

    @model_validator(mode="after")
    def _betas_in_range(self) -> OptimizerConfig:
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas = {list(self.betas)} must lie in [0, 1): for example betas: [0.9, 0.95]")
        return self


class ScheduleConfig(StrictModel):
    """Linear warm-up, then half a cosine."""

    steps: int = Field(ge=1, description="optimizer steps of the whole run")
    warmup_steps: int = Field(default=0, ge=0, description="steps of linear warm-up; the peak is reached after them")
    min_lr_ratio: float = Field(default=0.1, ge=0, le=1, description="learning rate at the end over its peak")

    @model_validator(mode="after")
    def _warmup_fits(self) -> ScheduleConfig:
        if self.warmup_steps >= self.steps:
            raise ValueError(
                f"warmup_steps = {self.warmup_steps} leaves no step at the peak of steps = {self.steps}: "
                f"set warmup_steps: {self.steps // 10}"
            )
        return self


class CheckpointConfig(StrictModel):
    """When the whole state is written, and how many copies stay."""

    every: int = Field(default=1000, ge=1, description="steps between checkpoints; the last step always writes one")
    keep: int = Field(default=3, ge=1, description="newest checkpoints that stay on disk")


class ValidationConfig(StrictModel):
    """When the validation loss is measured, and on how much."""

    every: int = Field(default=500, ge=1, description="steps between validations; the last step always runs one")
    batches: int = Field(default=16, ge=1, description="global batches per validation, fewer where the data ends")


class TrainConfig(StrictModel):
    """A training run."""

    output: str = Field(description="folder of checkpoints, metrics, export and summary")
    seed: int = Field(default=0, ge=0, lt=2**31, description="keys the data order and the initial weights")
    tokenizer: str = Field(
        description="folder with tokenizer.json, copied into the export; must be the shards' tokenizer"
    )
    data: DataConfig = Field(description="token shards and how sequences are cut from them")
    model: ModelConfig = Field(description="the model to train")
    batch: BatchConfig = Field(description="sequences in a step")
    optimizer: OptimizerConfig = Field(description="the optimizer")
    schedule: ScheduleConfig = Field(description="steps and learning rate")
    precision: Literal["fp32", "bf16", "fp16"] = Field(
        default="fp32", description="type of weights and gradients; the optimizer always keeps 32-bit weights"
    )
    zero_stage: Literal[0, 1, 2, 3] = Field(
        default=0, description="what DeepSpeed ZeRO shards: 0 nothing, 1 optimizer, 2 and gradients, 3 and weights"
    )
    checkpoint: CheckpointConfig = Field(default=CheckpointConfig(), description="checkpoint settings")
    validation: ValidationConfig = Field(default=ValidationConfig(), description="validation settings")
    log_every: int = Field(default=10, ge=1, description="steps between lines on the terminal; metrics have every step")
    max_skipped: int = Field(
        default=20, ge=1, description="stop after this many steps in a row were skipped for non-finite gradients"
    )

    @model_validator(mode="after")
    def _trains_correctly(self) -> TrainConfig:
        if self.precision == "fp16" and self.zero_stage == 0:
            raise ValueError(
                "precision fp16 needs ZeRO: without it DeepSpeed 0.19 leaves the loss unscaled but unscales the "
                "gradients, which slows training down; set zero_stage: 1 (the same on one rank), or precision: bf16"
            )
        return self

    def trajectory(self) -> dict[str, Any]:
        """The settings that decide the course of training, flat `group.key`; a resumed run must not change them.

        Paths are absent: the data's and tokenizer's fingerprints stand for them. Settings of speed and reporting,
        and micro_batch (which moves sums by rounding only), may change.
        """
        values = self.model_dump(
            mode="json", include={"seed", "model", "optimizer", "schedule", "precision", "zero_stage"}
        )
        values["batch"] = {"global_batch": self.batch.global_batch}
        values["data"] = {"mask_boundaries": self.data.mask_boundaries}
        return dict(_flatten(values, ""))


def _flatten(values: dict[str, Any], prefix: str) -> list[tuple[str, Any]]:
    """Nested groups as `a.b` pairs."""
    pairs: list[tuple[str, Any]] = []
    for key, value in values.items():
        pairs += _flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", value)]
    return pairs
