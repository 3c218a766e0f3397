"""The model's mask and loss, and the engine's steps, in this process."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from schemas.config import parse_model
from schemas.manifest import TokenizerRef
from schemas.training import TrainConfig, plan_batch
from tests.train.synthetic import EOS, VOCAB, settings
from train.data.source import TokenFolder
from train.data.stream import Batch, TokenStream
from train.model import build_model, forward, loss_sum
from train.parallel import Ranks, start, stop

TOKENIZER = TokenizerRef(fingerprint="0" * 64, vocab_size=VOCAB, eos_token="e", eos_id=EOS)


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    """A process group of one; leaves the environment as it was."""
    before = dict(os.environ)
    yield start()
    stop()
    os.environ.clear()
    os.environ.update(before)


def config(corpus: Path, **changes: Any) -> TrainConfig:
    return parse_model(TrainConfig, settings(corpus, Path("unused"), **changes), "test")


def batches(run: TrainConfig, steps: int) -> list[list[Batch]]:
    folder = TokenFolder(run.data.train, run.data.sequence_length)
    plan = plan_batch(run.batch, 1)
    stream = list(TokenStream(folder, folder.layout(0, 4), plan, 0, 0, steps))
    return [stream[i : i + plan.accumulation] for i in range(0, len(stream), plan.accumulation)]


@pytest.mark.parametrize("masked", [True, False])
def test_attention_stays_inside_documents_where_asked(corpus: Path, masked: bool) -> None:
    model = build_model(config(corpus), TOKENIZER).eval()
    tokens = torch.tensor([[5, 6, 7, EOS, 8, 9, 10, 11]])
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3]])
    other = tokens.clone()
    other[0, :3] = 50
    first, second = (forward(model, Batch(t, positions, t), masked)[0, 4:] for t in (tokens, other))
    assert torch.equal(first, second) == masked


def test_a_packed_document_gets_the_logits_it_gets_alone(corpus: Path) -> None:
    model = build_model(config(corpus), TOKENIZER).eval()
    packed = Batch(torch.tensor([[5, 6, EOS, 8, 9]]), torch.tensor([[0, 1, 2, 0, 1]]), torch.zeros(1, 5))
    alone = Batch(torch.tensor([[8, 9]]), torch.tensor([[0, 1]]), torch.zeros(1, 2))
    torch.testing.assert_close(forward(model, packed, True)[0, 3:], forward(model, alone, True)[0])


def test_loss_is_that_of_the_definition() -> None:
    logits = torch.randn(2, 3, 7)
    labels = torch.tensor([[-100, 4, -100], [-100, 1, 2]])
    wanted = -sum(logits[b, t - 1].log_softmax(-1)[labels[b, t]] for b, t in ((0, 1), (1, 1), (1, 2)))
    torch.testing.assert_close(loss_sum(logits, labels), wanted)


def test_same_seed_same_weights_and_random_state_is_left_alone(corpus: Path) -> None:
    before = torch.get_rng_state()
    first, second = (build_model(config(corpus), TOKENIZER) for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def plain_losses(run: TrainConfig, steps: int) -> list[float]:
    """The same training in plain PyTorch: the definition that the engine must meet."""
    from train.schedule import learning_rate

    model = build_model(run, TOKENIZER)
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": run.optimizer.weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=run.optimizer.betas, eps=run.optimizer.eps)
    losses = []
    for step, micro in enumerate(batches(run, steps)):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, run.optimizer, run.schedule)
        targets = sum(batch.targets() for batch in micro)
        loss = sum(loss_sum(forward(model, batch, True), batch.labels) for batch in micro) / targets
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), run.optimizer.clip)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "stage", "tolerance"),
    [
        *(("fp32", stage, 1e-5) for stage in range(4)),
        *(("bf16", stage, 5e-3) for stage in range(4)),
        *(("fp16", stage, 5e-3) for stage in range(1, 4)),
    ],
)
def test_engine_trains_like_plain_pytorch(
    corpus: Path, ranks: Ranks, precision: str, stage: int, tolerance: float
) -> None:
    from train.engine import Engine
    from train.schedule import learning_rate

    run = config(corpus, zero_stage=stage, precision=precision, optimizer__clip=0.5)
    expected = plain_losses(run.model_copy(update={"precision": "fp32"}), 6)
    engine = Engine(build_model(run, TOKENIZER), run, plan_batch(run.batch, 1), ranks)
    found = []
    for step, micro in enumerate(batches(run, 6)):
        engine.set_lr(learning_rate(step, run.optimizer, run.schedule))
        outcome = engine.train_step(micro)
        assert outcome.applied and outcome.grad_norm > 0.1
        found.append(outcome.loss)
    assert found == pytest.approx(expected, abs=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_non_finite_gradients_leave_the_weights_untouched(
    corpus: Path, ranks: Ranks, stage: int, precision: str
) -> None:
    from train.engine import Engine

    run = config(corpus, zero_stage=stage, precision=precision)
    engine = Engine(build_model(run, TOKENIZER), run, plan_batch(run.batch, 1), ranks)
    first, second, third = batches(run, 3)
    engine.set_lr(1e-3)
    assert engine.train_step(first).applied
    with engine.whole_weights() as weights:
        before = {name: tensor.clone() for name, tensor in weights.items()}
    hook = engine.module.model.norm.register_forward_hook(lambda module, inputs, output: output * math.nan)
    outcome = engine.train_step(second)
    hook.remove()
    assert not outcome.applied and not math.isfinite(outcome.loss)
    with engine.whole_weights() as weights:
        assert all(torch.equal(before[name], tensor) for name, tensor in weights.items())
    after = engine.train_step(third)
    assert after.applied and math.isfinite(after.loss)
