"""What a run will do, worked out without starting it: sizes, batch arithmetic, tokens, memory. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.training import BatchPlan, TrainConfig, plan_batch
from train.data.source import TokenFolder

GIB = 1 << 30


@dataclass(frozen=True)
class Memory:
    """Estimated bytes per rank."""

    weights: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.gradients + self.optimizer + self.activations


def estimate_memory(config: TrainConfig, plan: BatchPlan, vocab_size: int) -> Memory:
    """Bytes per rank: exact for the states (Rajbhandari et al. 2020, section 3), rough for activations.

    Activations follow Korthikanti et al. 2022, equation 2, without the attention matrix (it is never stored whole),
    plus logits in the training precision, in 32 bits, and their gradient.
    """
    parameters = config.model.parameters(vocab_size)
    width = 4 if config.precision == "fp32" else 2
    states = 8 + (4 if width == 2 or config.zero_stage else 0)  # two moments; a 32-bit copy of the weights
    stage, ranks = config.zero_stage, plan.ranks
    tokens = plan.micro_batch * config.data.sequence_length
    layers = config.model.layers * tokens * config.model.hidden_size * 17 * width
    logits = tokens * config.model.padded_vocab(vocab_size) * (width + 8)
    return Memory(
        weights=parameters * width // (ranks if stage == 3 else 1),
        gradients=parameters * width // (ranks if stage >= 2 else 1),
        optimizer=parameters * states // (ranks if stage >= 1 else 1),
        activations=layers + logits,
    )


def describe(config: TrainConfig, training: TokenFolder, ranks: int) -> str:
    """The plan as text. Raises UserError if the batch sizes do not fit."""
    plan = plan_batch(config.batch, ranks)
    tokenizer = training.manifest.tokenizer
    memory = estimate_memory(config, plan, tokenizer.vocab_size)
    epoch = training.layout(config.seed, config.data.shuffle_block).total
    sequences = config.schedule.steps * plan.global_batch
    step_tokens = plan.global_batch * config.data.sequence_length
    unused = training.manifest.tokens - sum(training.available) * config.data.sequence_length
    rows = {
        "model": f"Llama, {config.model.parameters(tokenizer.vocab_size):,} parameters, {config.precision}, "
        f"vocabulary {tokenizer.vocab_size:,} padded to {config.model.padded_vocab(tokenizer.vocab_size):,}",
        "data": f"{training.manifest.tokens:,} tokens in {len(training.manifest.shards)} shards: {epoch:,} training "
        f"and {sum(training.shares):,} held-out sequences of {config.data.sequence_length} "
        f"({unused:,} tokens at shard ends unused)",
        "batch": f"{plan.global_batch} sequences = micro_batch {plan.micro_batch} x {plan.ranks} ranks "
        f"x {plan.accumulation} accumulated; {step_tokens:,} tokens a step",
        "run": f"{config.schedule.steps:,} steps, {sequences:,} sequences, "
        f"{config.schedule.steps * step_tokens:,} tokens" + (f", {sequences / epoch:.2f} epochs" if epoch else ""),
        "memory": f"about {memory.total / GIB:.2f} GiB per rank with ZeRO stage {config.zero_stage}: weights "
        f"{memory.weights / GIB:.2f}, gradients {memory.gradients / GIB:.2f}, optimizer {memory.optimizer / GIB:.2f}, "
        f"activations {memory.activations / GIB:.2f} (rough)",
        "output": config.output,
    }
    return "\n".join(f"{name:<8}{text}" for name, text in rows.items())
