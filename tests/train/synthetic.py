"""Synthetic token shards, a tiny tokenizer and configurations of tiny runs."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from schemas.arrow import token_shard
from schemas.manifest import MANIFEST_NAME, ShardEntry, TokenizerRef, TokenManifest, fingerprint, to_json
from train.data.sequences import file_checksum

VOCAB, EOS = 101, 0
REPOSITORY = Path(__file__).resolve().parents[2]


def make_tokenizer(folder: Path) -> TokenizerRef:
    """A word-level tokenizer of VOCAB words, `<|eos|>` first."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"<|eos|>": EOS, **{f"w{i}": i for i in range(1, VOCAB)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w1"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    digest = hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()
    return TokenizerRef(fingerprint=digest, vocab_size=VOCAB, eos_token="<|eos|>", eos_id=EOS)


def write_shards(
    folder: Path,
    shards: list[list[list[int]]],
    tokenizer: TokenizerRef | None = None,
    rows_per_batch: int = 7,
    dtype: str = "uint16",
) -> TokenManifest:
    """Write documents, given as lists of token ids by shard, as token shards with their manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    schema = token_shard(dtype)
    entries = []
    for index, documents in enumerate(shards):
        path = folder / f"tokens-{index:05d}.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for start in range(0, len(documents), rows_per_batch):
                part = documents[start : start + rows_per_batch]
                ids = [
                    hashlib.blake2b(f"{index}/{start + i}".encode(), digest_size=16).digest() for i in range(len(part))
                ]
                columns = [pa.array(part, schema.field("tokens").type), pa.array(ids, pa.binary(16)), ["s"] * len(part)]
                writer.write_batch(pa.record_batch([*columns[:2], pa.array(columns[2])], schema=schema))
        tokens = sum(map(len, documents))
        entries.append(
            ShardEntry(
                path=path.name,
                rows=len(documents),
                bytes=path.stat().st_size,
                checksum=file_checksum(path),
                tokens=tokens,
            )
        )
    reference = tokenizer or TokenizerRef(fingerprint="0" * 64, vocab_size=VOCAB, eos_token="<|eos|>", eos_id=EOS)
    manifest = TokenManifest(
        fingerprint=fingerprint([entry.checksum for entry in entries]),
        tokenizer=reference,
        documents_fingerprint="0" * 32,
        dtype="uint16" if dtype == "uint16" else "uint32",
        documents=sum(entry.rows for entry in entries),
        tokens=sum(entry.tokens for entry in entries),
        shards=entries,
    )
    (folder / MANIFEST_NAME).write_text(to_json(manifest), encoding="utf-8")
    return manifest


def random_documents(seed: int, documents: int, longest: int = 60) -> list[list[int]]:
    """Documents of a language that can be learned: each word is mostly the one before plus a small step."""
    generator = np.random.default_rng(seed)
    result = []
    for _ in range(documents):
        length = int(generator.integers(0, longest))
        steps = generator.choice([1, 2, 3], size=length, p=[0.8, 0.1, 0.1])
        result.append([*(1 + (generator.integers(0, VOCAB) + np.cumsum(steps)) % (VOCAB - 1)).tolist(), EOS])
    return result


def settings(corpus: Path, output: Path, **changes: Any) -> dict[str, Any]:
    """A tiny run; `changes` are `group__key=value` or `key=value`."""
    values: dict[str, Any] = {
        "output": str(output),
        "seed": 3,
        "tokenizer": str(corpus / "tokenizer"),
        "data": {
            "train": str(corpus / "tokens"),
            "validation_sequences": 8,
            "sequence_length": 32,
            "num_workers": 0,
            "shuffle_block": 2,
        },
        "model": {"hidden_size": 32, "layers": 2, "heads": 4, "kv_heads": 2, "intermediate_size": 64},
        "batch": {"global_batch": 8, "micro_batch": 2},
        "optimizer": {"lr": 3e-3},
        "schedule": {"steps": 8, "warmup_steps": 2},
        "checkpoint": {"every": 4, "keep": 3},
        "validation": {"every": 4, "batches": 4},
        "log_every": 1,
    }
    for key, value in changes.items():
        *groups, leaf = key.split("__")
        target = values
        for group in groups:
            target = target.setdefault(group, {})
        target[leaf] = value
    return values


def write_config(path: Path, values: dict[str, Any]) -> Path:
    """The settings as a YAML file."""
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path


def command(*arguments: str | Path, ranks: int = 1) -> list[str]:
    """A command line of `train`, under torchrun for more than one rank."""
    words = [str(argument) for argument in arguments]
    if ranks == 1:
        return [sys.executable, "-m", "train.cli", *words]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(ranks)]
    return [*launcher, "--master_port", str(free_port()), "-m", "train.cli", *words]


def free_port() -> int:
    """A TCP port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment() -> dict[str, str]:
    """The environment of launched runs: one thread, so that sums add up in the same order at every world size."""
    drop = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "DS_ACCELERATOR")
    kept = {key: value for key, value in os.environ.items() if key not in drop}
    return {**kept, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(REPOSITORY)}


def launch(*arguments: str | Path, ranks: int = 1, status: int = 0) -> str:
    """Run `train` to its end; its output. Fails unless it ends with `status`."""
    done = subprocess.run(
        command(*arguments, ranks=ranks), env=environment(), cwd=REPOSITORY, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def metrics(output: Path) -> list[dict[str, Any]]:
    """Step records of a run, without what depends on the clock."""
    rows = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return [
        {key: row[key] for key in ("step", "loss", "lr", "grad_norm", "tokens", "skipped")}
        for row in rows
        if "lr" in row
    ]
