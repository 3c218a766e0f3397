"""What a run refuses before it starts, and its dry run with it; and what it says where the disk fails it."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from schemas.config import parse_model
from schemas.errors import UserError
from schemas.manifest import MANIFEST_NAME, TokenManifest, read_manifest, to_json
from schemas.training import TrainConfig
from tests.train.synthetic import settings, write_config
from train.cli import app
from train.data.source import TokenFolder
from train.files import disk_errors, save_tensors
from train.preflight import check_export_target, preflight


def refused(values: dict[str, Any], tmp_path: Path) -> str:
    """What the dry run says against the settings."""
    result = CliRunner().invoke(app, ["run", str(write_config(tmp_path / "c.yaml", values)), "--dry-run"])
    assert isinstance(result.exception, UserError), result.output
    return str(result.exception)


def test_dry_run_passes_and_leaves_nothing_behind(corpus: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path / "c.yaml", settings(corpus, tmp_path / "new" / "out"))
    result = CliRunner().invoke(app, ["run", str(config), "--dry-run"])
    assert result.exit_code == 0 and "warning" not in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["c.yaml"]


def test_dry_run_warns_of_memory(corpus: Path, tmp_path: Path) -> None:
    values = settings(corpus, tmp_path / "out", model__hidden_size=65536, model__layers=500)
    result = CliRunner().invoke(app, ["run", str(write_config(tmp_path / "c.yaml", values)), "--dry-run"])
    assert result.exit_code == 0 and "warning: a rank needs about" in result.output


@pytest.mark.parametrize("below", ["", "deeper", "deeper/still"])
def test_output_that_is_a_file(corpus: Path, tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("mine")
    message = refused(settings(corpus, tmp_path / "file" / below), tmp_path)
    assert "file: is a file, and a folder is needed" in message and (tmp_path / "file").read_text() == "mine"


def test_other_mistakes_a_dry_run_finds(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "export").mkdir(parents=True)
    (tmp_path / "out" / "export" / "thesis.txt").write_text("mine")
    good = tmp_path / "good"
    cases = [
        (settings(corpus, "/proc/nowhere/out"), "/proc: "),  # type: ignore[arg-type]
        (settings(corpus, tmp_path / "out"), "is no earlier export"),
        (settings(corpus, good, tokenizer=str(tmp_path)), "set tokenizer to the folder"),
        (settings(corpus, good, seed=2**63), "seed"),
        (settings(corpus, good, data__sequence_length=10**6), "data.sequence_length = 1000000 is longer than every"),
        (settings(corpus, good, data__validation_sequences=0, data__validation=str(tmp_path)), MANIFEST_NAME),
    ]
    for values, message in cases:
        assert message in refused(values, tmp_path)


def test_show_without_a_tokenizer(corpus: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path / "c.yaml", settings(corpus, tmp_path / "out", tokenizer=str(tmp_path / "none")))
    result = CliRunner().invoke(app, ["data", "show", "0", str(config)])
    assert isinstance(result.exception, UserError) and "set tokenizer to the folder" in str(result.exception)


def test_what_an_export_may_replace(tmp_path: Path) -> None:
    ours, foreign, empty, link = (tmp_path / name for name in ("ours", "foreign", "empty", "link"))
    for folder in (ours, foreign, empty):
        folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (ours / name).touch()
    (foreign / "config.json").touch()
    link.symlink_to(tmp_path / "nothing")
    for target in (ours, empty, tmp_path / "new"):
        check_export_target(target)
    for target in (foreign, foreign / "config.json", link):
        with pytest.raises(UserError, match="is no earlier export"):
            check_export_target(target)


@pytest.fixture
def tokens(corpus: Path, tmp_path: Path) -> Path:
    """A copy of the token shards that a test may harm."""
    return Path(shutil.copytree(corpus / "tokens", tmp_path / "tokens"))


def test_flipped_byte_is_found_by_the_checksum(tokens: Path) -> None:
    shard = tokens / "tokens-00001.arrow"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 0xFF
    shard.write_bytes(content)
    folder = TokenFolder(str(tokens), 32)
    assert ["tokens-00001.arrow: checksum differs" in fault for fault in folder.damaged(0, 1)] == [True]
    assert len([fault for rank in range(2) for fault in folder.damaged(rank, 2)]) == 1


def test_tokens_outside_the_vocabulary_name_the_shard(corpus: Path, tokens: Path, tmp_path: Path) -> None:
    manifest = read_manifest(TokenManifest, tokens)
    small = manifest.model_copy(update={"tokenizer": manifest.tokenizer.model_copy(update={"vocab_size": 50})})
    (tokens / MANIFEST_NAME).write_text(to_json(small))
    config = parse_model(TrainConfig, settings(corpus, tmp_path / "out", data__train=str(tokens)), "c")
    folder = preflight(config)
    with pytest.raises(UserError, match=r"tokens-0000\d\.arrow: token \d+ is outside the vocabulary of 50"):
        for n in range(20):
            folder.sequence(n, folder.layout(0, 2))
    with pytest.raises(UserError, match="outside the vocabulary"):
        [TokenFolder(str(tokens), 32, 8).held_sequence(held) for held in TokenFolder(str(tokens), 32, 8).held(8)]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "disk full"),
        (RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0"), "disk full"),
        (OSError(errno.EACCES, os.strerror(errno.EACCES)), "Permission denied"),
    ],
)
def test_disk_errors_are_told_in_words(tmp_path: Path, error: Exception, message: str) -> None:
    with pytest.raises(UserError, match=message), disk_errors(tmp_path):
        raise error
    with pytest.raises(RuntimeError, match="other"), disk_errors(tmp_path):
        raise RuntimeError("another and other thing")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_torch_on_a_full_disk() -> None:
    import torch

    with pytest.raises(UserError, match="disk full"), disk_errors(Path("checkpoints")):
        save_tensors({"a": torch.zeros(1 << 20)}, "/dev/full")


def test_last_loss_that_is_no_number_is_no_success() -> None:
    from train.engine import StepOutcome
    from train.run import check_converged
    from train.state import RunState

    good, bad = StepOutcome(2.0, 1.0, True, 9), StepOutcome(float("nan"), float("nan"), False, 9)
    state = RunState().advance(1, good).advance(1, good).advance(1, bad)
    assert state == RunState(**json.loads(json.dumps(state.to_json()))) and state.last_loss == 2.0
    with pytest.raises(UserError, match=r"last step, 3, is not finite.* lower optimizer.lr"):
        check_converged(state)
    check_converged(state.advance(1, good))
    check_converged(RunState(step=10, skipped=2, skipped_in_row=2))
    with pytest.raises(UserError, match="last 3 of 10 steps"):
        check_converged(RunState(step=10, skipped=3, skipped_in_row=3))


@pytest.mark.parametrize(
    "changes",
    [
        {f"{key}": value}
        for key in ("optimizer__lr", "optimizer__eps", "optimizer__weight_decay", "optimizer__clip",
                    "model__rope_theta")
        for value in (float("inf"), float("nan"))
    ],
)  # fmt: skip
def test_settings_must_be_finite(corpus: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="finite"):
        parse_model(TrainConfig, settings(corpus, tmp_path, **changes), "c")
