"""From the configuration to a Hugging Face model, and its loss."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from schemas.manifest import TokenizerRef
from schemas.training import TrainConfig
from train.data.sequences import IGNORED
from train.data.stream import Batch

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def llama_config(config: TrainConfig, tokenizer: TokenizerRef) -> LlamaConfig:
    """The Hugging Face configuration; its vocabulary is the padded one."""
    model = config.model
    return LlamaConfig(
        vocab_size=model.padded_vocab(tokenizer.vocab_size),
        hidden_size=model.hidden_size,
        intermediate_size=model.mlp_size,
        num_hidden_layers=model.layers,
        num_attention_heads=model.heads,
        num_key_value_heads=model.key_value_heads,
        max_position_embeddings=config.data.sequence_length,
        tie_word_embeddings=model.tie_embeddings,
        rope_parameters={"rope_type": "default", "rope_theta": model.rope_theta},
        bos_token_id=None,
        eos_token_id=tokenizer.eos_id,
        pad_token_id=None,
        dtype=DTYPES[config.precision],
    )


def build_model(config: TrainConfig, tokenizer: TokenizerRef) -> LlamaForCausalLM:
    """A model with weights drawn from `config.seed`, in 32 bits; leaves the random state as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        model = LlamaForCausalLM(llama_config(config, tokenizer))
    return model.float()


@contextmanager
def buffers_kept(model: torch.nn.Module) -> Iterator[None]:
    """Undo a cast of the model's buffers to 16 bits on leaving.

    `module.bfloat16()` also rounds the rotary frequencies. transformers loads a model with exact ones, so training
    with rounded ones would train another model than the one that is exported.
    """
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    yield
    for name, buffer in model.named_buffers():
        buffer.data = before[name].to(buffer.device)


def forward(model: torch.nn.Module, batch: Batch, mask_boundaries: bool) -> torch.Tensor:
    """Logits [sequences, length, vocabulary].

    Without a mask, transformers reads document boundaries from restarting position ids and keeps attention inside
    them; with a mask of ones it attends to everything before.
    """
    mask = None if mask_boundaries else torch.ones_like(batch.input_ids)
    output = model(input_ids=batch.input_ids, position_ids=batch.position_ids, attention_mask=mask, use_cache=False)
    return output.logits


def loss_sum(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy in nats, summed over the labels that count, in 32 bits."""
    return F.cross_entropy(
        logits[:, :-1].float().flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED, reduction="sum"
    )
