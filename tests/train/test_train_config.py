"""Configuration, batch arithmetic, schedule, plan: pure functions."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.config import dump_yaml, load_model, parse_model
from schemas.errors import UserError
from schemas.training import BatchConfig, OptimizerConfig, ScheduleConfig, TrainConfig, plan_batch
from tests.train.synthetic import settings, write_config
from train.schedule import learning_rate


def config(**changes: Any) -> TrainConfig:
    return parse_model(TrainConfig, settings(Path("corpus"), Path("out"), **changes), "train.yaml")


def test_round_trip_and_overrides(tmp_path: Path) -> None:
    path = write_config(tmp_path / "train.yaml", settings(Path("corpus"), Path("out")))
    loaded = load_model(TrainConfig, path, ["optimizer.lr=1e-4", "precision=bf16"])
    assert loaded.optimizer.lr == 1e-4 and loaded.precision == "bf16"
    (tmp_path / "again.yaml").write_text(dump_yaml(loaded))
    assert load_model(TrainConfig, tmp_path / "again.yaml") == loaded


def test_unknown_key_is_named_with_the_nearest_known_one() -> None:
    with pytest.raises(UserError, match=r"optimizer: unknown key 'weight_decya'; did you mean 'weight_decay'\?"):
        config(optimizer__weight_decya=0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schedule__warmup_steps": 8}, "set warmup_steps: 0"),
        ({"model__hidden_size": 30}, "set hidden_size: 32"),
        ({"model__kv_heads": 3}, "set kv_heads to a divisor of 4"),
        ({"data__validation": "v"}, "exclude each other"),
        ({"optimizer__betas": [0.9, 1.0]}, "must lie in"),
        ({"zero_stage": 4}, "zero_stage"),
        ({"precision": "fp16"}, "set zero_stage: 1"),
    ],
)
def test_mistakes_name_the_remedy(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        config(**changes)


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 64))
def test_batch_arithmetic(micro: int, ranks: int, accumulation: int) -> None:
    plan = plan_batch(BatchConfig(global_batch=micro * ranks * accumulation, micro_batch=micro), ranks)
    assert plan.accumulation == accumulation and plan.per_rank * ranks == plan.global_batch


def test_batch_that_does_not_divide() -> None:
    message = r"batch.global_batch = 10 is not a multiple of micro_batch x ranks = 4 x 2 = 8: set global_batch: 8 or 16"
    with pytest.raises(UserError, match=message):
        plan_batch(BatchConfig(global_batch=10, micro_batch=4), 2)
    with pytest.raises(UserError, match=r"set global_batch: 8$"):
        plan_batch(BatchConfig(global_batch=3, micro_batch=4), 2)


def test_schedule_values() -> None:
    optimizer, schedule = OptimizerConfig(lr=1.0), ScheduleConfig(steps=104, warmup_steps=3, min_lr_ratio=0.1)
    rates = [learning_rate(step, optimizer, schedule) for step in range(104)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert max(rates) == 1.0 and rates[-1] == pytest.approx(0.1)
    assert rates[53] == pytest.approx(0.55)
    assert all(later <= earlier for earlier, later in pairwise(rates[3:]))


@pytest.mark.parametrize(("steps", "warmup"), [(1, 0), (2, 0), (2, 1), (5, 4)])
def test_short_schedules_reach_the_peak(steps: int, warmup: int) -> None:
    schedule = ScheduleConfig(steps=steps, warmup_steps=warmup)
    assert max(learning_rate(step, OptimizerConfig(lr=2.0), schedule) for step in range(steps)) == 2.0


@pytest.mark.parametrize("tied", [True, False])
def test_parameter_count_is_that_of_the_model(tied: bool) -> None:
    from schemas.manifest import TokenizerRef
    from tests.train.synthetic import EOS, VOCAB
    from train.model import build_model

    tokenizer = TokenizerRef(fingerprint="0" * 64, vocab_size=VOCAB, eos_token="e", eos_id=EOS)
    run = config(model__tie_embeddings=tied)
    assert build_model(run, tokenizer).num_parameters() == run.model.parameters(VOCAB)
