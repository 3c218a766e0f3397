"""From a checkpoint to a Hugging Face directory, tested by loading it."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, GenerationConfig, LlamaForCausalLM
from transformers.utils.logging import disable_progress_bar

from schemas.config import load_model
from schemas.errors import UserError
from schemas.manifest import TokenizerRef
from schemas.training import TrainConfig
from train.checkpoint import CONFIG, WEIGHTS, faults, read_run
from train.files import disk_errors, sync_folder
from train.model import DTYPES, buffers_kept, llama_config
from train.parallel import Ranks
from train.preflight import check_export_target, check_tokenizer

TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "vocab.txt", "merges.txt", "tokenizer.model", "spiece.model", "chat_template.jinja",
)  # fmt: skip
TEST_TOKENS = 32


@dataclass(frozen=True)
class Exported:
    """A tested export."""

    path: Path
    parameters: int
    max_difference: float  # largest difference of a logit, re-loaded against the checkpoint's weights


def export_checkpoint(checkpoint: Path, target: Path) -> Exported:
    """Write `target` as a directory that transformers loads, and load it. Needs no process group.

    The directory appears by rename after the test. Raises UserError if the checkpoint is damaged, the tokenizer
    another one, or the re-loaded model computes other logits.
    """
    target = Path(os.path.abspath(target))
    check_export_target(target)
    if found := faults(checkpoint, Ranks(0, 1, torch.device("cpu"))):
        raise UserError(f"checkpoint {checkpoint} is damaged: {'; '.join(found)}: export another one")
    config = load_model(TrainConfig, checkpoint / CONFIG)
    tokenizer = TokenizerRef.model_validate(read_run(checkpoint)["tokenizer"])
    check_tokenizer(config.tokenizer, tokenizer)
    model = _model_of(checkpoint, config, tokenizer)
    disable_progress_bar()
    if not all(bool(torch.isfinite(value).all()) for value in model.parameters()):
        raise UserError(
            f"checkpoint {checkpoint}: its weights are not finite, the run has diverged: export an earlier one"
        )
    aside = target.with_name(f".writing-{target.name}")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        with disk_errors(target):
            aside.mkdir(parents=True)
            model.save_pretrained(aside)
            _copy_tokenizer(Path(config.tokenizer), aside, config, tokenizer)
        difference = _compare(model, aside, tokenizer)
        with disk_errors(target):
            _replace(aside, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return Exported(target, model.num_parameters(), difference)


def _model_of(checkpoint: Path, config: TrainConfig, tokenizer: TokenizerRef) -> LlamaForCausalLM:
    model = LlamaForCausalLM(llama_config(config, tokenizer))
    with buffers_kept(model):
        model.to(DTYPES[config.precision])
    missing, unexpected = model.load_state_dict(load_file(checkpoint / WEIGHTS), strict=False)
    tied = {"lm_head.weight"} if config.model.tie_embeddings else set()
    if set(missing) - tied or unexpected:
        raise UserError(
            f"{checkpoint / WEIGHTS}: weights do not fit the model: missing {missing}, unknown {unexpected}"
        )
    model.tie_weights()
    model.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_id, pad_token_id=tokenizer.eos_id)
    return model.eval()


def _copy_tokenizer(source: Path, target: Path, config: TrainConfig, tokenizer: TokenizerRef) -> None:
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    described = target / "tokenizer_config.json"
    if not described.exists():  # enough for AutoTokenizer
        values = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": tokenizer.eos_token,
            "model_max_length": config.data.sequence_length,
        }
        described.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


@torch.no_grad()
def _compare(model: LlamaForCausalLM, folder: Path, tokenizer: TokenizerRef) -> float:
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=model.dtype, local_files_only=True).eval()
    generator = torch.Generator().manual_seed(0)
    length = min(TEST_TOKENS, model.config.max_position_embeddings)
    tokens = torch.randint(0, tokenizer.vocab_size, (1, length), generator=generator)
    difference = float((model(tokens).logits - loaded(tokens).logits).abs().max())
    if not difference <= 1e-5:
        raise UserError(f"{folder}: the exported model computes other logits than the checkpoint (by {difference:g})")
    return difference


def _replace(aside: Path, target: Path) -> None:
    """Put the finished directory in place of an older one."""
    old = target.with_name(f".replaced-{target.name}")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    aside.rename(target)
    sync_folder(target.parent)
    shutil.rmtree(old, ignore_errors=True)
