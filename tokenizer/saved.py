"""Tokenizers on disk: a folder that `transformers.AutoTokenizer` loads, named by the SHA-256 of tokenizer.json."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schemas.errors import UserError
from schemas.manifest import TokenizerRef

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER_NAME = "tokenizer.json"
CONFIG_NAME = "tokenizer_config.json"
TRAINING_NAME = "training.json"


@dataclass(frozen=True)
class SavedTokenizer:
    """tokenizer.json as text, with the end-of-document token chosen. Small enough to send to worker processes."""

    text: str
    ref: TokenizerRef

    def load(self) -> Tokenizer:
        """The tokenizer, set to encode documents.

        Control tokens (`special: true`) that a document happens to spell, above all the end token, are encoded as the
        ordinary text they are there; only tokens with `special: false`, such as [公司名], are matched in text.
        """
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_str(self.text)
        tokenizer.encode_special_tokens = True
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    @property
    def dtype(self) -> str:
        """ "uint16" where every id fits, else "uint32"."""
        return "uint16" if self.ref.vocab_size <= 1 << 16 else "uint32"


def fingerprint_text(text: str) -> str:
    """SHA-256 of tokenizer.json, 64 hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def read_tokenizer(folder: str | Path, eos: str | None = None) -> SavedTokenizer:
    """Read a tokenizer folder (or a tokenizer.json). `eos` overrides the end token of tokenizer_config.json.

    Raises UserError if a file is missing or unreadable, or if there is no end token among the tokens.
    """
    path = Path(folder).expanduser()
    path = path / TOKENIZER_NAME if path.is_dir() else path
    if not path.is_file():
        raise UserError(f"{folder}: no {TOKENIZER_NAME}; give the folder that `prep tokenizer train` wrote")
    from tokenizers import Tokenizer

    try:
        text = path.read_bytes().decode("utf-8")
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:  # `tokenizers` raises plain Exception
        raise UserError(f"{path}: not a tokenizer.json that `tokenizers` can read: {error}") from None
    vocab = tokenizer.get_vocab(with_added_tokens=True)
    token = eos or _configured_eos(path.parent / CONFIG_NAME)
    if token is None:
        control = [t.content for t in tokenizer.get_added_tokens_decoder().values() if t.special]
        known = f"; its control tokens: {', '.join(control[:8])}" if control else ""
        raise UserError(f"{path}: the tokenizer names no end-of-document token: give --eos TOKEN{known}")
    if token not in vocab:
        raise UserError(f"{path}: the end token {token!r} is not in the vocabulary; give another with --eos")
    ref = TokenizerRef(
        fingerprint=fingerprint_text(text),
        vocab_size=max(vocab.values()) + 1,  # ids may have gaps
        eos_token=token,
        eos_id=vocab[token],
    )
    return SavedTokenizer(text, ref)


def _configured_eos(path: Path) -> str | None:
    if not path.is_file():
        return None
    try:
        token = json.loads(path.read_text(encoding="utf-8")).get("eos_token")
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    token = token.get("content") if isinstance(token, dict) else token
    if token is not None and (not isinstance(token, str) or not token):
        raise UserError(f"{path}: eos_token is {token!r}, not the text of a token: correct it, or give --eos TOKEN")
    return token


def save_tokenizer(folder: Path, tokenizer: Tokenizer, eos: str, training: dict[str, Any]) -> SavedTokenizer:
    """Write the folder aside and publish it by rename. Raises UserError if it exists."""
    refuse_existing(folder)
    text = tokenizer.to_str(pretty=True) + "\n"
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": eos,
        "eos_token": eos,
        "pad_token": eos,
        "model_max_length": 10**30,
        "clean_up_tokenization_spaces": False,
    }
    aside = folder.parent / f".{folder.name}.{uuid.uuid4().hex[:8]}"
    try:
        aside.mkdir(parents=True)
    except OSError as error:
        raise UserError(f"{folder}: {unwritten(error)}") from None
    try:
        (aside / TOKENIZER_NAME).write_bytes(text.encode("utf-8"))
        for name, values in ((CONFIG_NAME, config), (TRAINING_NAME, training)):
            (aside / name).write_text(
                json.dumps(values, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8"
            )
        os.rename(aside, folder)
    except OSError as error:
        raise UserError(f"{folder}: {unwritten(error)}") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)  # gone already where the rename succeeded
    return read_tokenizer(folder)


def unwritten(error: OSError) -> str:
    """Why a file could not be written, and what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "disk full: free some space, or choose another --output"
    return f"cannot be written: {error.strerror}; choose another --output"


def refuse_existing(folder: Path) -> None:
    """Raise UserError if `folder` holds anything: a tokenizer that token shards name must not be replaced unseen."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: exists already; remove it or choose another --output")
