"""A corpus and a finished run, shared by all tests here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.train.synthetic import launch, make_tokenizer, random_documents, settings, write_config, write_shards


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `tokenizer/` and `tokens/` of three shards."""
    root = tmp_path_factory.mktemp("corpus")
    tokenizer = make_tokenizer(root / "tokenizer")
    write_shards(root / "tokens", [random_documents(seed, 150) for seed in range(3)], tokenizer)
    return root


@pytest.fixture(scope="session")
def finished(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The output folder of an uninterrupted run of 8 steps on one rank."""
    output = tmp_path_factory.mktemp("finished") / "out"
    launch("run", write_config(output.parent / "train.yaml", settings(corpus, output)))
    yield output
