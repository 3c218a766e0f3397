"""Whole runs, launched as a user launches them."""

from __future__ import annotations

import errno
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from schemas.errors import UserError
from tests.train.synthetic import REPOSITORY, command, environment, free_port, launch, metrics, settings, write_config

pytestmark = pytest.mark.slow


def losses(output: Path) -> list[float]:
    return [row["loss"] for row in metrics(output)]


@pytest.fixture(scope="module")
def two_ranks(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on two ranks with ZeRO-1 under torchrun: stopped after 3 steps, then resumed."""
    output = tmp_path_factory.mktemp("two") / "out"
    config = write_config(output.parent / "train.yaml", settings(corpus, output, zero_stage=1, data__num_workers=1))
    launch("run", config, "--stop-at", "3", ranks=2)
    launch("run", config, ranks=2)
    return output


def test_run_learns_reports_and_exports(finished: Path) -> None:
    rows = metrics(finished)
    assert [row["step"] for row in rows] == list(range(1, 9))
    assert rows[-1]["loss"] < rows[0]["loss"] - 0.2
    summary = json.loads((finished / "summary.json").read_text())
    assert summary["finished"] and summary["first_loss"] == rows[0]["loss"] and summary["last_loss"] == rows[-1]["loss"]
    assert 1 < summary["validation_perplexity"] < 101
    assert (finished / "checkpoints" / "latest").read_text() == "step-00000008\n"
    assert not list((finished / "checkpoints").glob(".*"))


def test_stopped_twice_and_resumed_is_the_uninterrupted_run(corpus: Path, finished: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    config = write_config(tmp_path / "train.yaml", settings(corpus, output))
    launch("run", config, "--stop-at", "3")
    assert "resumed from" in launch("run", config, "--stop-at", "6", "--set", "data.num_workers=2")
    launch("run", config, "--set", "checkpoint.every=100")
    assert metrics(output) == metrics(finished)


def test_two_ranks_zero_1_equal_one_rank(finished: Path, two_ranks: Path) -> None:
    assert losses(two_ranks) == pytest.approx(losses(finished), abs=1e-5)
    norms = [[row["grad_norm"] for row in metrics(output)] for output in (two_ranks, finished)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)


def test_other_world_size_is_refused_with_the_remedy(corpus: Path, two_ranks: Path) -> None:
    config = write_config(two_ranks.parent / "one.yaml", settings(corpus, two_ranks, zero_stage=1))
    assert "start 2 ranks" in launch("run", config, status=2)


def test_deepspeed_launcher_starts_two_ranks_on_cpu(corpus: Path, finished: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    config = write_config(tmp_path / "train.yaml", settings(corpus, output, zero_stage=2))
    launcher = [str(Path(sys.executable).with_name("deepspeed")), "--num_gpus", "2", "--master_port", str(free_port())]
    done = subprocess.run(
        [sys.executable, *launcher, "--module", "train.cli", "run", str(config)],
        env=environment() | {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
        cwd=REPOSITORY, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert losses(output) == pytest.approx(losses(finished), abs=1e-5)


def test_changed_settings_and_mixed_runs_are_refused(corpus: Path, finished: Path) -> None:
    config = write_config(finished.parent / "changed.yaml", settings(corpus, finished, optimizer__lr=1e-3, seed=4))
    message = launch("run", config, status=2)
    assert "optimizer.lr was 0.003 and is 0.001; seed was 3 and is 4" in message and "Traceback" not in message
    config = write_config(finished.parent / "same.yaml", settings(corpus, finished))
    assert "would mix two runs" in launch("run", config, "--resume", "none", status=2)
    assert "no such checkpoint" in launch("run", config, "--resume", str(finished / "nowhere"), status=2)


def test_damaged_checkpoint_is_passed_over_and_all_damaged_is_an_error(
    corpus: Path, finished: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    shutil.copytree(finished, output)
    config = write_config(tmp_path / "train.yaml", settings(corpus, output))
    newest, older = output / "checkpoints" / "step-00000008", output / "checkpoints" / "step-00000004"
    model = next(newest.rglob("*model_states.pt"))
    model.write_bytes(model.read_bytes()[:-1])
    text = launch("run", config)
    assert "step-00000008 is damaged" in text and "resumed from" in text and "step-00000004 at step 4" in text
    assert metrics(output) == metrics(finished)
    for folder in (newest, older):
        weights = folder / "model.safetensors"
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
    assert "none of the 2 checkpoints is whole" in launch("run", config, status=2)
    assert "damaged" in launch("export", newest, "--to", tmp_path / "export", status=2)


def test_kill_during_a_save_leaves_a_valid_checkpoint(corpus: Path, tmp_path: Path) -> None:
    """Killed as soon as a half-written checkpoint is seen; what is published must still resume."""
    output = tmp_path / "out"
    values = settings(corpus, output, checkpoint__every=1, schedule__steps=400, model__hidden_size=256)
    config = write_config(tmp_path / "train.yaml", values)
    with open(tmp_path / "log", "wb") as log:
        run = subprocess.Popen(command("run", config), env=environment(), cwd=REPOSITORY, stdout=log, stderr=log)
    checkpoints, deadline = output / "checkpoints", time.monotonic() + 120
    while time.monotonic() < deadline and run.poll() is None:
        if list(checkpoints.glob("step-*")) and list(checkpoints.glob(".writing-*/engine/state/*.pt")):
            break
    run.kill()
    run.wait()
    assert list(checkpoints.glob(".writing-*")), (tmp_path / "log").read_text()
    step = max(int(path.name[5:]) for path in checkpoints.glob("step-*"))
    text = launch("run", config, "--stop-at", str(step + 1))
    assert f"at step {step}," in text and "damaged" not in text
    assert not list(checkpoints.glob(".writing-*"))
    assert [row["step"] for row in metrics(output)] == list(range(1, step + 2))


def test_sigterm_writes_a_checkpoint_and_ends_cleanly(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    config = write_config(tmp_path / "train.yaml", settings(corpus, output, schedule__steps=100000))
    with open(tmp_path / "log", "wb") as log:
        run = subprocess.Popen(command("run", config), env=environment(), cwd=REPOSITORY, stdout=log, stderr=log)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (output / "checkpoints" / "latest").exists():
        time.sleep(0.05)
    run.send_signal(signal.SIGTERM)
    assert run.wait(timeout=60) == 0, (tmp_path / "log").read_text()
    summary = json.loads((output / "summary.json").read_text())
    newest = (output / "checkpoints" / "latest").read_text().strip()
    assert not summary["finished"] and newest == f"step-{summary['step']:08d}"


def test_damaged_shard_stops_the_run_by_name(corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(corpus / "tokens", tmp_path / "tokens")
    shard = tmp_path / "tokens" / "tokens-00001.arrow"
    shard.write_bytes(shard.read_bytes()[:-8])
    values = settings(corpus, tmp_path / "out", data__train=str(tmp_path / "tokens"))
    message = launch("run", write_config(tmp_path / "train.yaml", values), status=2)
    assert "tokens-00001.arrow: token shard has" in message and "Traceback" not in message
    assert "tokens-00001.arrow" in launch("data", "check", tmp_path / "tokens", status=2)


@pytest.mark.parametrize("kind", ["one rank", "two ranks"])
def test_export_loads_and_generates(kind: str, finished: Path, two_ranks: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    output = finished if kind == "one rank" else two_ranks
    launch("export", output, "--to", tmp_path / "export")
    for folder in (output / "export", tmp_path / "export"):
        model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        assert model.config.vocab_size == 128 and tokenizer.eos_token_id == 0 == model.config.eos_token_id
        trained = load_file(output / "checkpoints" / "step-00000008" / "model.safetensors")
        assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in trained.items())
        encoded = tokenizer("w5 w6 w7", return_tensors="pt")
        assert encoded["input_ids"].tolist() == [[5, 6, 7]]
        text = tokenizer.decode(model.generate(encoded["input_ids"], max_new_tokens=5, do_sample=False)[0])
        assert text.startswith("w5 w6 w7")


def test_command_line_looks_before_it_leaps(corpus: Path, finished: Path) -> None:
    config = write_config(finished.parent / "plan.yaml", settings(corpus, finished))
    plan = launch("run", config, "--dry-run", "--ranks", "2")
    assert "22,688 parameters" in plan and "micro_batch 2 x 2 ranks x 2 accumulated" in plan
    assert "set global_batch: 6 or 12" in launch("run", config, "--dry-run", "--ranks", "3", status=2)
    assert "sequence 3: epoch 0, tokens-0000" in launch("data", "show", "3", config)
    assert "450 documents" in launch("data", "check", corpus / "tokens")
    assert launch("--version").startswith("train ")


def test_help_imports_no_torch() -> None:
    code = "import sys, train.cli; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, env=environment(), check=True)


def test_export_leaves_what_is_not_an_export_alone(finished: Path, tmp_path: Path) -> None:
    from train.export import export_checkpoint

    checkpoint = finished / "checkpoints" / "step-00000008"
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "manifest.json").write_text("{}")
    for target in (tmp_path / "file", tmp_path / "folder"):
        with pytest.raises(UserError, match="is no earlier export"):
            export_checkpoint(checkpoint, target)
    assert (tmp_path / "file").read_text() == "mine" and (tmp_path / "folder" / "manifest.json").exists()


def test_a_diverged_run_is_no_success() -> None:
    from train.run import check_converged
    from train.state import RunState

    check_converged(RunState(step=10, skipped=5))
    with pytest.raises(UserError, match=r"6 of 10 steps .* lower optimizer.lr"):
        check_converged(RunState(step=10, skipped=6))


@pytest.mark.parametrize(
    "change", [{"optimizer": {"lr": float("inf")}}, {"optimizer": {"lr": 1e-3, "eps": float("nan")}}, {"seed": 10**23}]
)
def test_numbers_that_are_none_are_refused(corpus: Path, tmp_path: Path, change: dict[str, object]) -> None:
    from schemas.config import parse_model
    from schemas.training import TrainConfig

    with pytest.raises(UserError, match=r"finite|less than"):
        parse_model(TrainConfig, {**settings(corpus, tmp_path), **change}, "c")


def test_weights_that_are_not_finite_are_not_exported(finished: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    from train.export import export_checkpoint
    from train.files import checksum_from_disk

    checkpoint = tmp_path / "step-00000008"
    shutil.copytree(finished / "checkpoints" / checkpoint.name, checkpoint)
    weights = load_file(checkpoint / "model.safetensors")
    next(iter(weights.values())).view(-1)[0] = torch.nan
    save_file(weights, checkpoint / "model.safetensors")
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    entry = manifest["files"]["model.safetensors"]
    entry["checksum"] = checksum_from_disk(checkpoint / "model.safetensors")
    entry["bytes"] = (checkpoint / "model.safetensors").stat().st_size
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="weights are not finite"):
        export_checkpoint(checkpoint, tmp_path / "export")
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint.name]


def test_failed_export_leaves_nothing(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from train import export

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(export, "_copy_tokenizer", full)
    with pytest.raises(UserError, match="export: disk full"):
        export.export_checkpoint(finished / "checkpoints" / "step-00000008", tmp_path / "export")
    assert not list(tmp_path.iterdir())


def test_flipped_byte_in_a_shard_stops_the_run_by_name(corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(corpus / "tokens", tmp_path / "tokens")
    shard = tmp_path / "tokens" / "tokens-00001.arrow"
    content = bytearray(shard.read_bytes())
    content[2000:2100] = b"\xff" * 100
    shard.write_bytes(content)
    values = settings(corpus, tmp_path / "out", data__train=str(tmp_path / "tokens"))
    message = launch("run", write_config(tmp_path / "train.yaml", values), status=2)
    assert "tokens-00001.arrow: checksum differs" in message and "Traceback" not in message
