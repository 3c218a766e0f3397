"""The commands: exact use as documented, errors as one line, and no heavy import for --help."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from schemas.errors import UserError
from schemas.manifest import TokenManifest, read_manifest
from tokenizer.cli import add_commands


def run(*arguments: str) -> Result:
    app = typer.Typer()
    add_commands(app)
    return CliRunner().invoke(app, list(arguments))


TRAIN = ("--vocab-size", "420", "--kind", "bpe", "--special", "<|endoftext|>,[公司名]")


def test_train_then_tokenize(folder: Path, tmp_path: Path) -> None:
    tok, tokens = tmp_path / "tok", tmp_path / "tokens"
    trained = run("tokenizer", "train", str(folder / "shards"), "--output", str(tok), *TRAIN)
    assert trained.exit_code == 0, trained.output
    assert "end token <|endoftext|> = 0" in trained.output
    assert "domain" in run("tokenizer", "show", str(tok), "--text", "x[公司名]").output
    done = run("tokenize", str(folder), "--tokenizer", str(tok), "--output", str(tokens), "--workers", "1")
    assert done.exit_code == 0, done.output
    assert read_manifest(TokenManifest, tokens).documents == 196


def test_dry_runs_write_nothing(folder: Path, tokenizer_folder: Path, tmp_path: Path) -> None:
    target = str(tmp_path / "x")
    assert run("tokenizer", "train", str(folder), "--output", target, "--dry-run", *TRAIN).exit_code == 0
    shown = run("tokenize", str(folder), "--tokenizer", str(tokenizer_folder), "--output", target, "--dry-run")
    assert shown.exit_code == 0
    assert "3 shards (0 finished before), 196 documents" in shown.output
    assert not Path(target).exists()


def test_errors_say_what_to_do(folder: Path, tmp_path: Path) -> None:
    target = ("--output", str(tmp_path / "x"))
    cases = [
        (("tokenizer", "train", str(folder), *target, "--vocab-size", "100"), "need at least 257"),
        (("tokenizer", "train", str(folder), *target, *TRAIN[:2], "--kind", "wordpiece"), "choose bpe or unigram"),
        (("tokenizer", "train", str(tmp_path / "none"), *target, *TRAIN), "no such folder"),
        (("tokenizer", "train", str(tmp_path), *target, *TRAIN), "no manifest.json"),
        (("tokenize", str(folder), *target, "--tokenizer", str(tmp_path)), "no tokenizer.json"),
    ]
    for arguments, message in cases:
        error = run(*arguments).exception
        assert isinstance(error, UserError)
        assert message in str(error)


def test_small_text_is_reported(folder: Path, tmp_path: Path) -> None:
    result = run(
        "tokenizer",
        "train",
        str(folder),
        "--output",
        str(tmp_path / "x"),
        "--vocab-size",
        "9000",
        "--sample-bytes",
        "900",
    )
    assert result.exit_code == 0
    assert "warning: the text gave" in result.output


@pytest.mark.parametrize("heavy", ["pyarrow", "numpy", "tokenizers", "gigatoken", "awkward"])
def test_nothing_heavy_for_help(heavy: str, root: Path) -> None:
    code = f"import sys, tokenizer.cli; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


@pytest.mark.parametrize(
    ("option", "value"), [("--vocab-size", 10**30), ("--min-frequency", 2**70), ("--seed", 10**23), ("--vocab-size", 0)]
)
def test_absurd_numbers_are_refused(folder: Path, tmp_path: Path, option: str, value: int) -> None:
    arguments = ("tokenizer", "train", str(folder), "--output", str(tmp_path / "x"), *TRAIN, option, str(value))
    result = run(*arguments)
    assert result.exit_code == 2 and isinstance(result.exception, SystemExit)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("option", ["--eos", "--special"])
def test_bytes_that_are_no_text_are_refused(folder: Path, tmp_path: Path, option: str) -> None:
    from tokenizer.trainers import resolve_special

    names, eos = (["<|a|>"], "<|\udcff|>") if option == "--eos" else (["<|\udcff|>"], None)
    with pytest.raises(UserError, match="not UTF-8"):
        resolve_special(names, eos)
