"""A small corpus and a tokenizer trained on it, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tokenizer.corpus import synthetic, write_documents
from tokenizer.documents import Documents, open_documents
from tokenizer.saved import SavedTokenizer, read_tokenizer
from tokenizer.trainers import TrainerConfig, train

SPECIAL = ("<|endoftext|>", "<|pad|>", "[公司名]")


def config(**changes: object) -> TrainerConfig:
    values: dict[str, object] = {
        "kind": "bpe",
        "vocab_size": 420,
        "special": SPECIAL,
        "eos": "<|endoftext|>",
        "min_frequency": 2,
        "sample_bytes": 1_000_000,
        "seed": 0,
    }
    return TrainerConfig(**{**values, **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three shards of 120, 75 and 1 documents; some spell special tokens."""
    texts = synthetic(196)
    texts[3] = "ends here <|endoftext|> or not; [公司名]签了合同"
    texts[125] = ""
    return write_documents(tmp_path_factory.mktemp("docs") / "out", [texts[:120], texts[120:195], texts[195:]])


@pytest.fixture(scope="session")
def docs(folder: Path) -> Documents:
    return open_documents(folder)


@pytest.fixture(scope="session")
def tokenizer_folder(docs: Documents, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("tok") / "tok"
    train(docs, config(), target)
    return target


@pytest.fixture(scope="session")
def saved(tokenizer_folder: Path) -> SavedTokenizer:
    return read_tokenizer(tokenizer_folder)


@pytest.fixture(scope="session")
def unigram_folder(docs: Documents, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("tok") / "unigram"
    train(docs, config(kind="unigram", vocab_size=400), target)
    return target
