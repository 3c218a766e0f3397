"""What is checked before a run starts, by the run and by its dry run alike. Imports no torch."""

from __future__ import annotations

import errno
import hashlib
import tempfile
from pathlib import Path

import psutil

from schemas.errors import UserError
from schemas.manifest import TokenizerRef
from schemas.training import TrainConfig, plan_batch
from train.data.source import TokenFolder
from train.plan import GIB, estimate_memory


def preflight(config: TrainConfig) -> TokenFolder:
    """The training data, after every check that costs next to nothing. Raises UserError; leaves nothing behind."""
    data = config.data
    folder = TokenFolder(data.train, data.sequence_length, data.validation_sequences)
    tokenizer = folder.manifest.tokenizer
    check_tokenizer(config.tokenizer, tokenizer)
    if data.validation is not None:
        other = TokenFolder(data.validation, data.sequence_length).manifest.tokenizer
        if other.fingerprint != tokenizer.fingerprint:
            raise UserError("data.validation was made with another tokenizer than data.train: tokenize it again")
    check_output(Path(config.output))
    check_export_target(Path(config.output) / "export")
    return folder


def tokenizer_fingerprint(folder: str | Path) -> str:
    """SHA-256 of tokenizer.json. Raises UserError if it is missing."""
    path = Path(folder) / "tokenizer.json"
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read: {error.strerror}; set tokenizer to the folder the shards were tokenized with"
        ) from None


def check_tokenizer(folder: str | Path, expected: TokenizerRef) -> None:
    """Raise UserError unless the folder holds the tokenizer that made the token shards."""
    if (found := tokenizer_fingerprint(folder)) != expected.fingerprint:
        raise UserError(
            f"{folder}/tokenizer.json has fingerprint {found[:12]}…, the token shards were made with "
            f"{expected.fingerprint[:12]}…: set tokenizer to that tokenizer's folder, or tokenize again"
        )


def check_output(output: Path) -> None:
    """Raise UserError unless the output folder can be made and written to."""
    for folder in (output, output / "checkpoints"):
        if folder.is_symlink() and not folder.exists():
            raise UserError(f"{folder}: is a link to nothing: set output to another folder")
    place = next(path for path in (output / "checkpoints", *(output / "checkpoints").absolute().parents) if _is(path))
    if not place.is_dir():
        raise UserError(f"{place}: is a file, and a folder is needed there: set output to another folder")
    try:
        with tempfile.TemporaryDirectory(dir=place, prefix=".probe-"):  # permissions alone do not tell
            pass
    except OSError as error:
        full = error.errno == errno.ENOSPC
        why = "disk full: free some space" if full else f"cannot be written: {error.strerror}"
        raise UserError(f"{place}: {why}, or set output to another folder") from None


def _is(path: Path) -> bool:
    """Whether there is something; False below a file, or where one may not look."""
    try:
        return path.exists()
    except OSError:
        return False


def check_export_target(target: Path) -> None:
    """Raise UserError unless `target` is free, empty or an earlier export: it is replaced, so it must be ours."""
    if not target.exists() and not target.is_symlink():
        return
    ours = target.is_dir() and (target / "config.json").is_file() and any(target.glob("*.safetensors"))
    empty = target.is_dir() and not any(target.iterdir())
    if target.is_symlink() or not (ours or empty):
        raise UserError(f"{target} is no earlier export, and would be replaced: choose another folder")


def memory_warning(config: TrainConfig, ranks: int, vocab_size: int) -> str | None:
    """A line if one rank alone needs more than the machine has; None if it may fit."""
    need = estimate_memory(config, plan_batch(config.batch, ranks), vocab_size).total
    have = psutil.virtual_memory().total
    if need <= have:
        return None
    return (
        f"warning: a rank needs about {need / GIB:,.0f} GiB, this machine has {have / GIB:,.0f} GiB of memory: "
        "set a smaller model, batch.micro_batch or data.sequence_length, or use more ranks with a higher zero_stage"
    )
